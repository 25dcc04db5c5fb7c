"""The questions about Qwen3 that tests/golden answers: golden.py has those about Llama, and what both share."""
import golden

MODEL = "qwen3"
# The first half of a run ends with the checkpoint that the other program goes on from.
STEPS, HALF = 20, 10
# As small as a model goes that two ranks can share, with grouped heads that are not dim / n_heads wide, in which an odd
# number of points is rotated: three of its checkpoints are committed. Its output projection is the embedding, as in
# each flavor below 8B.
SIZES = {"dim": 8, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "head_dim": 6, "hidden_dim": 24, "vocab_size": 64}
SEED = "qwen3_seed"  # unpack_checkpoint()'s name of the weights from which all ranks and both programs start
# name -> (ranks of the program, ranks of TorchTitan, words of the program): who goes on from our checkpoint.
HANDED_OVER = {"1": (1, 1, []), "2": (2, 2, []), "tensor": (4, 2, golden.TENSOR)}
# The full flavor, without a checkpoint: its weights follow from the seed.
FULL = ["--optimizer.lr", "8e-4", "--lr_scheduler.warmup_steps", "2", "--checkpoint.no-enable"]


def write_job(context, name, steps=STEPS):
    return golden.write_job(context, name, steps, MODEL, HALF)


def start_words(context):
    """Returns the words with which a run starts from the seed checkpoint."""
    seed = context.folder / "seed/step-0"
    if not seed.exists():
        golden.unpack_checkpoint(SEED, seed)
    return ["--checkpoint.initial_load_path", seed]


# transformers' sizes, and ours. Neither eps nor theta is the default, and this eps is so large that the losses show it.
# Tied, lm_head.weight is in no file.
HF_SIZES = {
    "hidden_size": 32, "intermediate_size": 90, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 12, "vocab_size": 64, "rms_norm_eps": 1e-3, "max_position_embeddings": 4096,
}  # fmt: skip
HF_ROPE = {"rope_type": "default", "rope_theta": 500000.0}
SHARD_BYTES = 60_000  # some files of each model
_OURS = {
    "dim": 32, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "head_dim": 12, "hidden_dim": 90, "vocab_size": 64,
    "norm_eps": 1e-3, "rope_theta": 500000,
}  # fmt: skip


def our_name(name):
    """Returns our name of a weight of transformers'."""
    words = name.removeprefix("model.").removesuffix(".weight").split(".")
    layer = words[:2] if words[0] == "layers" else []
    return ".".join([*layer, NAMES[".".join(words[len(layer) :])], "weight"])


TIES = {"tied": True, "untied": False}
# transformers' names of the weights within a layer, and around the layers -> ours.
NAMES = {
    "self_attn.q_norm": "attention.q_norm", "self_attn.k_norm": "attention.k_norm", "self_attn.q_proj": "attention.wq",
    "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv", "self_attn.o_proj": "attention.wo",
    "mlp.gate_proj": "feed_forward.w1", "mlp.down_proj": "feed_forward.w2", "mlp.up_proj": "feed_forward.w3",
    "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm", "embed_tokens": "tok_embeddings",
    "norm": "norm", "lm_head": "output",
}  # fmt: skip
MODELS = {tie: golden.Model(MODEL, _OURS | {"enable_weight_tying": tied}) for tie, tied in TIES.items()}
