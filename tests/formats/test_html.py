"""kvplan.formats.html: one file that asks for nothing, with every tag closed."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from kvplan.formats.html import render
from kvplan.table import Column, Document, Section, Table

VOID = {"meta", "br", "path", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """Tags with their attributes, text by tag; refuses what is not balanced."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def text(self, tag: str) -> list[str]:
        return [data for name, data in self.texts if name == tag]


def of_cell(text: str) -> Page:
    return Page(render(Document("x", [Table("t", (Column("a", "A"),), [(text,)])], {})))


def test_tags_are_balanced_and_headings_in_order(report: Document) -> None:
    page = Page(render(report))

    assert page.text("h1") == ["Plan of deepseek-v3"]
    assert page.text("h2") == ["Compare", "Budget", "Capacity", "Checklist", "Sources", "Notes"]
    assert page.text("title") == ["Plan of deepseek-v3"]
    assert page.attributes("html") == [{"lang": "en"}]


def test_ids_are_unique_and_the_contents_lead_to_them(report: Document) -> None:
    page = Page(render(report))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    links = [href[1:] for a in page.attributes("a") if (href := a["href"] or "").startswith("#")]

    assert len(ids) == len(set(ids))
    assert len(links) == 5
    assert set(links) <= set(ids)


def test_a_short_document_has_no_contents(compare: Document) -> None:
    assert Page(render(compare)).attributes("nav") == []


def test_nothing_is_loaded_from_anywhere(report: Document) -> None:
    text = render(report)
    page = Page(text)

    assert not {"script", "link", "img", "iframe", "object", "embed"} & {tag for tag, _ in page.tags}
    assert not re.search(r"@import|url\((?!#)|\bsrc=", text)
    assert all(tag == "a" for tag, attributes in page.tags if (attributes.get("href") or "").startswith("http"))
    assert "default-src 'none'" in str(page.attributes("meta"))


def test_tables_have_captions_scopes_and_a_box_to_scroll_in(report: Document) -> None:
    page = Page(render(report))
    heads = page.attributes("th")

    assert page.text("b") == ["KV cache of one session", "Memory of one GPU", "Capacity", "Items"]
    assert {head["scope"] for head in heads} == {"col", "row"}
    assert sum(head["scope"] == "row" for head in heads) == 6 * 2 + 3 + 3 + 3
    boxes = [box for box in page.attributes("div") if box["class"] == "scroll"]
    assert [box["aria-label"] for box in boxes].count("Memory of one GPU") == 1
    assert {box["tabindex"] for box in boxes} == {"0"}


def test_a_title_is_not_shown_twice_but_kept_for_screen_readers(report: Document) -> None:
    assert Page(render(report)).attributes("caption") == [{}, {}, {"class": "unseen"}, {}]


def test_figures_are_inline_with_title_and_caption(report: Document) -> None:
    page = Page(render(report))

    assert page.attributes("svg") == [{"viewbox": "0 0 9 9"}]
    assert page.text("h3") == ["Cache against context"]
    assert "Both axes logarithmic." in page.text("figcaption")


def test_verdicts_are_marked_by_class_and_word(report: Document) -> None:
    cells = [cell["class"] for cell in Page(render(report)).attributes("td") if "verdict" in (cell["class"] or "")]

    assert cells == ["verdict pass", "verdict warn", "verdict fail"]


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", '"><img src=x>', "a & b", "</td></table>"])
def test_text_stays_text(text: str) -> None:
    page = of_cell(text)

    assert "".join(page.text("th")) == "A" + text
    assert page.attributes("script") == page.attributes("img") == []


def test_code_and_addresses_are_marked() -> None:
    page = of_cell("use `<a>`, see https://example.org/?a=1&b=2.")

    assert page.text("code") == ["<a>"]
    assert page.attributes("a") == [{"href": "https://example.org/?a=1&b=2"}]


def test_code_blocks_keep_their_lines(report: Document) -> None:
    assert "kvplan report deepseek-v3 \\\n  --tp 8" in Page(render(report)).text("code")


def test_the_page_follows_the_scheme_prints_and_has_no_date(report: Document) -> None:
    text = render(report)

    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text
    assert text == render(report)
    assert not re.search(r"\b\d{4}-\d\d-\d\d\b", text)


def test_every_column_keeps_its_title_and_unit(compare: Document) -> None:
    page = Page(render(compare))

    assert page.text("span") == ["tokens", "B", "KiB", "GiB", "GiB"]


def test_sections_without_title_need_no_heading() -> None:
    page = Page(render(Document("x", (), {}, sections=[Section("", ["text"])])))

    assert page.text("p") == ["text"]
    assert page.attributes("section") == []
