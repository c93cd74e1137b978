"""A deliberately slow allocator: block by block, token by token, nothing in closed form."""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.engines.vllm.groups import Group
from kvplan.engines.vllm.layout import VllmLayout
from kvplan.engines.vllm.pages import PageSpec


def carve(layout: VllmLayout, pool_bytes: int) -> int:
    """Blocks of a pool, cut off one at a time; a block holds the page of every layer of any one group."""
    stage = layout.geometry.block.fullest_stage
    size = max(sum(1 for _ in _bytes(group, stage)) for group in layout.geometry.groups)
    blocks, left = 0, pool_bytes
    while left >= size:
        blocks, left = blocks + 1, left - size
    return blocks


def _bytes(group: Group, stage: int) -> Iterator[None]:
    for layer in group.layers:
        if layer.stage == stage:
            for _ in range(max(layer.pages.own_bytes, layer.pages.padded_bytes)):
                yield None


def charged(pages: PageSpec, tokens: int, in_flight_tokens: int, dcp: int = 1) -> int:
    """Blocks that admission charges for a session, found by laying its tokens out one by one."""
    if pages.is_state:
        return pages.states
    kept = {
        "full": -(-tokens // dcp),
        "sliding": min(tokens, pages.bound - 1 + in_flight_tokens),
        "chunked": min(tokens, pages.bound + in_flight_tokens),
    }[pages.growth]
    size = pages.block_size or 1
    return len({slot // size for slot in range(kept)}) + (pages.growth == "sliding")


def peak(pages: PageSpec, tokens: int, step_tokens: int, first_step_tokens: int) -> int:
    """Most blocks that a session holds at once while it computes, step by step, what lies outside being freed.

    Before a step, blocks are there for what a window (or chunk) still reads and for the tokens of the step.
    """
    size = pages.block_size or 1
    done, most, step = 0, 0, first_step_tokens
    while done < tokens:
        end = min(tokens, done + step)
        start = {
            "full": 0,
            "sliding": max(0, done - (pages.bound - 1)),
            "chunked": done // pages.bound * pages.bound if pages.bound else 0,
        }[pages.growth]
        most = max(most, len({token // size for token in range(start, end)}))
        done, step = end, step_tokens
    return most


def admitted(layout: VllmLayout, pool_bytes: int, tokens: int) -> int:
    """Sessions that take their blocks one after another until the pool, less the block held back, runs out."""
    free, sessions = carve(layout, pool_bytes) - 1, 0
    need = session(layout, tokens)
    while sessions < layout.max_num_seqs and free >= need:
        free, sessions = free - need, sessions + 1
    return sessions


def session(layout: VllmLayout, tokens: int) -> int:
    """Blocks of one session over all groups."""
    return sum(charged(g.pages, tokens, layout.max_in_flight_tokens, layout.dcp) for g in layout.geometry.groups)


def longest(layout: VllmLayout, pool_bytes: int) -> int:
    """The longest context of which one session fits beside the block held back, tried token by token."""
    free, tokens = carve(layout, pool_bytes) - 1, 0
    while tokens < layout.max_model_len and session(layout, tokens + 1) <= free:
        tokens += 1
    return tokens
