"""A site file comes back as it was written, and says in one line what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.errors import BadInput, UnknownName
from kvplan.overheads import OVERHEADS, Site, Weights, read_site, write_site
from kvplan.parallel import Parallelism

SITE = Site("vllm.log", {"non_torch": 2222645576, "activation": 0}, Weights("llama-3.1-8b", 2, 1, 8063801098))


@pytest.mark.parametrize("site", [SITE, Site("a.log", {"cuda_graphs": 1}), Site("a.log", dict.fromkeys(OVERHEADS, 7))])
def test_a_site_comes_back_as_it_was_written(tmp_path: Path, site: Site) -> None:
    write_site(tmp_path / "site.yaml", site)

    assert read_site(tmp_path / "site.yaml") == site


def test_weights_are_given_only_to_their_model_on_as_many_ranks() -> None:
    with_weights = {"non_torch": 2222645576, "activation": 0, "weights": 8063801098}
    without = {"non_torch": 2222645576, "activation": 0}

    assert SITE.given_bytes("llama-3.1-8b", Parallelism(tp=2)) == with_weights
    assert SITE.given_bytes("llama-3.1-8b", Parallelism(tp=2, dp=4)) == with_weights
    assert SITE.given_bytes("llama-3.1-8b", Parallelism(tp=4)) == without
    assert SITE.given_bytes("llama-3.1-8b", Parallelism(tp=2, pp=2)) == without
    assert SITE.given_bytes("llama-3-8b", Parallelism(tp=2)) == without


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no mapping `overheads`"),
        ("- 1", "has no mapping `overheads`"),
        ("overheads: 3", "has no mapping `overheads`"),
        ("overheads: {non_torch: -1}", "overheads: non_torch: -1 is not a number of bytes"),
        ("overheads: {non_torch: 2GiB}", "overheads: non_torch: '2GiB' is not a number of bytes"),
        ("overheads: {non_torch: true}", "overheads: non_torch: True is not a number of bytes"),
        ("overheads: {}\nweights: 12", "weights: is not a mapping of model, tp, pp, bytes"),
        ("overheads: {}\nweights: {model: x, tp: 1}", "weights: is not a mapping of model, tp, pp, bytes"),
        (
            "overheads: {}\nweights: {model: x, tp: 1, pp: 1, bytes: 1.5}",
            "weights: bytes: 1.5 is not a number of bytes",
        ),
    ],
)
def test_a_file_that_is_no_site_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(text)

    with pytest.raises(BadInput, match=r"site\.yaml: ") as refused:
        read_site(path)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("overheads: {non_torhc: 1}", "overheads: unknown key 'non_torhc'; did you mean non_torch?"),
        ("overheads: {weights: 1}", "unknown key 'weights'"),
        ("overheads: {}\nweigths: {}", "unknown key 'weigths'; did you mean weights?"),
        ("overheads: {}\nweights: {modle: x}", "weights: unknown key 'modle'; did you mean model?"),
    ],
)
def test_a_key_that_does_not_exist_is_refused_with_what_is_near(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(text)

    with pytest.raises(UnknownName) as refused:
        read_site(path)
    assert message in str(refused.value)


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no-such-folder"):
        write_site(tmp_path / "no-such-folder" / "site.yaml", SITE)
