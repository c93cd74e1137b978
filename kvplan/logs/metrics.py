"""What a running server's metrics say: Prometheus text of vLLM (0.6 to 0.33) and SGLang, read or fetched.

Metrics are exact where logs are rounded: `vllm:cache_config_info` holds the cache configuration as labels, one gauge
for each engine of the server; SGLang's gauges hold one value for each rank.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from kvplan.errors import BadInput
from kvplan.logs.arguments import parse_value
from kvplan.logs.observed import Observed, Reading
from kvplan.units import GIB

_MAX_BYTES = 32 * 2**20
_CHUNK_BYTES = 2**16
_SAMPLE = re.compile(r"([A-Za-z_:][\w:]{0,199})(?:\{(.*)\})?\s+(\S{1,40})(?:\s+-?\d{1,20})?\s*")
_LABEL = re.compile(r'([A-Za-z_]\w{0,99})="((?:[^"\\]|\\.)*)"')
_RANK_LABELS = ("engine", "dp_rank", "pp_rank", "tp_rank", "moe_ep_rank")


@dataclass(frozen=True, slots=True)
class _Gauge:
    """The quantity that a metric is; a scale makes bytes of it."""

    quantity: str
    scale: int = 0


_GAUGES: Mapping[str, _Gauge] = {
    "vllm:kv_cache_usage_perc": _Gauge("kv_cache_usage"),
    "vllm:gpu_cache_usage_perc": _Gauge("kv_cache_usage"),
    "vllm:cpu_cache_usage_perc": _Gauge("cpu_cache_usage"),
    "sglang:max_total_num_tokens": _Gauge("max_total_num_tokens"),
    "sglang:max_total_num_tokens_swa": _Gauge("swa_tokens"),
    "sglang:weight_memory_usage_gb": _Gauge("weights_bytes", GIB),
    "sglang:kv_cache_memory_usage_gb": _Gauge("kv_pool_bytes", GIB),
    "sglang:page_size": _Gauge("block_size"),
    "sglang:num_pages": _Gauge("num_pages"),
    "sglang:context_len": _Gauge("context_len"),
    "sglang:token_usage": _Gauge("kv_cache_usage"),
    "sglang:swa_token_usage": _Gauge("swa_usage"),
    "sglang:mamba_usage": _Gauge("state_usage"),
    "sglang:num_used_tokens": _Gauge("used_tokens"),
}
_CONFIG = "vllm:cache_config_info"
_CONFIG_QUANTITIES = {
    "num_gpu_blocks": "num_gpu_blocks",
    "num_cpu_blocks": "num_cpu_blocks",
    "block_size": "block_size",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "kv_cache_size_tokens": "kv_tokens",
    "kv_cache_max_concurrency": "max_concurrency",
    "kv_cache_memory_bytes": "available_kv_bytes",
}


@dataclass(frozen=True, slots=True)
class _Sample:
    """One line of Prometheus text."""

    name: str
    labels: Mapping[str, str]
    value: float
    line: int

    @property
    def rank(self) -> str:
        return " ".join(f"{name}={self.labels[name]}" for name in _RANK_LABELS if name in self.labels)


def parse_metrics(text: str, *, source: str = "metrics") -> Observed:
    """What Prometheus text says about the cache; `BadInput` if it holds none of the metrics that say it."""
    samples = [sample for sample in _samples(text) if sample.name in _GAUGES or sample.name == _CONFIG]
    if not samples:
        raise BadInput(f"{source}: no metric of a cache is in it; looked for {_CONFIG}, {', '.join(sorted(_GAUGES))}")
    readings = {(r.name, r.rank): r for sample in samples for r in _readings(sample)}
    configs = [sample.labels for sample in samples if sample.name == _CONFIG]
    return Observed(
        engine=samples[0].name.partition(":")[0],
        source=source,
        model=next((s.labels["model_name"] for s in samples if s.labels.get("model_name")), None),
        flags={name: parse_value(value) for labels in configs for name, value in labels.items()},
        readings=tuple(readings.values()),
    )


def _samples(text: str) -> Iterator[_Sample]:
    for number, line in enumerate(text.splitlines(), start=1):
        found = None if line.startswith("#") else _SAMPLE.fullmatch(line)
        if found and (value := _finite(found[3])) is not None:
            labels = {name: re.sub(r"\\(.)", r"\1", raw) for name, raw in _LABEL.findall(found[2] or "")}
            yield _Sample(found[1], labels, value, number)


def _finite(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < 1e18 else None


def _readings(sample: _Sample) -> Iterator[Reading]:
    """A gauge's value, or the numbers among the labels of the cache configuration."""
    if sample.name == _CONFIG:
        for label, quantity in _CONFIG_QUANTITIES.items():
            value = parse_value(sample.labels.get(label, ""))
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                yield Reading(quantity, value, rank=sample.rank, line=sample.line)
        return
    gauge = _GAUGES[sample.name]
    value = round(sample.value * gauge.scale) if gauge.scale else sample.value
    whole = int(value) if value == int(value) and "usage" not in gauge.quantity else value
    yield Reading(gauge.quantity, whole, rank=sample.rank, line=sample.line)


def fetch_metrics(url: str, *, timeout_s: float = 10.0) -> Observed:
    """The metrics that a running server serves at `url`; `/metrics` is added to a bare address.

    `BadInput`, in one line, for whatever keeps them from being read: address, refusal, status, size, time.
    """
    from http.client import HTTPException
    from urllib.error import HTTPError

    try:
        address = _address(url)
        return parse_metrics(_fetch(address, timeout_s).decode(errors="replace"), source=address)
    except HTTPError as error:
        with error:
            raise BadInput(f"{url}: the server answered {error.code} {error.reason}") from error
    except (HTTPException, OSError, ValueError) as error:
        reason = " ".join(str(getattr(error, "reason", error)).split())
        raise BadInput(f"{url}: cannot be fetched: {reason}") from error


def _address(url: str) -> str:
    parts = urlsplit(url if "//" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise BadInput(f"{url!r} is not the address of a server; write http://host:port/metrics")
    return urlunsplit(parts._replace(path=parts.path if parts.path.strip("/") else "/metrics"))


def _fetch(address: str, timeout_s: float) -> bytes:
    """The body, within the time and the size allowed; a server that trickles is given up too."""
    from urllib.request import urlopen

    deadline, body = time.monotonic() + timeout_s, b""
    with urlopen(address, timeout=timeout_s) as answer:
        while chunk := answer.read1(_CHUNK_BYTES):
            body += chunk
            if len(body) > _MAX_BYTES:
                raise BadInput(f"{address}: more than {_MAX_BYTES // 2**20} MiB; these are not a server's metrics")
            if time.monotonic() > deadline:
                raise BadInput(f"{address}: not read within {timeout_s:g} s")
        declared = answer.headers.get("Content-Length", "")
    if declared.isdigit() and len(body) < int(declared):
        raise BadInput(f"{address}: the answer broke off after {len(body)} of {declared} bytes")
    return body
