from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvplan import catalog
from kvplan.catalog import dump_model, gpu_names, load_gpu, load_model, model_names, read_spec
from kvplan.errors import BadInput, KvplanError, MissingExtra, UnknownName
from kvplan.gpu import GpuSpec
from kvplan.model import ModelSpec

TOY = """name: toy
source: a test
model_type: toy
torch_dtype: bfloat16
hidden_size: 64
vocab_size: 100
max_position_embeddings: 4096
layer_groups:
  - layers: 0-2
    attention:
      - kind: mla
        num_attention_heads: 8
        kv_lora_rank: 512
        qk_rope_head_dim: 64
        qk_nope_head_dim: 128
        v_head_dim: 128
hub_ids: [org/Toy-7B, other/toy]
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVPLAN_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of bundled specs with one model, `toy`."""
    folder = tmp_path / "model_specs"
    folder.mkdir()
    (folder / "toy.yaml").write_text(TOY)
    monkeypatch.setattr(catalog, "MODEL_FOLDER", folder)
    catalog._bundled_model.cache_clear()
    catalog._index.cache_clear()
    return folder


@pytest.fixture
def importer(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Stands for the Hugging Face importer; holds the paths that it was given."""
    asked: list[Path] = []
    monkeypatch.setitem(
        sys.modules, "kvplan.hf", SimpleNamespace(import_config=lambda path: asked.append(path) or "imported")
    )
    return asked


@pytest.mark.parametrize("text", ["h100", "H100", "h100_sxm", "NVIDIA H100 80GB HBM3", " h100 "])
def test_a_gpu_is_found_by_name_and_by_spelling(text: str) -> None:
    assert load_gpu(text).name == "h100"


def test_a_gpu_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "name: mine\nvendor: v\narchitecture: a\nmemory_bytes: 8589934592\nsources: {memory_bytes: label}\n"
    )
    assert load_gpu(str(path)).memory_bytes == 2**33


@pytest.mark.parametrize(
    "text", ["absent.yaml", "./absent", "/nowhere/at-all.yaml", "~/kvplan-absent.yaml", ".", "../gpus/h100"]
)
def test_a_path_that_holds_no_gpu_is_one_line(text: str) -> None:
    with pytest.raises(BadInput, match=r"cannot be read|is not a regular file"):
        load_gpu(text)


@pytest.mark.parametrize("text", ["", "h9000", "x" * 10_000, "nul\0", "né"])
def test_any_other_text_is_an_unknown_gpu(text: str) -> None:
    with pytest.raises(UnknownName, match="unknown GPU"):
        load_gpu(text)


@pytest.mark.parametrize("text", ["toy", "TOY", "org/toy-7b", "Other/Toy"])
def test_a_model_is_found_by_name_and_by_hub_id(models: Path, text: str) -> None:
    assert load_model(text).name == "toy"


def test_a_model_is_read_from_a_file(models: Path, tmp_path: Path) -> None:
    (tmp_path / "other.yml").write_text(TOY.replace("name: toy", "name: other"))
    assert load_model(str(tmp_path / "other.yml")).name == "other"


@pytest.mark.parametrize("name", ["config.json", "other.json", "."])
def test_a_config_or_its_folder_goes_to_the_importer(
    models: Path, tmp_path: Path, importer: list[Path], name: str
) -> None:
    assert load_model(str(tmp_path / name)) == "imported"
    assert importer == [tmp_path / name]


def test_a_bundled_name_wins_over_a_folder_of_that_name(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "toy").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load_model("toy").name == "toy"


def test_an_unknown_model_is_refused_with_near_matches(models: Path) -> None:
    with pytest.raises(UnknownName, match=r"unknown model 'toi'; did you mean toy"):
        load_model("toi")


def test_an_unknown_hub_id_names_the_extra(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(
        MissingExtra, match=r"unknown model 'org/Toy-8B'; did you mean org/Toy-7B.*pip install 'kvplan\[hub\]'"
    ):
        load_model("org/Toy-8B")


def test_a_hub_id_is_fetched_where_the_extra_is_installed(
    models: Path, importer: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = []

    def download(hub_id: str, name: str) -> str:
        fetched.append((hub_id, name))
        if name == "hf_quant_config.json":
            raise FileNotFoundError(name)
        return f"/hub/{name}"

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(hf_hub_download=download))
    assert load_model("new/model") == "imported"
    assert fetched == [("new/model", "config.json"), ("new/model", "hf_quant_config.json")]
    assert importer == [Path("/hub/config.json")]


def test_a_hub_that_fails_is_one_line(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(hub_id: str, name: str) -> str:
        raise OSError("offline")

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(hf_hub_download=download))
    with pytest.raises(BadInput, match=r"new/model: config\.json cannot be fetched: offline"):
        load_model("new/model")


def test_the_second_reading_comes_from_the_cache(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text(TOY)
    first = read_spec(path, ModelSpec)
    monkeypatch.setitem(sys.modules, "kvplan.specfile", None)
    assert read_spec(path, ModelSpec) == first
    path.write_text(TOY.replace("512", "256"))
    with pytest.raises(ImportError):
        read_spec(path, ModelSpec)


@pytest.mark.parametrize("wrong", [{"name": 1}, [], None, {"layer_groups": [{"attention": [{"kind": "no"}]}]}])
def test_an_entry_of_another_shape_is_read_anew(tmp_path: Path, wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text(TOY)
    monkeypatch.setattr(catalog, "recall", lambda key, made_from: wrong)
    assert read_spec(path, ModelSpec).name == "toy"


def test_the_list_of_hub_ids_follows_the_folder(models: Path) -> None:
    assert load_model("org/toy-7b").name == "toy"
    (models / "new.yaml").write_text(TOY.replace("name: toy", "name: new").replace("org/Toy-7B", "org/New"))
    catalog._index.cache_clear()
    catalog._stems.cache_clear()
    assert load_model("org/new").name == "new"
    assert model_names() == ("new", "toy")


def test_a_dumped_model_is_a_spec_again(models: Path, tmp_path: Path) -> None:
    dump_model(load_model("toy"), tmp_path / "again.yaml")
    assert (tmp_path / "again.yaml").read_text() == TOY
    assert load_model(str(tmp_path / "again.yaml")) == load_model("toy")


@pytest.mark.parametrize("name", model_names())
def test_a_bundled_model_bears_the_name_of_its_file(name: str) -> None:
    assert load_model(name).name == name


LOADS = """
import sys
from kvplan.catalog import load_gpu
load_gpu({!r})
print({{"yaml", "pydantic", "numpy"}} & set(sys.modules))
"""


@pytest.mark.parametrize("text", ["h100", "NVIDIA A100-SXM4-80GB"])
def test_what_was_read_once_needs_neither_yaml_nor_pydantic(text: str) -> None:
    script = [sys.executable, "-c", LOADS.format(text)]
    runs = [subprocess.run(script, check=True, capture_output=True, text=True).stdout.strip() for _ in range(2)]
    assert "yaml" in runs[0]
    assert runs[1] == "set()"


def test_every_error_is_one_that_a_user_can_cause(tmp_path: Path) -> None:
    for content in (b"", b"[]", b"\xff", b"{", b"name: x", b"a: &a [*a]"):
        (tmp_path / "g.yaml").write_bytes(content)
        with pytest.raises(KvplanError, match=r"g\.yaml: "):
            read_spec(tmp_path / "g.yaml", GpuSpec)


def test_names_are_sorted() -> None:
    assert list(gpu_names()) == sorted(gpu_names())
