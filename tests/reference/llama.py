"""Llama 3 with TorchTitan's names, arithmetic and initialization. Plain single-device PyTorch.

decoder.py explains the shapes.
"""
import dataclasses
import math
import typing

import torch

import decoder

FLAVORS = {
    "debugmodel": dict(dim=256, n_layers=6, n_heads=16, vocab_size=2048, rope_theta=500000),
    "debugmodel_flex_attn": dict(
        dim=256, n_layers=6, n_heads=16, vocab_size=2048, rope_theta=500000, attn_mask_type="block_causal"
    ),
    "1B": dict(
        dim=2048, n_layers=16, n_heads=32, n_kv_heads=8, ffn_dim_multiplier=1.5, rope_theta=500000,
        rope_scaling_args=dict(scaling_factor=32.0), enable_weight_tying=True,
    ),
    "8B": dict(
        dim=4096, n_layers=32, n_heads=32, n_kv_heads=8, ffn_dim_multiplier=1.3, multiple_of=1024, rope_theta=500000
    ),
    "70B": dict(
        dim=8192, n_layers=80, n_heads=64, n_kv_heads=8, ffn_dim_multiplier=1.3, multiple_of=4096, rope_theta=500000
    ),
    "405B": dict(
        dim=16384, n_layers=126, n_heads=128, n_kv_heads=8, ffn_dim_multiplier=1.2, multiple_of=4096, rope_theta=500000
    ),
}


@dataclasses.dataclass
class RopeScaling:
    scaling_factor: float = 8.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 8192


@dataclasses.dataclass
class ModelArgs(decoder.FlavorArgs):
    FLAVORS: typing.ClassVar = FLAVORS

    dim: int = 4096
    n_layers: int = 32
    n_heads: int = 32
    n_kv_heads: int | None = None
    vocab_size: int = 128256
    multiple_of: int = 256
    ffn_dim_multiplier: float | None = None
    norm_eps: float = 1e-5
    rope_theta: float = 10000
    rope_scaling_args: RopeScaling = dataclasses.field(default_factory=RopeScaling)
    max_seq_len: int = 131072
    depth_init: bool = True
    enable_weight_tying: bool = False  # the output projection is the embedding
    attn_mask_type: str = "causal"
    eos_id: int | None = None  # ends a document

    def __post_init__(self):
        if isinstance(self.rope_scaling_args, dict):
            self.rope_scaling_args = RopeScaling(**self.rope_scaling_args)

    @property
    def head_dim(self):
        return self.dim // self.n_heads

    @property
    def hidden_dim(self):
        hidden = int(2 * (4 * self.dim) / 3)
        if self.ffn_dim_multiplier is not None:
            hidden = int(self.ffn_dim_multiplier * hidden)
        return self.multiple_of * math.ceil(hidden / self.multiple_of)


def rotate(x, table):
    """Rotates [B, T, heads, E]: neighboring elements are the parts of a complex number."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    rotated = pairs * table[: x.shape[1]].view(1, x.shape[1], 1, -1)
    return torch.view_as_real(rotated).flatten(3).type_as(x)


class Attention(decoder.Attention):
    def place(self, q, k, table):
        return rotate(q, table), rotate(k, table)


class Llama(decoder.Decoder):
    Args = ModelArgs
    attention = Attention

    @staticmethod
    def make_table(args):
        """Returns complex64 [T, E/2]: position times frequency on the unit circle, with Llama 3.1's scaling."""
        head_dim = args.head_dim
        exponents = torch.arange(0, head_dim, 2)[: head_dim // 2].float() / head_dim
        base = 1.0 / (args.rope_theta**exponents)
        scaling = args.rope_scaling_args
        context = scaling.original_max_position_embeddings
        wavelength = 2 * math.pi / base
        low = wavelength > context / scaling.low_freq_factor
        high = wavelength < context / scaling.high_freq_factor
        scaled = torch.where(low, base / scaling.scaling_factor, base)
        blend = (context / wavelength - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
        blended = (1 - blend) * scaled / scaling.scaling_factor + blend * scaled
        frequencies = torch.where(~low & ~high, blended, scaled)
        angles = torch.outer(torch.arange(args.max_seq_len), frequencies).float()
        return torch.polar(torch.ones_like(angles), angles)
