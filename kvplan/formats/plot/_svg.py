"""matplotlib's SVG made fit for a page: no prologue and no fixed size; the page's colours and font."""

from __future__ import annotations

import re
from html import escape

from kvplan.formats.plot._style import VARIABLES

_OPENING = re.compile(r'.*?<svg [^>]*?viewBox="([^"]*)"[^>]*>\s*<defs>\s*<style.*?</style>\s*</defs>', re.DOTALL)
_ROOT = (
    '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="{box}" role="img"'
    ' aria-label="{label}" style="stroke-linejoin: round; stroke-linecap: butt">'
)
_FONT = re.compile(r"'DejaVu Sans'[^;\"]*")


def for_page(svg: str, label: str) -> str:
    """An element that takes the page's colours and font, scales to its box, and is read out as `label`."""
    svg = _OPENING.sub(lambda opening: _ROOT.format(box=opening[1], label=escape(label)), svg, count=1)
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, f"var({variable}, {colour})")
    used = set(re.findall(r'(?:url\(|href=")#([^")]+)', svg))
    svg = re.sub(r' id="([^"]*)"', lambda name: name[0] if name[1] in used else "", svg)
    return _FONT.sub("system-ui, sans-serif", svg).strip()
