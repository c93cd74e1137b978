"""kvplan's own MLA decode kernel in Triton: split-KV over paged and contiguous caches, in bf16, fp8 and fp8_ds_mla.

Absorbed form: queries are already in latent space, the result is the latent before W_UV. The scale is that of the
unabsorbed head, 1/sqrt(qk_nope + qk_rope) (times mscale^2 under YaRN), never 1/sqrt(512 + 64).

Correctness is tested under Triton's interpreter against float64, and the device code is compiled offline for sm_80,
sm_90 and sm_100. Neither runs on a GPU, so on one, check first that results agree there too, for each tile of
`triton_mla.configs.TILES` and most of all with descriptors (the last, partly written tile); then what `configs` lists.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from kvplan.errors import BadInput, Unsupported
from kvplan.validate.kernels import Launch, Problem
from kvplan.validate.kernels.triton_mla import configs
from kvplan.validate.kernels.triton_mla.configs import DecodePlan, DecodeShape, DeviceProperties

if TYPE_CHECKING:
    from kvplan.validate.kernels.triton_mla.launch import DecodeInputs

_MIN_CAPABILITY = (8, 0)


@dataclass(frozen=True, slots=True)
class _Interpreter:
    """The device whose plan the interpreter follows: an H200, so that descriptors are among what it runs."""

    major: int = 9
    minor: int = 0
    multi_processor_count: int = 132
    shared_memory_per_block_optin: int = 232_448
    shared_memory_per_multiprocessor: int = 233_472


def properties(device: torch.device) -> DeviceProperties:
    """Those of a GPU; the interpreter's on a CPU."""
    if device.type != "cuda":
        return _Interpreter()
    return cast("DeviceProperties", torch.cuda.get_device_properties(device))


def _cuda_refusal(device: str) -> str | None:
    if not torch.cuda.is_available():
        return "no CUDA device"
    if torch.version.hip:
        return "written for NVIDIA's matrix instructions, untried on ROCm"
    capability = torch.cuda.get_device_capability(device)
    return None if capability >= _MIN_CAPABILITY else f"needs compute capability 8.0, not {capability}"


def _inputs(problem: Problem) -> DecodeInputs:
    """A problem as the kernel takes it; a cache whose sessions lie in order needs no block table."""
    from kvplan.validate.kernels.triton_mla.launch import DecodeInputs

    cache = problem.cache
    return DecodeInputs(
        q_latent=problem.query[..., : problem.latent_dim],
        q_rope=problem.query[..., problem.latent_dim :],
        cache=cache.blocks,
        seq_lens=cache.lengths,
        block_table=None if cache.in_order else cache.block_table,
        softmax_scale=problem.softmax_scale,
        kv_dtype=cache.record.kv_dtype,
    )


def _plan(problem: Problem, inputs: DecodeInputs) -> DecodePlan:
    """Splits for the sessions as they are now; they may grow, splits only get longer."""
    shape = replace(inputs.shape, max_seq_len_tokens=int(problem.cache.lengths.max()))
    return configs.plan(shape, properties(problem.query.device))


@dataclass(frozen=True, slots=True)
class TritonBackend:
    """The kernel as a backend of `validate`."""

    name: str = "triton"

    def available(self, device: str) -> str | None:
        """None where it can run on `device` (such as `cuda`, `cuda:1`, `cpu`), else why not, in one line."""
        if find_spec("triton") is None:
            return "triton is not installed: pip install 'kvplan[validate]'"
        if device.startswith("cuda"):
            return _cuda_refusal(device)
        from kvplan.validate.kernels.triton_mla.launch import INTERPRETED

        return None if INTERPRETED else f"triton compiles for CUDA, not for {device}"

    def missing(self) -> str | None:
        """`available` on the machine's first GPU, or on its CPU if it has none."""
        return self.available("cuda" if torch.cuda.is_available() else "cpu")

    def refusal(self, problem: Problem) -> str | None:
        """What the launch, or the choice of a tile, would raise."""
        try:
            _plan(problem, _inputs(problem))
        except (BadInput, Unsupported) as error:
            return str(error)
        return None

    def prepare(self, problem: Problem) -> Launch:
        """Plan, views, descriptors, and a first run, in which triton compiles; each run allocates its results."""
        from kvplan.validate.kernels.triton_mla.launch import prepare

        inputs = _inputs(problem)
        step = prepare(inputs, _plan(problem, inputs))
        step()
        return lambda: step()[0]

    def scratch_bytes(self, problem: Problem) -> int:
        """Output, log-sum-exp, and the partial results of the splits."""
        inputs = _inputs(problem)
        row_bytes = configs.LATENT_DIM * problem.query.element_size() + configs.FP32_BYTES
        return inputs.shape.batch * inputs.shape.rows * row_bytes + _plan(problem, inputs).scratch_bytes

    def plan(self, shape: DecodeShape, device_properties: DeviceProperties) -> DecodePlan:
        """Tile, splits and scratch of a shape; `Unsupported` where no tile fits the device."""
        return configs.plan(shape, device_properties)

    def decode(
        self,
        q_latent: Tensor,
        q_rope: Tensor,
        cache: Tensor,
        seq_lens: Tensor,
        block_table: Tensor | None,
        *,
        softmax_scale: float,
        kv_dtype: str,
        kv_scale: float = 1.0,
    ) -> tuple[Tensor, Tensor]:
        """One step: out [batch, query tokens, heads, 512] as the queries and lse [batch, query tokens, heads] in fp32.

        Arguments as in `launch.DecodeInputs`. A row that sees no token gets zeros and -inf. `Unsupported` where it
        cannot run on the queries' device. It waits for nothing on the device, so a CUDA graph can capture it.
        """
        refusal = self.available(str(q_latent.device))
        if refusal:
            raise Unsupported(f"the Triton MLA kernel cannot run: {refusal}")
        from kvplan.validate.kernels.triton_mla.launch import DecodeInputs, prepare

        inputs = DecodeInputs(
            q_latent=q_latent,
            q_rope=q_rope,
            cache=cache,
            seq_lens=seq_lens,
            block_table=block_table,
            softmax_scale=softmax_scale,
            kv_dtype=kv_dtype,
            kv_scale=kv_scale,
        )
        return prepare(inputs, self.plan(inputs.shape, properties(q_latent.device)))()


BACKEND = TritonBackend()
