"""What SGLang prints when it starts (0.4 to 0.5.23).

"GB" is 2**30 bytes throughout. A draft model runs through the same code as the model it drafts for: its weights come
second on every rank, and its pools carry no word of their own.
"""

from __future__ import annotations

from dataclasses import replace

from kvplan.logs.base import LogFormat
from kvplan.logs.observed import Pool, Reading
from kvplan.logs.patterns import Pattern
from kvplan.logs.startup import Startup, Statement

_ARGUMENTS = (
    Pattern(b"args", "server_args=ServerArgs(", kind="stated", phase="start"),
    Pattern(
        b"_tokens=",
        "max_total_num_tokens=<max_total_num_tokens:count>, ...max_running_requests=<max_running_requests:count>, "
        "context_len=<context_len:count>",
        phase="pool",
    ),
    Pattern(
        b"_tokens=",
        "max_total_num_tokens=...chunked_prefill_size=<chunked_prefill_size:count>, "
        "max_prefill_tokens=<max_prefill_tokens:count>,",
        kind="flags",
    ),
    Pattern(b"_tokens=", "max_total_num_tokens=...available_gpu_mem=<free_after_start:gib> GB"),
)

_WEIGHTS = (
    Pattern(b"GB", "Load weight begin. avail mem=<free_before_load:gib> GB", kind="load", phase="load"),
    Pattern(b"GB", "Load weight end. ...mem usage=<weights:gib> GB", kind="load"),
    Pattern(b"GB", "Load weight end. ...avail mem=<free_after_load:gib> GB", kind="load"),
    Pattern(b"GB", "Load weight end. ...type=<architecture:word>,", kind="load"),
)

_ALLOCATED = "<label:label>KV Cache is allocated. "
_POOLS = (
    *(
        Pattern(b"GB", f"{_ALLOCATED}{dtype}#tokens: <slots:count>, {sizes}", kind="pool")
        for dtype in ("", "dtype: <dtype:word>, ")
        for sizes in ("K size: <k:gib> GB, V size: <v:gib> GB", "KV size: <latent:gib> GB")
    ),
    Pattern(
        b"GB",
        "Mamba Cache is allocated. max_mamba_cache_size: <slots:count>, conv_state size: <conv:gib> GB, "
        "ssm_state size: <ssm:gib> GB",
        kind="states",
    ),
    Pattern(b"GB", "intermediate_ssm_state_cache size: <draft_ssm:gib> GB"),
    Pattern(b"GB", "intermediate_conv_window_cache size: <draft_conv:gib> GB"),
    Pattern(
        b"GB",
        "SWAKVPool mem usage: <swa_pools:gib> GB, swa size: <swa_tokens:count>, full size: <full_tokens:count>",
        kind="swa sizes",
    ),
    Pattern(
        b"_tokens=",
        "liding window memory pool. full_layer_tokens=<full_tokens:count>, swa_layer_tokens=<swa_tokens:count>",
    ),
    Pattern(b"_tokens=", "liding window memory pool (all SWA). swa_layer_tokens=<swa_tokens:count>"),
    Pattern(b"GB", "Post-capture KV sizing: KV cache allocated. ...KV size: <kv_pool:gib> GB"),
)

_DEEPSEEK_V4 = (
    Pattern(b"GB", "memory calculation: ...bytes_per_full_token=<per_full_token_bytes:number>,"),
    Pattern(b"GB", "memory calculation: ...available_bytes=<available_kv:gib> GB"),
    Pattern(
        b"DSV4 pool",
        "DSV4 pool sizes: full=<full_tokens:count>, swa=<swa_tokens:count>, c4=<c4_tokens:count>, "
        "c128=<c128_tokens:count>",
    ),
)

_REST = (
    Pattern(b"GB", "Memory pool end. avail mem=<free_after_pool:gib> GB"),
    Pattern(b"GB", "apture ...raph end. ...mem usage=<graph:gib> GB", repeats="sum"),
)


class SglangStartup(Startup):
    """Weights of a draft under names of their own; pools by kind."""

    def take(self, said: Statement) -> None:
        """Lines of loading and of pools; the rest as everywhere."""
        match said.pattern.kind:
            case "load":
                self.keep(self._of_target_or_draft(said.reading(name)) for name in said.values)
            case "pool":
                self._add_pool(said, kind=said.text("label").strip().lower() or "kv")
            case "states":
                self._add_pool(said, kind="state")
            case "swa sizes":
                self._name_pools(said)
                self.keep(said.reading(name) for name in said.values)
            case _:
                super().take(said)

    def _of_target_or_draft(self, reading: Reading) -> Reading:
        if (reading.name, reading.rank) in self.readings:
            return replace(reading, name=f"draft_{reading.name}")
        return reading

    def _add_pool(self, said: Statement, kind: str) -> None:
        parts = {name.removesuffix("_bytes"): said.reading(name) for name in said.values if name.endswith("_bytes")}
        alike = {kind, "full"} if kind == "kv" else {kind}
        earlier = sum(pool.rank == said.rank and pool.kind in alike for pool in self.pools)
        self.add_pool(
            Pool(
                kind=kind,
                line=said.line,
                rank=said.rank,
                context=earlier,
                slots=said.whole("slots"),
                parts=parts,
                types=dict.fromkeys(parts, said.text("dtype")) if "dtype" in said.values else {},
            )
        )

    def _name_pools(self, said: Statement) -> None:
        """Older releases announce both pools of a sliding-window model without a word, the sliding one first."""
        for kind in ("swa", "full"):
            for index, pool in enumerate(self.pools):
                if (pool.kind, pool.rank, pool.slots) == ("kv", said.rank, said.whole(f"{kind}_tokens")):
                    self.pools[index] = replace(pool, kind=kind, context=0)
                    break


LOG_FORMAT = LogFormat(
    engine="sglang",
    patterns=(*_ARGUMENTS, *_WEIGHTS, *_POOLS, *_DEEPSEEK_V4, *_REST),
    model_keys=("model_path", "model"),
    startup=SglangStartup,
)
