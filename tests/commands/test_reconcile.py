"""kvplan reconcile: whole screens, logs from files, standard input and a server, the site file, the exit status."""

from __future__ import annotations

import gzip
import io
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.commands.conftest import Run, same_as_screen
from tests.startups import blocks, concurrency, ledger, pool, tokens

CAPTURED = Path(__file__).parents[1] / "logs" / "captured"
LLAMA = CAPTURED / "vllm-0.19.0-llama-3.1-8b-tp2.log"
REFUSED = CAPTURED / "vllm-0.15.2-qwen3-coder-30b-pp2-refused.log"


def _start_up(*lines: str, **flags: object) -> str:
    """A vLLM 0.19 log of the model in grouped.yaml."""
    stated = {
        "model": "grouped.yaml",
        "tensor_parallel_size": 1,
        "kv_cache_dtype": "bf16",
        "max_model_len": 8192,
        **flags,
    }
    head = "(APIServer pid=1) INFO [api_server.py:1] vLLM API server version 0.19.0"
    return "\n".join([head, f"(APIServer pid=1) INFO [utils.py:1] non-default args: {stated!r}", *lines, ""])


FITTING = _start_up(pool("8.00"), blocks(4096), tokens(65_536), concurrency(8192, 8.0))
CAUSED = _start_up(pool("8.00"), tokens(16_000), num_gpu_blocks_override=1000)
UNKNOWN = _start_up(pool("8.00"), tokens(50_000))
MODEL = "grouped.yaml"


@pytest.mark.parametrize(
    ("name", "log"), [("ledger", LLAMA), ("refused", REFUSED), ("llamacpp", CAPTURED / "ollama-deepseek-671b.log")]
)
def test_screen(run: Run, name: str, log: Path) -> None:
    shown = run(f"reconcile {log}", 100)

    assert shown.status == 0
    same_as_screen(f"reconcile-{name}-100", shown.out)


@pytest.mark.parametrize(
    ("text", "status"),
    [(FITTING, 0), (CAUSED, 0), (UNKNOWN, 3), (_start_up(), 3)],
    ids=["fits", "cause", "none", "nothing"],
)
def test_check_exits_with_3_where_a_figure_has_no_known_cause_or_nothing_is_compared(
    run: Run, text: str, status: int
) -> None:
    Path("a.log").write_text(text)

    assert run(f"reconcile a.log {MODEL} --check").status == status
    assert run(f"reconcile a.log {MODEL}").status == 0


def test_json_has_the_documented_keys(run: Run) -> None:
    from kvplan.documents import reconcile

    Path("a.log").write_text(CAUSED)
    found = json.loads(run(f"reconcile a.log {MODEL} --format json").out)

    documented = str(reconcile.answer.__doc__)
    assert all(f"`{key}`" in documented for key in (*found, *found["comparisons"][0]))
    assert (found["command"], found["engine"], found["engine_version"]) == ("reconcile", "vllm", "0.19.0")
    assert (found["model"], found["tp"], found["context"], found["ok"]) == ("grouped", 1, 8192, True)
    (kv_tokens,) = (c for c in found["comparisons"] if c["quantity"] == "kv_tokens")
    assert (kv_tokens["observed"], kv_tokens["predicted"], kv_tokens["agrees"], kv_tokens["line"]) == (
        16_000,
        65_536,
        False,
        4,
    )
    assert kv_tokens["cause"].startswith("num_gpu_blocks_override=1000 ")


def test_a_log_comes_through_standard_input(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(FITTING.encode())))

    assert "3 of 3 figures are as predicted" in run(f"reconcile - {MODEL}").out


def test_a_log_may_be_compressed(run: Run) -> None:
    Path("a.log.gz").write_bytes(gzip.compress(FITTING.encode()))

    assert "3 of 3 figures are as predicted" in run(f"reconcile a.log.gz {MODEL}").out


METRICS = """\
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",gpu_memory_utilization="0.9",\
kv_cache_max_concurrency="8.0",kv_cache_size_tokens="65536",num_gpu_blocks="4096",num_gpu_blocks_override="None"} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="org/my-model"} 0.25
"""


class _Metrics(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = METRICS.encode() if self.path == "/metrics" else b""
        self.send_response(200 if body else 404)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Metrics) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_address[1]}"
        listening.shutdown()
        thread.join()


@pytest.mark.parametrize("path", ["", "/metrics"])
def test_a_running_server_is_reconciled_by_its_metrics(run: Run, server: str, path: str) -> None:
    shown = run(f"reconcile --url {server}{path} {MODEL} --context 8k --engine-version 0.28 --check")

    assert shown.status == 0
    assert "3 of 3 figures are as predicted" in shown.out
    assert "the log states no GPU memory" in shown.err


def test_a_server_that_names_an_unknown_model_is_asked_for_it(run: Run, server: str) -> None:
    shown = run(f"reconcile --url {server}")

    assert shown.status == 1
    assert "the log's model 'org/my-model' is not bundled; say which it is: kvplan reconcile LOG MODEL" in shown.err


@pytest.mark.parametrize("line", ["reconcile", "reconcile a.log b --url http://127.0.0.1:1"])
def test_a_log_or_a_server_is_asked_for_but_not_both(run: Run, line: str) -> None:
    shown = run(line)

    assert shown.status == 2
    assert "give LOG, or --url and at most a MODEL" in " ".join(shown.err.split())


WEIGHED = _start_up(*ledger("72.00", "13.00", "2.50", "0.75"), pool("55.75"), gpu_memory_utilization=0.9)
GIVEN = {"weights": 13.0, "activation": 2.5, "non_torch": 0.75}


def test_a_plan_with_the_overheads_of_a_log_has_the_logs_pool(run: Run) -> None:
    Path("a.log").write_text(WEIGHED)
    assert run(f"reconcile a.log {MODEL} --gpu bare.yaml --calibrate site.yaml").status == 0

    line = "fit grouped.yaml --gpu bare.yaml --engine vllm@0.19 --context 8k --gpu-memory-utilization 0.9 --format json"
    budget = json.loads(run(f"{line} --overheads site.yaml").out)["budget"]
    lines = {entry["label"]: entry for entry in budget["lines"]}

    assert {label: entry["origin"] for label, entry in lines.items()} == dict.fromkeys(GIVEN, "given")
    assert {label: entry["bytes"] for label, entry in lines.items()} == {k: round(v * 2**30) for k, v in GIVEN.items()}
    assert budget["kv_pool_bytes"] == pytest.approx(55.75 * 2**30, abs=0.02 * 2**30)


def test_the_users_own_figures_go_before_those_of_the_site(run: Run) -> None:
    Path("site.yaml").write_text("overheads: {activation: 1, non_torch: 2}\n")
    line = "fit grouped.yaml --gpu bare.yaml --context 8k --overheads site.yaml --activation 1GiB --format json"
    lines = {entry["label"]: entry["bytes"] for entry in json.loads(run(line).out)["budget"]["lines"]}

    assert (lines["activation"], lines["non_torch"]) == (2**30, 2)


def test_a_real_log_calibrates_a_plan_to_its_own_pool(run: Run) -> None:
    run(f"reconcile {LLAMA} --calibrate site.yaml")
    line = "fit llama-3.1-8b --gpu h100 --tp 2 --engine vllm@0.19.0 --context 8192 --gpu-memory-utilization 0.95"
    budget = json.loads(run(f"{line} --overheads site.yaml --format json").out)["budget"]

    assert budget["kv_pool_bytes"] == pytest.approx(63.76 * 2**30, abs=0.05 * 2**30)


def test_a_log_without_overheads_calibrates_nothing(run: Run) -> None:
    Path("a.log").write_text(FITTING)
    shown = run(f"reconcile a.log {MODEL} --calibrate site.yaml")

    assert shown.status == 1
    assert "a.log: states no overheads" in shown.err
    assert not Path("site.yaml").exists()
