"""vLLM's flags as engine_args: read, checked, refused with what would be right."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.engines.vllm.args import DEFAULTS, NO_EFFECT, Args, Speculation, arg_names, read_args
from kvplan.errors import BadInput, UnknownName
from tests.engines.vllm_models import LLAMA_8B


def test_nothing_given_is_the_default() -> None:
    """None counts as not given."""
    assert read_args({}) == read_args({"enable_prefix_caching": None}) == DEFAULTS


@pytest.mark.parametrize("name", sorted(arg_names()))
def test_every_flag_is_read_under_its_own_name(name: str) -> None:
    """Dashes and underscores are the same."""
    given = {
        "usage": "llm", "dtype": "float16", "num_gpu_blocks_override": 7, "attention_backend": "triton_attn",
        "kv_cache_dtype_skip_layers": "0,1", "mamba_cache_mode": "align", "mamba_cache_dtype": "float32",
        "mamba_ssm_cache_dtype": "float32", "mamba_block_size": 256, "performance_mode": "throughput",
        "speculative_config": {"method": "ngram", "num_speculative_tokens": 4},
    }  # fmt: skip
    value = given.get(name, False)

    read = read_args({"--" + name.replace("_", "-"): value})

    assert getattr(read, name) != getattr(DEFAULTS, name)
    assert read == Args(**{name: getattr(read, name)})


@pytest.mark.parametrize("name", sorted(NO_EFFECT))
def test_flags_that_leave_the_cache_alone_are_taken(name: str) -> None:
    """They change nothing."""
    assert read_args({name: "anything"}) == DEFAULTS


def test_speculation_keeps_a_draft_model_that_is_known() -> None:
    """A name alone says nothing of its layers."""
    given: dict[str, Any] = {"method": "eagle3", "num_speculative_tokens": 3, "model": LLAMA_8B}

    assert read_args({"speculative_config": given}).speculative_config == Speculation(
        method="eagle3", num_speculative_tokens=3, draft=LLAMA_8B
    )
    named = read_args({"speculative_config": {**given, "model": "a/name"}}).speculative_config
    assert named is not None
    assert named.draft is None


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"enable_prefix_caching": "yes"}, "engine_args.enable_prefix_caching: 'yes' is not true or false"),
        ({"num_gpu_blocks_override": 0}, "0 is not a whole number above 0"),
        ({"num_gpu_blocks_override": True}, "True is not a whole number above 0"),
        ({"mamba_cache_mode": "some"}, "'some' is not one of none, align, all"),
        ({"attention_backend": ""}, "'' is not a name"),
        ({"kv_cache_dtype_skip_layers": 3}, "3 is not a list of layer indices"),
        ({"speculative_config": {"num_speculative_tokens": 1}}, "is not a mapping with `method`"),
        ({"speculative_config": {"method": "mtp"}}, "None is not a whole number above 0"),
    ],
)
def test_refuses_values(args: dict[str, Any], said: str) -> None:
    """One line: the flag, the value, what would be right."""
    with pytest.raises(BadInput) as error:
        read_args(args)
    assert said in str(error.value)


def test_an_unknown_flag_names_its_neighbours() -> None:
    """A misspelt flag must not be dropped in silence."""
    with pytest.raises(UnknownName, match="enable_prefix_caching"):
        read_args({"enable_prefix_cacheing": True})
