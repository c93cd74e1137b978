"""What llama.cpp prints when it loads a model: GGUF metadata, context parameters, pools and buffers.

Read for b4161 to b11739, and for ik_llama.cpp and Ollama, which kept the older lines. One server may create several
contexts (a draft model, a multi-token-prediction head): each prints `n_ctx = ` once, before its pools. Context 0 is
the served model; what later contexts and models say is kept apart or left out.
"""

from __future__ import annotations

from dataclasses import replace

from kvplan.logs.arguments import parse_value
from kvplan.logs.base import LogFormat
from kvplan.logs.observed import Pool
from kvplan.logs.patterns import Pattern
from kvplan.logs.startup import Startup, Statement

_MODEL = (
    Pattern(b"build", "build: <version:word> (<commit:word>) with", phase="start"),
    Pattern(b"build", "main: build = <version:word> (<commit:word>)", phase="start"),
    Pattern(b"build", "build info ...build=<version:word> commit=", phase="start"),
    Pattern(b"iB", "using device <device:device> (<gpu:name>) ...- <free:whole_mib> MiB free", kind="device"),
    Pattern(b"llama_", "tensors from <model_path:rest> (version", kind="model"),
    Pattern(
        b"llama_",
        "llama_model_loader: - kv <index:count>: <key:word> <type:gguf> = <value:rest>",
        kind="entry",
    ),
    Pattern(b"print_info: ", "print_info: <key:words> = <value:rest>", kind="entry"),
    Pattern(b"print_meta: ", "print_meta: <key:words> = <value:rest>", kind="entry"),
    Pattern(
        b"iB",
        "load_tensors: <device:device> model buffer size = <model_buffer:mib> MiB",
        kind="weights",
        repeats="sum",
    ),
)

_CONTEXT = (
    Pattern(b"llama_", "llama_context: <key:word> = <value:word>", kind="context"),
    Pattern(b"llama_", "llama_new_context_with_model: <key:word> = <value:word>", kind="context"),
)

_SIZE = "size = <total:mib> MiB ( <slots:count> cells, <layers:count> layers, <sequences:count>"
_K, _V = "K (<k_type:word>): <k:mib> MiB", "V (<v_type:word>): <v:mib> MiB"
_R, _S = "R (<r_type:word>): <r:mib> MiB", "S (<s_type:word>): <s:mib> MiB"
_LATENT = "KV self size = <total:mib> MiB, c^KV (<latent_type:word>): <latent:mib> MiB"
_POOLS = (
    Pattern(b"llama_", "creating <next_pool:words> KV cache, size =", kind="next pool"),
    Pattern(b"iB", f"kv_cache...: {_SIZE}/ <streams:count> seqs), {_K}, {_V}", kind="pool", phase="pool"),
    Pattern(b"iB", f"kv_cache...: {_SIZE} seqs), {_K}, {_V}", kind="pool", phase="pool"),
    Pattern(b"iB", f"recurrent: {_SIZE} seqs...), {_R}, {_S}", kind="states", phase="pool"),
    Pattern(b"iB", f"KV self size = <total:mib> MiB, {_K}, {_V}", kind="self size", phase="pool"),
    Pattern(b"iB", f"{_LATENT}, kv^T: not used", kind="self size", phase="pool"),
    Pattern(
        b"iB",
        f"{_LATENT}, kv^T (<transposed_type:word>): <transposed:mib> MiB",
        kind="self size",
        phase="pool",
    ),
)

_BUFFERS = (
    Pattern(b"iB", ": <device:device> KV buffer size = <kv_buffer:mib> MiB", kind="buffer", repeats="sum"),
    Pattern(b"iB", ": <device:device> RS buffer size = <state_buffer:mib> MiB", kind="buffer", repeats="sum"),
    Pattern(b"iB", ": <device:device> compute buffer size = <compute_buffer:mib> MiB", kind="buffer"),
    Pattern(b"iB", ": <device:device> output buffer size = <output_buffer:mib> MiB", kind="buffer"),
)

_KINDS = {"non-SWA": "full", "SWA": "swa"}
_MAX_METADATA = 2000


class LlamaCppStartup(Startup):
    """Models and contexts in the order in which the server makes them."""

    def __init__(self) -> None:
        super().__init__()
        self._contexts = 0
        self._next_pool = "kv"
        self._reads_served_model = True

    def take(self, said: Statement) -> None:
        """Lines of models, contexts, pools and buffers; the rest as everywhere."""
        match said.pattern.kind:
            case "device":
                self.keep(replace(said.reading(name), rank=said.text("device")) for name in ("gpu", "free_bytes"))
            case "model":
                path = self.metadata.setdefault("model_path", said.text("model_path"))
                self._reads_served_model = path == said.text("model_path")
            case "entry":
                self._take_entry(said)
            case "context":
                self._contexts += said.text("key") == "n_ctx"
                self.resolved.setdefault(said.text("key"), parse_value(said.text("value")))
            case "next pool":
                self._next_pool = _KINDS.get(said.text("next_pool"), said.text("next_pool").lower())
            case "pool" | "states" | "self size":
                self._take_pool(said)
            case "weights" | "buffer":
                self._take_buffer(said)
            case _:
                super().take(said)

    @property
    def _context(self) -> int:
        return max(0, self._contexts - 1)

    def _take_entry(self, said: Statement) -> None:
        """A GGUF key or a hyperparameter of the served model."""
        if self._reads_served_model and len(self.metadata) < _MAX_METADATA:
            value = said.text("value")
            self.metadata[said.text("key")] = value if said.text("type") == "str" else parse_value(value)

    def _take_pool(self, said: Statement) -> None:
        kind, self._next_pool = self._next_pool, "kv"
        if said.pattern.kind == "self size":
            self.pools = [pool for pool in self.pools if pool.context != self._context]
        parts = {name.removesuffix("_bytes"): said.reading(name) for name in said.values if name.endswith("_bytes")}
        self.add_pool(
            Pool(
                kind="state" if said.pattern.kind == "states" else kind,
                line=said.line,
                context=self._context,
                slots=said.whole("slots"),
                layers=said.whole("layers"),
                sequences=said.whole("sequences"),
                streams=said.whole("streams"),
                total=parts.pop("total"),
                parts=parts,
                types={n.removesuffix("_type"): said.text(n) for n in said.values if n.endswith("_type")},
            )
        )

    def _take_buffer(self, said: Statement) -> None:
        """Bytes of one buffer; its device stands for the rank."""
        name = next(name for name in said.values if name.endswith("_bytes"))
        later = self._context > 0 if said.pattern.kind == "buffer" else not self._reads_served_model
        reading = replace(said.reading(name), rank=said.text("device"))
        self.keep([replace(reading, name=f"draft_{name}") if later else reading], said.pattern.repeats)


LOG_FORMAT = LogFormat(
    engine="llama.cpp",
    patterns=(*_MODEL, *_CONTEXT, *_POOLS, *_BUFFERS),
    model_keys=("general.name", "model_path"),
    startup=LlamaCppStartup,
)
