"""Llama 3 with TorchTitan's names, arithmetic and initialization. Plain single-device PyTorch.

Shapes: B batch, T sequence, D model, H query heads, K key/value heads, E head, V vocabulary.
"""
import dataclasses
import math

import torch
import torch.nn.functional as F
from torch import nn

import text_data

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
class ModelArgs:
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

    @classmethod
    def from_job(cls, job):
        """Returns the flavor's sizes, overridden by [model.args], with the training sequence length."""
        fields = {**FLAVORS[job["model"]["flavor"]], **job["model"]["args"]}
        if isinstance(fields.get("rope_scaling_args"), dict):
            fields["rope_scaling_args"] = RopeScaling(**fields["rope_scaling_args"])
        fields["max_seq_len"] = job["training"]["seq_len"]
        if fields.get("attn_mask_type") == "block_causal":
            (fields["eos_id"],) = text_data.load_tokenizer(job["model"]["hf_assets_path"]).eos
        return cls(**fields)

    @property
    def kv_heads(self):
        return self.n_heads if self.n_kv_heads is None else self.n_kv_heads

    @property
    def hidden_dim(self):
        hidden = int(2 * (4 * self.dim) / 3)
        if self.ffn_dim_multiplier is not None:
            hidden = int(self.ffn_dim_multiplier * hidden)
        return self.multiple_of * math.ceil(hidden / self.multiple_of)


def rotation_table(args):
    """Returns complex64 [T, E/2]: position times frequency on the unit circle, with Llama 3.1's frequency scaling."""
    head_dim = args.dim // args.n_heads
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


def rotate(x, table):
    """Rotates [B, T, heads, E]: neighboring elements are the parts of a complex number."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    rotated = pairs * table[: x.shape[1]].view(1, x.shape[1], 1, -1)
    return torch.view_as_real(rotated).flatten(3).type_as(x)


def same_document(tokens, eos_id):
    """Returns bool [B, 1, T, T]: key j counts for query i if j <= i and as many documents ended before it."""
    ended_before = (tokens == eos_id).cumsum(1) - (tokens == eos_id).long()
    same = ended_before[:, :, None] == ended_before[:, None, :]
    return same.tril()[:, None]


class Attention(nn.Module):
    # True: scores, softmax and sums in float32 with weights of any dtype, rounded once at the end.
    in_float32 = False

    def __init__(self, args):
        super().__init__()
        self.head_dim = args.dim // args.n_heads
        self.grouped = args.n_heads > args.kv_heads
        self.wq = nn.Linear(args.dim, args.n_heads * self.head_dim, bias=False)
        self.wk = nn.Linear(args.dim, args.kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(args.dim, args.kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(args.n_heads * self.head_dim, args.dim, bias=False)

    def forward(self, x, table, mask=None):
        batch, length, _ = x.shape
        q = rotate(self.wq(x).view(batch, length, -1, self.head_dim), table)
        k = rotate(self.wk(x).view(batch, length, -1, self.head_dim), table)
        v = self.wv(x).view(batch, length, -1, self.head_dim)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))  # [B, heads, T, E]
        if self.in_float32:
            q, k, v = (t.float() for t in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None, enable_gqa=self.grouped).type_as(x)
        return self.wo(out.transpose(1, 2).contiguous().view(batch, length, -1))


class FeedForward(nn.Module):
    # True: no rounding to the weights' dtype between silu and the product, as a compiler that fuses them computes it.
    fused = False

    def __init__(self, args):
        super().__init__()
        self.w1 = nn.Linear(args.dim, args.hidden_dim, bias=False)
        self.w2 = nn.Linear(args.hidden_dim, args.dim, bias=False)
        self.w3 = nn.Linear(args.dim, args.hidden_dim, bias=False)

    def forward(self, x):
        gate, up = self.w1(x), self.w3(x)
        if self.fused:
            return self.w2((F.silu(gate.float()) * up.float()).type_as(gate))
        return self.w2(F.silu(gate) * up)


class Block(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.attention = Attention(args)
        self.feed_forward = FeedForward(args)
        self.attention_norm = nn.RMSNorm(args.dim, eps=args.norm_eps)
        self.ffn_norm = nn.RMSNorm(args.dim, eps=args.norm_eps)

    def forward(self, x, table, mask=None):
        h = x + self.attention(self.attention_norm(x), table, mask)
        return h + self.feed_forward(self.ffn_norm(h))


class Llama(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.args = args
        self.tok_embeddings = nn.Embedding(args.vocab_size, args.dim)
        self.layers = nn.ModuleDict({str(i): Block(args) for i in range(args.n_layers)})
        self.norm = nn.RMSNorm(args.dim, eps=args.norm_eps)
        self.output = nn.Linear(args.dim, args.vocab_size, bias=False)
        self.register_buffer("freqs_cis", None, persistent=False)
        self.tie()

    def tie(self):
        """Makes the output projection and the embedding one parameter, also after both were replaced."""
        if self.args.enable_weight_tying:
            self.output.weight = self.tok_embeddings.weight

    def forward(self, tokens):
        """int64 [B, T] -> logits [B, T, V]"""
        block_causal = self.args.attn_mask_type == "block_causal"
        mask = same_document(tokens, self.args.eos_id) if block_causal else None
        h = self.tok_embeddings(tokens)
        for layer in self.layers.values():
            h = layer(h, self.freqs_cis, mask)
        return self.output(self.norm(h))

    @torch.no_grad()
    def init_weights(self):
        """Draws every weight from torch's CPU generator, in the order that fixes the values for a seed."""
        self.freqs_cis = rotation_table(self.args)
        nn.init.normal_(self.tok_embeddings.weight)
        for index, layer in enumerate(self.layers.values()):
            depth = index + 1 if self.args.depth_init else self.args.n_layers
            residual_std = 0.02 / (2 * depth) ** 0.5
            for norm in (layer.attention_norm, layer.ffn_norm):
                nn.init.ones_(norm.weight)
            attention, feed_forward = layer.attention, layer.feed_forward
            for linear in (attention.wq, attention.wk, attention.wv):
                truncated_normal(linear.weight, 0.02)
            truncated_normal(attention.wo.weight, residual_std)
            truncated_normal(feed_forward.w1.weight, 0.02)
            truncated_normal(feed_forward.w2.weight, residual_std)
            truncated_normal(feed_forward.w3.weight, residual_std)
        nn.init.ones_(self.norm.weight)
        std = self.args.dim**-0.5
        truncated_normal(self.output.weight, std, bound=3 * std)


def truncated_normal(weight, std, bound=2.0):
    """Draws in fp32 for weights of any dtype. The bound is absolute, not in units of std."""
    values = weight.float()
    nn.init.trunc_normal_(values, std=std, a=-bound, b=bound)
    weight.copy_(values)


def build_initialized(args, seed, dtype=torch.float32):
    """Returns the full model on the CPU with the weights that one rank draws for `seed` (None: an unseeded draw)."""
    if seed is not None:
        torch.manual_seed(seed)
    # Built on "meta", so that the layers' own default initialization draws nothing from the generator.
    with torch.device("meta"):
        model = Llama(args).to(dtype)
    model.to_empty(device="cpu")
    model.tie()
    model.init_weights()
    return model
