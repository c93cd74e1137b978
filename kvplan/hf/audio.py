"""Audio encoders, by the kind that `audio_config` names, with their way to the decoder; and speech output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from kvplan.hf.fields import Fields
from kvplan.hf.seq2seq import whisper_stack
from kvplan.hf.stacks import dense, stack
from kvplan.model import ModelSpec, OtherWeight

Tower = Callable[[Fields, ModelSpec], Iterator[OtherWeight]]


def _part(numel: int) -> OtherWeight:
    return OtherWeight(part="audio", numel=numel)


def _whisper(audio: Fields, *, positions: int) -> Iterator[OtherWeight]:
    """Whisper's encoder under either set of names."""
    return whisper_stack(
        "audio",
        width=audio.count("hidden_size") or 1280,
        layers=audio.count("encoder_layers") or audio.count("num_hidden_layers") or 32,
        inner=audio.count("encoder_ffn_dim") or audio.count("intermediate_size") or 5120,
        heads=audio.count("encoder_attention_heads") or audio.count("num_attention_heads") or 20,
        mel=audio.count("num_mel_bins") or 128,
        positions=positions,
    )


def _positions(audio: Fields) -> int:
    return audio.one_count("max_source_positions") or 1500


def qwen2_audio(audio: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """Whisper's encoder and one dense layer."""
    yield from _whisper(audio, positions=_positions(audio))
    yield _part(dense(audio.count("hidden_size") or 1280, spec.hidden_size))


def voxtral(audio: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """Whisper's encoder, four frames side by side through two matrices."""
    yield from _whisper(audio, positions=_positions(audio))
    yield _part((audio.count("intermediate_size") or 5120) * spec.hidden_size + spec.hidden_size**2)


def audioflamingo3(audio: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """Whisper's encoder and two dense layers."""
    yield from _whisper(audio, positions=_positions(audio))
    hidden = spec.hidden_size
    yield _part(dense(audio.count("hidden_size") or 1280, hidden) + dense(hidden, hidden))


def qwen2_5_omni(audio: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """Whisper's encoder with computed positions, a projection, and learned marks of where audio begins and ends."""
    out = audio.count("output_dim") or spec.hidden_size
    yield from _whisper(audio, positions=0)
    yield _part(2 * out + dense(audio.count("hidden_size") or 1280, out))


def qwen3_asr(audio: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """Three strided convolutions over time and mel, layers, and two dense layers (Qwen3-ASR, Qwen3-Omni)."""
    width, channels = audio.count("hidden_size") or 1280, audio.count("downsample_hidden_size") or 480
    bands = audio.count("num_mel_bins") or 128
    for _ in range(3):
        bands = (bands + 1) // 2
    yield from stack(
        "audio",
        layers=audio.count("encoder_layers") or 32,
        width=width,
        inner=audio.count("encoder_ffn_dim") or 5120,
        heads=audio.count("encoder_attention_heads") or 20,
    )
    yield _part(dense(9, channels) + 2 * dense(9 * channels, channels) + channels * bands * width)
    yield _part(2 * width + dense(width, width) + dense(width, audio.count("output_dim") or spec.hidden_size))


def _conformer(audio: Fields, prefix: str, width: int) -> Iterator[OtherWeight]:
    """USM's conformer: two half-step MLPs, attention by relative position, a light convolution; before it two strided
    convolutions that leave a quarter of 128 mel bands (arXiv 2303.01037)."""
    heads, kernel = audio.count(f"{prefix}num_attention_heads") or 8, audio.count(f"{prefix}conv_kernel_size") or 5
    layers = audio.count(f"{prefix}num_hidden_layers") or 12
    mlps, attention, convolution = 16 * width**2, 5 * width**2, 3 * width**2
    vectors = (4 + 3 + 2 + kernel) * width + width // heads
    yield OtherWeight(part="audio", numel=layers * (mlps + attention + convolution), units=heads)
    first, second = 128, 32
    strided = 9 * first + first + 9 * first * second + second + second * 32 * width
    yield _part(layers * vectors + strided)


def gemma4(audio: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """The conformer, a projection, and a matrix to the decoder."""
    width, out = audio.count("hidden_size") or 1024, audio.count("output_proj_dims") or 1536
    yield from _conformer(audio, "", width)
    yield _part(dense(width, out) + out * spec.hidden_size)


def gemma3n(audio: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """The conformer, an embedding of marks, two norms and a matrix to the decoder."""
    width = audio.count("hidden_size") or 1536
    yield from _conformer(audio, "conf_", width)
    yield _part(((audio.count("vocab_size") or 128) + 2 + spec.hidden_size) * width)


TOWERS: Mapping[str, Tower] = {
    "qwen2": qwen2_audio,
    "voxtral": voxtral,
    **dict.fromkeys(("audioflamingo3", "musicflamingo"), audioflamingo3),
    "qwen2_5_omni": qwen2_5_omni,
    **dict.fromkeys(("qwen3_asr", "qwen3_omni_moe"), qwen3_asr),
    "gemma4": gemma4,
    "gemma3n": gemma3n,
}
"""By `audio_config.model_type` without its tail (_encoder, _audio_encoder, _audio)."""
