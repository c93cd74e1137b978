"""Metrics are read from text and from a real server on loopback."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from kvplan.errors import BadInput
from kvplan.logs import fetch_metrics, parse_metrics
from kvplan.units import GIB

VLLM = """\
# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="True",engine="0",\
gpu_memory_utilization="0.92",kv_cache_max_concurrency="18.96",kv_cache_memory_bytes="None",\
kv_cache_size_tokens="621392",mamba_cache_mode="align",num_cpu_blocks="None",num_gpu_blocks="38837",\
num_gpu_blocks_override="None",sliding_window="None"} 1.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="Qwen/Qwen3-235B-A22B-Instruct-2507-FP8"} 0.62
vllm:num_requests_running{engine="0",model_name="Qwen/Qwen3-235B-A22B-Instruct-2507-FP8"} 7.0
"""
VLLM_V0 = """\
vllm:cache_config_info{block_size="16",cache_dtype="auto",cpu_offload_gb="0",gpu_memory_utilization="0.82",\
num_cpu_blocks="1024",num_gpu_blocks="573",num_gpu_blocks_override="573",swap_space_bytes="4294967296"} 1.0
vllm:gpu_cache_usage_perc{model_name="qwen3-32b"} 0.25
vllm:cpu_cache_usage_perc{model_name="qwen3-32b"} 0.0
"""
SGLANG = """\
sglang:max_total_num_tokens{engine_type="unified",model_name="m \\"q\\"",tp_rank="0",dp_rank="0"} 60000.0
sglang:max_total_num_tokens{engine_type="unified",model_name="m \\"q\\"",tp_rank="0",dp_rank="1"} 59000 1790347303000
sglang:page_size{tp_rank="0",dp_rank="0"} 64
sglang:weight_memory_usage_gb{tp_rank="0",dp_rank="0"} 20.25
sglang:kv_cache_memory_usage_gb{tp_rank="0",dp_rank="0"} 30.5
sglang:token_usage{tp_rank="0",dp_rank="0"} 0.05
sglang:swa_token_usage{tp_rank="0",dp_rank="0"} 1.0
sglang:num_used_tokens{tp_rank="0",dp_rank="0"} NaN
"""


def _values(text: str) -> dict[tuple[str, str], Any]:
    return {(reading.name, reading.rank): reading.value for reading in parse_metrics(text).readings}


def test_vllm_states_its_cache_configuration_and_its_use() -> None:
    observed = parse_metrics(VLLM)

    assert (observed.engine, observed.model) == ("vllm", "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8")
    assert _values(VLLM) == {
        ("num_gpu_blocks", "engine=0"): 38837,
        ("block_size", "engine=0"): 16,
        ("gpu_memory_utilization", "engine=0"): 0.92,
        ("kv_tokens", "engine=0"): 621392,
        ("max_concurrency", "engine=0"): 18.96,
        ("kv_cache_usage", "engine=0"): 0.62,
    }
    assert observed.flags["mamba_cache_mode"] == "align"
    assert observed.flags["enable_prefix_caching"] is True
    assert observed.flags["kv_cache_memory_bytes"] is None


def test_the_older_names_of_vllm_mean_the_same() -> None:
    assert _values(VLLM_V0) == {
        ("num_gpu_blocks", ""): 573,
        ("num_cpu_blocks", ""): 1024,
        ("block_size", ""): 16,
        ("gpu_memory_utilization", ""): 0.82,
        ("kv_cache_usage", ""): 0.25,
        ("cpu_cache_usage", ""): 0.0,
    }


def test_sglang_states_one_value_for_each_rank() -> None:
    first, second = "dp_rank=0 tp_rank=0", "dp_rank=1 tp_rank=0"

    assert parse_metrics(SGLANG).model == 'm "q"'
    assert _values(SGLANG) == {
        ("max_total_num_tokens", first): 60000,
        ("max_total_num_tokens", second): 59000,
        ("block_size", first): 64,
        ("weights_bytes", first): round(20.25 * GIB),
        ("kv_pool_bytes", first): round(30.5 * GIB),
        ("kv_cache_usage", first): 0.05,
        ("swa_usage", first): 1.0,
    }


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "up 1\n", 'go_info{version="go1.22"} 1\n', "vllm:kv_cache_usage_perc\n"]
)
def test_text_without_a_cache_metric_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="metrics: no metric of a cache is in it; looked for vllm:cache_config_info"):
        parse_metrics(text)


Answer = Callable[[BaseHTTPRequestHandler], None]


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], str]]:
    """Starts a server on loopback whose answers the test gives; returns its address."""
    servers: list[ThreadingHTTPServer] = []

    def start(answer: Answer) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer(self)

            def log_message(self, *args: Any) -> None:
                """Silence."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def _send(body: bytes, status: int = 200) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def _only_metrics(handler: BaseHTTPRequestHandler) -> None:
    _send(VLLM.encode(), 200 if handler.path == "/metrics" else 404)(handler)


@pytest.mark.parametrize("path", ["", "/", "/metrics"])
def test_a_running_server_is_read(serve: Callable[[Answer], str], path: str) -> None:
    address = serve(_only_metrics)
    observed = fetch_metrics(address + path)

    assert observed.readings == parse_metrics(VLLM).readings
    assert observed.source == f"{address}/metrics"


def test_an_address_without_a_scheme_is_http(serve: Callable[[Answer], str]) -> None:
    address = serve(_send(SGLANG.encode()))

    assert fetch_metrics(address.removeprefix("http://")).engine == "sglang"


def _breaks_off(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    handler.wfile.write(b"vllm:kv_cache_usage_perc 0.5\n")


def _says_no_http(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"\x00\x01 this is no HTTP\r\n\r\n")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (_send(b"", 404), "the server answered 404"),
        (_send(b"", 503), "the server answered 503"),
        (_send(b"<html>hello</html>"), "no metric of a cache is in it"),
        (_breaks_off, "the answer broke off after 29 of 100000 bytes"),
        (_says_no_http, "cannot be fetched"),
    ],
)
def test_an_answer_that_cannot_be_used_is_said_in_one_line(
    serve: Callable[[Answer], str], answer: Answer, message: str
) -> None:
    with pytest.raises(BadInput, match=message) as refused:
        fetch_metrics(serve(answer))
    assert "\n" not in str(refused.value)


def test_a_server_that_trickles_is_given_up(serve: Callable[[Answer], str]) -> None:
    stop = threading.Event()

    def trickle(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not stop.wait(0.02):
            handler.wfile.write(b"# more\n")

    address = serve(trickle)
    try:
        with pytest.raises(BadInput, match=r"not read within 0\.2 s"):
            fetch_metrics(address, timeout_s=0.2)
    finally:
        stop.set()


def test_an_answer_of_endless_size_is_refused(serve: Callable[[Answer], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvplan.logs.metrics._MAX_BYTES", 2**20)

    with pytest.raises(BadInput, match="more than 1 MiB"):
        fetch_metrics(serve(_send(b"# x\n" * 2**19)))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://host/metrics", "is not the address of a server"),
        ("http://", "is not the address of a server"),
        ("http://127.0.0.1:1/metrics", "cannot be fetched: .*refused"),
        ("http://127.0.0.1:port/metrics", "cannot be fetched"),
        ("http://[::1/metrics", "cannot be fetched"),
        ("http://no-such-host.invalid/metrics", "cannot be fetched"),
    ],
)
def test_an_address_that_leads_nowhere_is_refused(url: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        fetch_metrics(url, timeout_s=5)
