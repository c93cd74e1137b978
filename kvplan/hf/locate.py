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
_SIZES = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_transformer_layers", "layers_block_type")
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
