"""Vision transformers as their sizes: what image encoders of all kinds are built from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kvplan.hf.fields import Fields
from kvplan.hf.stacks import dense, stack
from kvplan.model import ModelSpec, OtherWeight

Tower = Callable[[Fields, ModelSpec], Iterator[OtherWeight]]
"""The weights of an encoder, of its section of the config and the decoder's spec."""


@dataclass(frozen=True, slots=True)
class Vit:
    """Sizes of a vision transformer; the last two as most classes default them."""

    width: int
    inner: int
    layers: int
    heads: int
    patch: int
    image: int = 224
    channels: int = 3

    @property
    def patches(self) -> int:
        """Patches of a whole image."""
        return (self.image // self.patch) ** 2

    def embedding(self, *, frames: int = 1, bias: bool = True) -> int:
        """The convolution that makes patches of `frames` frames vectors."""
        return dense(self.channels * frames * self.patch**2, self.width, bias=bias)


def read_vit(vision: Fields, default: Vit, *, width_key: str = "hidden_size") -> Vit:
    """The sizes of a `vision_config`, over the defaults of its class."""
    return Vit(
        width=vision.count(width_key) or default.width,
        inner=vision.count("intermediate_size") or default.inner,
        layers=vision.count("num_hidden_layers") or vision.count("depth") or default.layers,
        heads=vision.count("num_attention_heads") or default.heads,
        patch=vision.count("patch_size") or default.patch,
        image=vision.count("image_size") or default.image,
        channels=vision.count("num_channels") or vision.count("in_channels") or default.channels,
    )


def part(numel: int) -> OtherWeight:
    """Elements of the encoder that every rank holds."""
    return OtherWeight(part="vision", numel=numel)


def layers(vit: Vit, **more: int | bool) -> Iterator[OtherWeight]:
    """The encoder's layers; `more` as in `stack`."""
    return stack("vision", layers=vit.layers, width=vit.width, inner=vit.inner, heads=vit.heads, **more)  # type: ignore[arg-type]


def frames(vision: Fields) -> int:
    """Frames of a video that make one patch."""
    return vision.count("temporal_patch_size") or 2


def merged_patches(vision: Fields) -> int:
    """Patches that a merger folds into one vector."""
    return (vision.count("spatial_merge_size") or 2) ** 2
