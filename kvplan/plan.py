"""Scenario -> Plan: the one function that every verb calls.

A plan holds what the engine will allocate (`layout`, `capacity`), what the memory goes to (`budget`), and the answers:
how many sessions at once, how long one can be, how fast a step is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kvplan.budget import Budget, given_pool
from kvplan.compare import number
from kvplan.engines import engine as find_engine
from kvplan.engines.base import Capacity, Deployment, Engine, Layout
from kvplan.errors import BadInput, UnknownName
from kvplan.model import ModelSpec, cost_line, session_bytes
from kvplan.parallel import Parallelism

if TYPE_CHECKING:
    from kvplan.gpu import GpuSpec
    from kvplan.roofline import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Everything that a question states; None is for the engine or the plan to decide.

    `engine` may carry a version: `vllm@0.19`. `context`: the engine's maximum model length in tokens, the model's own
    where None. `given_bytes`: measured budget lines by label.
    """

    model: ModelSpec
    gpu: GpuSpec
    gpus: int | None = None
    engine: str = "vllm"
    tp: int | None = None
    pp: int = 1
    dp: int = 1
    dcp: int = 1
    ep: int = 1
    context: int | None = None
    kv_dtype: str = "auto"
    kv_pool_bytes: int | None = None
    gpu_memory_utilization: float | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    block_size: int | None = None
    engine_args: Mapping[str, Any] = field(default_factory=dict)
    given_bytes: Mapping[str, int] = field(default_factory=dict)

    def parallelism(self) -> Parallelism:
        """Ranks along each axis; the engine's own axis takes the GPUs that the others leave."""
        tp, pp, dp = self.tp or 1, self.pp, self.dp
        if self.gpus and self.tp is None:
            left = max(self.gpus // (pp * dp), 1)
            if pp == 1 and find_engine(self.engine.partition("@")[0]).gpu_axis == "pp":
                pp = left
            else:
                tp = left
        if self.gpus and tp * pp * dp != self.gpus:
            raise BadInput(f"gpus: {self.gpus} is not tp {tp} x pp {pp} x dp {dp} = {tp * pp * dp}")
        return Parallelism(tp=tp, pp=pp, dp=dp, dcp=self.dcp, ep=self.ep)

    def deployment(self) -> tuple[Engine, Deployment]:
        """The engine, and this scenario in its words."""
        name, _, version = self.engine.partition("@")
        engine = find_engine(name)
        for flag in self.engine_args:
            if flag.replace("-", "_").lstrip("_") not in engine.args:
                raise UnknownName.of(f"{engine.name} flag", flag, engine.args, where="engine_args: ")
        length = self.context or self.model.max_position_embeddings
        if length is None:
            raise BadInput(f"context: {self.model.name} states no maximum length; give --context")
        return engine, Deployment(
            spec=self.model,
            gpu=self.gpu,
            max_model_len=length,
            parallel=self.parallelism(),
            version=version or None,
            kv_dtype=self.kv_dtype,
            block_size=self.block_size,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            memory_fraction=self.gpu_memory_utilization,
            engine_args=self.engine_args,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One answered scenario. Capacity figures are of one rank; with data parallelism each replica has its own pool."""

    scenario: Scenario
    engine: Engine
    deployment: Deployment
    layout: Layout
    budget: Budget
    capacity: Capacity
    shortfall_bytes: int
    max_batch: int
    max_context_tokens: int
    session_bytes_reserved: int
    session_bytes_logical: int
    bytes_per_token_per_rank: int | float
    fixed_bytes_per_session_per_rank: int
    step: Step | None
    notes: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether the engine starts with this maximum length."""
        return self.shortfall_bytes == 0

    @property
    def batch(self) -> int:
        """The batch at which speed is stated: the most that runs at once, over all replicas."""
        return self.max_batch * self.deployment.parallel.dp

    @property
    def tokens_per_s(self) -> float | None:
        """Decode speed of all replicas at `batch`; None where nothing fits or the GPU's peaks are unknown."""
        return self.batch / self.step.seconds if self.step else None


def plan(scenario: Scenario) -> Plan:
    """Answer one scenario; raises `Unsupported` where the engine refuses it, `BadInput` where it makes no sense."""
    engine, deployment = scenario.deployment()
    layout = engine.layout(deployment)
    if scenario.kv_pool_bytes is None:
        budget = engine.budget(deployment, layout, scenario.given_bytes)
    else:
        budget = given_pool(scenario.kv_pool_bytes, deployment.gpu.memory_bytes)
    return _answer(scenario, engine, deployment, layout, budget)


def _answer(scenario: Scenario, engine: Engine, deployment: Deployment, layout: Layout, budget: Budget) -> Plan:
    pool, tokens, spec = budget.kv_pool_bytes, deployment.max_model_len, deployment.spec
    fmt = layout.kv_format
    line = cost_line(spec, tokens, fmt, deployment.parallel)
    max_batch = int(layout.max_batch(pool, tokens))
    return Plan(
        scenario=scenario,
        engine=engine,
        deployment=deployment,
        layout=layout,
        budget=budget,
        capacity=layout.capacity(pool),
        shortfall_bytes=max(0, layout.needed_bytes(tokens) - budget.remainder_bytes),
        max_batch=max_batch,
        max_context_tokens=layout.max_context(pool),
        session_bytes_reserved=int(layout.session_bytes(tokens)),
        session_bytes_logical=int(session_bytes(spec, tokens, fmt, deployment.parallel)),
        bytes_per_token_per_rank=number(line.bytes_per_token),
        fixed_bytes_per_session_per_rank=line.fixed_bytes,
        step=_step(deployment, layout, max_batch),
        notes=(*layout.notes, *_notes(deployment)),
    )


def _step(deployment: Deployment, layout: Layout, batch: int) -> Step | None:
    from kvplan.roofline import decode_step

    return decode_step(deployment, layout.kv_format, batch) if batch else None


def _notes(deployment: Deployment) -> tuple[str, ...]:
    dp = deployment.parallel.dp
    notes = []
    if dp > 1:
        notes.append(f"{dp} replicas hold different sessions: the system holds {dp} times the tokens of one rank.")
    return tuple(notes)


def at_context(scenario: Scenario, tokens: int) -> Scenario:
    """The same scenario with another maximum length."""
    return replace(scenario, context=tokens)
