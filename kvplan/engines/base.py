"""What every engine answers, and the words for it.

An engine turns a `Deployment` into a `Layout`: how it cuts the cache into pages, whatever the size of the pool. A
layout turns bytes of pool into blocks, tokens and sessions; those methods take ints or int64 arrays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, Protocol

from kvplan.errors import BadInput
from kvplan.parallel import SINGLE, Parallelism

if TYPE_CHECKING:
    from kvplan.arith import Ints
    from kvplan.budget import Budget
    from kvplan.gpu import GpuSpec
    from kvplan.model import ModelSpec
    from kvplan.storage import KvFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One model on one kind of GPU under one engine version.

    `max_model_len`: the engine's maximum context in tokens. `kv_dtype`: a name or `auto`, what the engine would choose.
    `memory_fraction`: gpu_memory_utilization, mem_fraction_static, free_gpu_memory_fraction: what this engine calls it.
    None means the engine's own default. `engine_args`: the engine's flags under its own names.
    """

    spec: ModelSpec
    gpu: GpuSpec
    max_model_len: int
    parallel: Parallelism = SINGLE
    version: str | None = None
    kv_dtype: str = "auto"
    block_size: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    memory_fraction: float | None = None
    engine_args: Mapping[str, Any] = field(default_factory=dict)


class DeploymentKey:
    """A deployment as a cheap cache key: the identity of its model, the values of all else.

    Hashing a whole model for each of many plans would cost more than the plans.
    """

    __slots__ = ("_values", "deployment")

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        d = deployment
        args = tuple(sorted((name, repr(value)) for name, value in d.engine_args.items()))
        self._values = (
            id(d.spec), id(d.gpu), d.max_model_len, d.parallel, d.version, d.kv_dtype, d.block_size, d.max_num_seqs,
            d.max_num_batched_tokens, args,
        )  # fmt: skip

    def __hash__(self) -> int:
        return hash(self._values)

    def __eq__(self, other: object) -> bool:
        # The key keeps its deployment alive, so two live keys of one id mean one object.
        return isinstance(other, DeploymentKey) and self._values == other._values


def choose(args: Mapping[str, Any], name: str, default: Any) -> Any:
    """An engine argument, or its default where it is absent or None."""
    value = args.get(name)
    return default if value is None else value


def whole(args: Mapping[str, Any], name: str, default: int | None) -> int | None:
    """An engine argument that counts something; `BadInput` for anything but a whole number above 0."""
    value = choose(args, name, default)
    if value is not None and (type(value) is not int or not 0 < value < 2**40):
        raise BadInput(f"engine_args: {name}: {value!r} is not a whole number above 0")
    return value


def share(args: Mapping[str, Any], name: str, default: str) -> Fraction:
    """An engine argument that is a ratio; `BadInput` for anything but a number above 0."""
    value = choose(args, name, default)
    if isinstance(value, bool) or not re.fullmatch(r"\d{1,9}(\.\d{1,18})?", str(value)) or not Fraction(str(value)):
        raise BadInput(f"engine_args: {name}: {value!r} is not a ratio above 0, such as {default}")
    return Fraction(str(value))


def switch(args: Mapping[str, Any], name: str, *, default: bool = False) -> bool:
    """An engine argument that is on or off; `BadInput` for anything else."""
    value = choose(args, name, default)
    if not isinstance(value, bool):
        raise BadInput(f"engine_args: {name}: {value!r} is not true or false")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What the engine prints for a pool: `kv_tokens` and `max_concurrency` exactly as this version computes them."""

    block_size: int
    num_blocks: int
    kv_tokens: int
    max_concurrency: float


class Layout(Protocol):
    """The cache as this engine version cuts it on one rank. Bytes and tokens are per rank."""

    @property
    def kv_dtype(self) -> str:
        """The KV dtype in force, after `auto`."""
        ...

    @property
    def kv_format(self) -> KvFormat:
        """How each role of cache tensor is stored under that dtype."""
        ...

    @property
    def block_size(self) -> int:
        """Tokens of one block (page), as the engine reports it."""
        ...

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one block over all layers of the fullest rank."""
        ...

    @property
    def max_num_seqs(self) -> int:
        """Most sessions that the scheduler runs at once, after the engine's defaults."""
        ...

    @property
    def max_num_batched_tokens(self) -> int:
        """Most tokens of one step, after the engine's defaults."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know of how this layout came about."""
        ...

    def capacity(self, pool_bytes: int) -> Capacity:
        """Blocks, tokens and concurrency at `max_model_len`, as printed."""
        ...

    def pool_bytes(self, kind: str, slots: int) -> int | None:
        """Bytes of one pool of `slots` slots as this engine's log names it (kv, full, swa, state); None without one."""
        ...

    def needed_bytes(self, tokens: int) -> int:
        """The least pool with which the engine starts at a maximum length of `tokens`."""
        ...

    def num_blocks(self, pool_bytes: Ints) -> Ints:
        """Blocks that fit into a pool."""
        ...

    def blocks_per_session(self, tokens: Ints) -> Ints:
        """Blocks that one running session of `tokens` tokens holds, over all groups."""
        ...

    def session_bytes(self, tokens: Ints) -> Ints:
        """Reserved bytes of one session: never below the logical bytes."""
        ...

    def max_batch(self, pool_bytes: Ints, tokens: Ints) -> Ints:
        """Sessions of `tokens` tokens that run at once: what the pool holds, and what the scheduler admits."""
        ...

    def max_context(self, pool_bytes: int, sessions: int = 1) -> int:
        """The longest context (not above the model's) at which `sessions` sessions fit; 0 where none does."""
        ...


class Engine(Protocol):
    """One engine. Every module of `kvplan.engines` exports one as `ENGINE`."""

    name: str
    default_version: str
    args: frozenset[str]
    """Names of `engine_args` that this engine knows; any other is an error, for a typo must not be ignored."""
    gpu_axis: Literal["tp", "pp"]
    """How it spreads a model over GPUs where nobody says."""

    def layout(self, deployment: Deployment) -> Layout:
        """How this engine cuts the cache; `Unsupported` with the engine's own reason where it refuses."""
        ...

    def budget(self, deployment: Deployment, layout: Layout, given_bytes: Mapping[str, int]) -> Budget:
        """One GPU's memory under this engine's own rule for what its memory fraction means.

        `given_bytes` replaces estimated lines by label (weights, activation, non_torch, cuda_graphs ...).
        """
        ...

    def flags(self, deployment: Deployment, max_num_seqs: int) -> str:
        """The command-line flags that start this engine as planned."""
        ...
