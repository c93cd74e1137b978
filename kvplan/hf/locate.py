"""From a path to the decoder: read the JSON, find the language model inside a wrapper, and name its model_type.

Vision, audio and talker parts are never read: they hold no KV cache of the text decoder.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kvplan.errors import BadInput
from kvplan.hf.fields import shown

CONFIG_NAME = "config.json"
_MOST_BYTES = 8 * 2**20
_MOST_DEPTH = 40
DECODER_KEYS = ("text_config", "llm_config", "language_config", "thinker_config", "llm", "language_model_config")
"""Where a wrapper keeps its decoder, in the order in which they win."""
_NATIVE = {
    "dim": "hidden_size", "n_layers": "num_hidden_layers", "n_heads": "num_attention_heads",
    "inter_dim": "intermediate_size", "moe_inter_dim": "moe_intermediate_size",
    "n_dense_layers": "first_k_dense_replace", "n_activated_experts": "num_experts_per_tok",
    "n_expert_groups": "n_group", "n_limited_groups": "topk_group",
}  # fmt: skip
"""Names of DeepSeek's own inference configs."""
_ARCHITECTURE_TAILS = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel", "Model", "ForSeq2SeqLM")


def read_json(path: Path) -> Mapping[str, Any]:
    """A JSON object of at most 8 MiB; anything else is one line that names the file."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise BadInput(f"{path}: {path.stat().st_size} bytes; a config has at most {_MOST_BYTES}")
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: is not UTF-8 text (byte {error.start})") from error
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}: line {error.lineno}: is not JSON: {error.msg}") from error
    except (RecursionError, ValueError) as error:
        raise BadInput(f"{path}: is not a JSON object that can be a config ({type(error).__name__})") from error
    if not isinstance(value, dict):
        raise BadInput(f"{path}: holds {shown(value)}, not a JSON object")
    return value


def config_path(path: Path) -> Path:
    """The config.json of a file or directory argument."""
    file = path / CONFIG_NAME if path.is_dir() else path
    if not file.is_file():
        raise BadInput(f"{file}: no such file; give a config.json or the directory that holds one")
    return file


def native_names(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """DeepSeek's own inference/config*.json (no model_type, `dim` and `n_layers`) under HF's names; others unchanged.

    They are MLA, with an indexer where index_head_dim is there (DeepSeek-V3 and V3.2 repositories).
    """
    if (
        config.get("model_type")
        or config.get("architectures")
        or not {"dim", "n_layers", "kv_lora_rank"} <= config.keys()
    ):
        return config
    model_type = "deepseek_v32" if config.get("index_head_dim") else "deepseek_v3"
    return {"model_type": model_type, **{_NATIVE.get(k, k): v for k, v in config.items() if k != "dtype"}}


def decoder_path(config: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """The keys that lead to the decoder: () for a flat file, ("thinker_config", "text_config") for an omni model."""
    path: tuple[str, ...] = ()
    node: Mapping[str, Any] = config
    while len(path) < 4:
        key = next((k for k in DECODER_KEYS if node.get(k) is not None), None)
        if key is None:
            return path
        if not isinstance(node[key], Mapping):
            raise BadInput(f"{where}: {key}: {shown(node[key])} is not an object")
        path, node = (*path, key), node[key]
    raise BadInput(f"{where}: {'.'.join(path)}: nested deeper than any known model")


def follow(config: Mapping[str, Any], path: Iterable[str]) -> Mapping[str, Any]:
    """The object at the end of a path of keys."""
    for key in path:
        config = config[key]
    return config


def squash(name: str) -> str:
    """A model_type or architecture without what spellings differ in: DeepseekV3ForCausalLM -> deepseekv3."""
    for tail in _ARCHITECTURE_TAILS:
        name = name.removesuffix(tail)
    return name.lower().replace("_", "").replace("-", "").replace(".", "")
