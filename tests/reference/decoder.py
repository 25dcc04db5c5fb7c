"""The parts that TorchTitan's dense models share: plain single-device PyTorch with TorchTitan's names, order of
parameters and initialization. llama.py and qwen3.py are the models.

Shapes: B batch, T sequence, D model, H query heads, K key/value heads, E head, V vocabulary.
"""
import torch
import torch.nn.functional as F
from torch import nn

import text_data


class FlavorArgs:
    """Base of a model's sizes, which are a dataclass with the table FLAVORS."""

    @classmethod
    def from_job(cls, job):
        """Returns the flavor's sizes, overridden by [model.args], with the training sequence length."""
        fields = {**cls.FLAVORS[job["model"]["flavor"]], **job["model"]["args"]}
        fields["max_seq_len"] = job["training"]["seq_len"]
        if fields.get("attn_mask_type") == "block_causal":
            (fields["eos_id"],) = text_data.load_tokenizer(job["model"]["hf_assets_path"]).eos
        return cls(**fields)

    @property
    def kv_heads(self):
        return self.n_heads if self.n_kv_heads is None else self.n_kv_heads


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
        self.head_dim = args.head_dim
        self.grouped = args.n_heads > args.kv_heads
        self.add_norms(args)
        self.wq = nn.Linear(args.dim, args.n_heads * self.head_dim, bias=False)
        self.wk = nn.Linear(args.dim, args.kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(args.dim, args.kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(args.n_heads * self.head_dim, args.dim, bias=False)

    def add_norms(self, args):
        """Registers the norms that a model has within attention, before the projections."""

    def place(self, q, k, table):
        """Returns q and k, each [B, T, heads, E], with their positions."""
        raise NotImplementedError

    def forward(self, x, table, mask=None):
        batch, length, _ = x.shape
        q = self.wq(x).view(batch, length, -1, self.head_dim)
        k = self.wk(x).view(batch, length, -1, self.head_dim)
        v = self.wv(x).view(batch, length, -1, self.head_dim)
        q, k = self.place(q, k, table)
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
    def __init__(self, args, attention):
        super().__init__()
        self.attention = attention(args)
        self.feed_forward = FeedForward(args)
        self.attention_norm = nn.RMSNorm(args.dim, eps=args.norm_eps)
        self.ffn_norm = nn.RMSNorm(args.dim, eps=args.norm_eps)

    def forward(self, x, table, mask=None):
        h = x + self.attention(self.attention_norm(x), table, mask)
        return h + self.feed_forward(self.ffn_norm(h))


class Decoder(nn.Module):
    """Base of the models, which name their sizes (Args), their attention (attention) and its table of positions."""

    Args = None
    attention = None

    def __init__(self, args):
        super().__init__()
        self.args = args
        self.tok_embeddings = nn.Embedding(args.vocab_size, args.dim)
        self.layers = nn.ModuleDict({str(i): Block(args, self.attention) for i in range(args.n_layers)})
        self.norm = nn.RMSNorm(args.dim, eps=args.norm_eps)
        self.output = nn.Linear(args.dim, args.vocab_size, bias=False)
        self.register_buffer("table", None, persistent=False)
        self.tie()

    @staticmethod
    def make_table(args):
        """Returns the rotation of each position of the sequence."""
        raise NotImplementedError

    def tie(self):
        """Makes the output projection and the embedding one parameter, also after both were replaced."""
        if self.args.enable_weight_tying and None not in (self.output, self.tok_embeddings):
            self.output.weight = self.tok_embeddings.weight

    def forward(self, tokens, positions=None):
        """int64 [B, T] -> logits [B, T, V]. positions: int64 [T], of the tokens in their rows; None: 0, 1, ...

        A stage of a pipeline lacks modules: it takes and returns what passes between those of a whole model.
        """
        block_causal = self.args.attn_mask_type == "block_causal"
        mask = same_document(tokens, self.args.eos_id) if block_causal else None
        table = self.table if positions is None else self.table[positions]
        h = tokens if self.tok_embeddings is None else self.tok_embeddings(tokens)
        for layer in self.layers.values():
            h = layer(h, table, mask)
        h = h if self.norm is None else self.norm(h)
        return h if self.output is None else self.output(h)

    @torch.no_grad()
    def init_weights(self):
        """Draws every weight from torch's CPU generator, in the order that fixes the values for a seed. A tied weight
        is drawn twice, and keeps the output projection's values."""
        self.table = self.make_table(self.args)
        for module in self.modules():
            if isinstance(module, nn.RMSNorm):
                nn.init.ones_(module.weight)
        nn.init.normal_(self.tok_embeddings.weight)
        for index, layer in enumerate(self.layers.values()):
            depth = index + 1 if self.args.depth_init else self.args.n_layers
            residual_std = 0.02 / (2 * depth) ** 0.5
            attention, feed_forward = layer.attention, layer.feed_forward
            for linear in (attention.wq, attention.wk, attention.wv):
                truncated_normal(linear.weight, 0.02)
            truncated_normal(attention.wo.weight, residual_std)
            truncated_normal(feed_forward.w1.weight, 0.02)
            truncated_normal(feed_forward.w2.weight, residual_std)
            truncated_normal(feed_forward.w3.weight, residual_std)
        std = self.args.dim**-0.5
        truncated_normal(self.output.weight, std, bound=3 * std)


def truncated_normal(weight, std, bound=2.0):
    """Draws in fp32 for weights of any dtype. The bound is absolute, not in units of std."""
    values = weight.float()
    nn.init.trunc_normal_(values, std=std, a=-bound, b=bound)
    weight.copy_(values)
