"""Parameter counts of default configs against the classes of transformers, on the meta device; run by hand.

`pytest -m heavy tests/hf/test_against_transformers.py` with transformers 5.24 and torch installed.
"""

from __future__ import annotations

import pytest

from kvplan.hf import spec_from_config
from kvplan.weights import params_total

pytestmark = pytest.mark.heavy

MODEL_TYPES = """
    llama mistral mixtral qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next qwen3_5_text gemma gemma2 gemma3_text gemma3n_text
    gemma4_text deepseek_v3 deepseek_v32 deepseek_v4 glm glm4 glm4_moe_lite glm_moe_dsa kimi_linear gpt_oss cohere
    cohere2 phi phi3 phimoe olmo olmo2 olmo3 olmoe granite granitemoe falcon_h1 falcon falcon_mamba mamba mamba2
    nemotron_h zamba zamba2 jamba lfm2 minimax minimax_m2 mistral4 ministral3 smollm3 starcoder2 stablelm gpt2 gpt_neo
    gpt_bigcode gpt_neox gptj opt bloom mpt persimmon exaone4 ernie4_5 ernie4_5_moe seed_oss apertus arcee afmoe hy_v3
    solar_open youtu llava llava_next qwen2_vl qwen2_5_vl qwen3_vl glm4v glm_ocr gemma3 idefics3 lfm2_vl cohere2_vision
    paddleocr_vl minimax_m3_vl muse_glimmer qwen2_audio voxtral video_llama_3 ernie4_5_vl_moe
"""


@pytest.mark.parametrize("model_type", MODEL_TYPES.split())
def test_a_default_config_has_as_many_parameters_as_its_class(model_type: str) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    autos = ("AutoModelForCausalLM", "AutoModelForImageTextToText", "AutoModelForSeq2SeqLM")
    config = transformers.AutoConfig.for_model(model_type)
    auto = next(a for a in (getattr(transformers, n) for n in autos) if type(config) in a._model_mapping)
    with torch.device("meta"):
        known = sum(p.numel() for p in auto.from_config(config).parameters())
    raw = config.to_dict() | {"torch_dtype": "bfloat16"}
    raw.pop("dtype", None)
    assert params_total(spec_from_config(raw, name=model_type, source="config.json")) == known
