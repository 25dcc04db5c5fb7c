"""Dense Qwen3 with TorchTitan's names, arithmetic and initialization. Plain single-device PyTorch.

Unlike Llama, the heads' size is not D / H, each head of q and k passes a norm, and a rotation mixes the halves of a
head in the dtype of the weights. decoder.py explains the shapes.
"""
import dataclasses
import typing

import torch
from torch import nn

import decoder

FLAVORS = {
    "debugmodel": dict(
        dim=256, n_layers=8, n_heads=16, n_kv_heads=8, vocab_size=2048, hidden_dim=3072, enable_weight_tying=True
    ),
    "0.6B": dict(dim=1024, n_layers=28, n_heads=16, n_kv_heads=8, hidden_dim=3072, enable_weight_tying=True),
    "1.7B": dict(dim=2048, n_layers=28, n_heads=16, n_kv_heads=8, hidden_dim=6144, enable_weight_tying=True),
    "4B": dict(dim=2560, n_layers=36, n_heads=32, n_kv_heads=8, hidden_dim=9728, enable_weight_tying=True),
    "8B": dict(dim=4096, n_layers=36, n_heads=32, n_kv_heads=8, hidden_dim=12288),
    "14B": dict(dim=5120, n_layers=40, n_heads=40, n_kv_heads=8, hidden_dim=17408),
    "32B": dict(dim=5120, n_layers=64, n_heads=64, n_kv_heads=8, hidden_dim=25600),
}


@dataclasses.dataclass
class ModelArgs(decoder.FlavorArgs):
    FLAVORS: typing.ClassVar = FLAVORS

    dim: int = 1024
    n_layers: int = 28
    n_heads: int = 16
    n_kv_heads: int | None = 8
    vocab_size: int = 151936
    head_dim: int = 128
    hidden_dim: int = 3072
    norm_eps: float = 1e-6
    rope_theta: float = 1000000
    qk_norm: bool = True
    max_seq_len: int = 4096
    depth_init: bool = True
    enable_weight_tying: bool = False  # the output projection is the embedding
    attn_mask_type: str = "causal"
    eos_id: int = 151645  # ends a document


def rotate(x, cos, sin):
    """Rotates [B, T, heads, E] in its own dtype: element i and element i + E/2 are the coordinates of a point."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class Attention(decoder.Attention):
    def add_norms(self, args):
        self.q_norm = nn.RMSNorm(args.head_dim, eps=args.norm_eps) if args.qk_norm else nn.Identity()
        self.k_norm = nn.RMSNorm(args.head_dim, eps=args.norm_eps) if args.qk_norm else nn.Identity()

    def place(self, q, k, table):
        # The table is rounded to the dtype of q before it is used.
        cos, sin = table[: q.shape[1], None].to(q.dtype).chunk(2, -1)
        return rotate(self.q_norm(q), cos, sin), rotate(self.k_norm(k), cos, sin)


class Qwen3(decoder.Decoder):
    Args = ModelArgs
    attention = Attention

    @staticmethod
    def make_table(args):
        """Returns fp32 [T, 2E]: cosines, then sines, of position times frequency, both twice for both halves."""
        exponents = torch.arange(0, args.head_dim, 2).float() / args.head_dim
        angles = torch.outer(torch.arange(args.max_seq_len).float(), 1.0 / args.rope_theta**exponents)
        both = torch.cat((angles, angles), -1)
        return torch.cat((both.cos(), both.sin()), -1)
