"""Speech output of omni models: a talker that predicts codes, and the vocoder that makes sound of them.

They are in the checkpoint, not in a text engine: vLLM and SGLang load the thinker alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.hf.fields import Fields
from kvplan.hf.stacks import dense
from kvplan.mlp import DenseMlp
from kvplan.model import OtherWeight


def speech_weights(top: Fields) -> Iterator[OtherWeight]:
    """Talker and vocoder of Qwen2.5-Omni."""
    talker, wave = top.section("talker_config"), top.section("token2wav_config")
    if talker is not None and talker.has("embedding_size") and not talker.has("text_config"):
        yield _part(_talker(talker))
    if wave is not None:
        dit, vocoder = (wave.section(key) or Fields({}, wave.where) for key in ("dit_config", "bigvgan_config"))
        yield _part(_diffusion(dit) + _speaker(dit) + _vocoder(vocoder))


def _part(numel: int) -> OtherWeight:
    return OtherWeight(part="audio", numel=numel, held="checkpoint")


def _talker(talker: Fields) -> int:
    """A small Qwen2 decoder over codes, fed with the thinker's states."""
    hidden, width = talker.count("hidden_size") or 896, talker.one_count("embedding_size") or 3584
    codes = talker.one_count("vocab_size") or 8448
    query = talker.count("num_attention_heads") or 12
    attention = GroupedQueryAttention(
        num_attention_heads=query,
        num_key_value_heads=talker.count("num_key_value_heads") or 4,
        head_dim=talker.count("head_dim") or 128,
        qkv_bias=True,
    )
    mlp = DenseMlp(intermediate_size=talker.count("intermediate_size") or 18944)
    layer = sum(w.numel for part in (attention, mlp) for w in part.weights(hidden)) + 2 * hidden
    layers = talker.count("num_hidden_layers") or 24
    return layers * layer + codes * (width + hidden) + dense(width, hidden) + hidden


def _diffusion(dit: Fields) -> int:
    """A diffusion transformer from codes to mel frames, modulated by the time step."""
    width, mel = dit.count("hidden_size") or 1024, dit.count("mel_dim") or 80
    codes, inner = dit.count("emb_dim") or 512, (dit.count("num_attention_heads") or 16) * (dit.count("head_dim") or 64)
    wide = (dit.count("ff_mult") or 2) * width
    block = (
        dense(width, 6 * width)
        + 3 * dense(width, inner)
        + dense(inner, width)
        + dense(width, wide)
        + dense(wide, width)
    )
    speaker = (dit.count("enc_dim") or 128) + (dit.count("enc_emb_dim") or 192)
    ends = dense(256, width) + dense(width, width) + dense(mel + speaker + codes, width)
    table = ((dit.count("num_embeds") or 8193) + 1) * codes
    layers = dit.count("num_hidden_layers") or 22
    return layers * block + ends + table + dense(width, 2 * width) + dense(width, mel)


def _speaker(dit: Fields) -> int:
    """The ECAPA-TDNN that listens to a voice (arXiv 2005.07143)."""
    channels = _numbers(dit, "enc_channels", (256, 256, 256, 256, 768))
    kernels = _numbers(dit, "enc_kernel_sizes", (5, 3, 3, 3, 1))
    scale, squeeze = dit.count("enc_res2net_scale") or 2, dit.count("enc_se_channels") or 64
    attention, last = dit.count("enc_attention_channels") or 64, channels[-1]
    total = dense((dit.count("mel_dim") or 80) * kernels[0], channels[0])
    for before, width, kernel in zip(channels[:-2], channels[1:-1], kernels[1:-1], strict=False):
        slice_ = width // scale
        total += dense(before, width) + (scale - 1) * dense(slice_ * kernel, slice_) + dense(width, width)
        total += dense(width, squeeze) + dense(squeeze, width)
    total += dense(sum(channels[1:-1]) * kernels[-1], last) + dense(3 * last, attention) + dense(attention, last)
    return total + dense(2 * last, dit.count("enc_dim") or 128)


def _vocoder(vocoder: Fields) -> int:
    """BigVGAN (arXiv 2206.04658): transposed convolutions that halve the channels, and residual blocks after each."""
    channels, mel = vocoder.count("upsample_initial_channel") or 1536, vocoder.count("mel_dim") or 80
    kernels = _numbers(vocoder, "resblock_kernel_sizes", (3, 7, 11))
    total = dense(7 * mel, channels)
    for kernel in _numbers(vocoder, "upsample_kernel_sizes", (11, 7, 4, 4, 4, 4)):
        half = channels // 2
        total += channels * half * kernel + half
        total += sum(6 * dense(size * half, half) + 6 * 2 * half for size in kernels)
        channels = half
    return total + 2 * channels + 7 * channels


def _numbers(section: Fields, key: str, default: Sequence[int]) -> Sequence[int]:
    """A list of whole numbers as long as the default, or the default."""
    values = section.sequence(key)
    if values is None:
        return default
    if len(values) != len(default) or not all(isinstance(v, int) and 0 < v < 2**20 for v in values):
        raise section.bad(key, f"is not a list of {len(default)} sizes")
    return values
