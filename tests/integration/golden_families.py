"""The questions about families of models that tests/golden answers: golden.py has what they share.

Each is a tiny model with the config.json of a family that people bring. The program gets nothing but its folder
(model.from)."""

import dataclasses

import golden

# Weights and their file are by golden.weight(). Neither eps nor theta is any family's default.
SIZES = {
    "hidden_size": 32, "intermediate_size": 90, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 64, "rms_norm_eps": 1e-3, "max_position_embeddings": 4096,
}  # fmt: skip
SHARD_BYTES = 30_000  # several files of each model
_PLAIN = {"rope_type": "default", "rope_theta": 500000.0}
_LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
_LLAMA3 |= {"original_max_position_embeddings": 64}
# Short, so that the ramp of YaRN lies within the few dims of a head.
_YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}


@dataclasses.dataclass(frozen=True)
class Family:
    config: str  # transformers' class
    model: str
    name: str  # ours
    sizes: dict
    rope: dict = dataclasses.field(default_factory=lambda: _PLAIN)
    tied: bool = False

    @property
    def all_sizes(self):
        return SIZES | self.sizes


def _llama(rope=_PLAIN, tied=False, **sizes):
    return Family("LlamaConfig", "LlamaForCausalLM", "llama3", sizes, rope, tied)


def _mistral(**sizes):
    return Family("MistralConfig", "MistralForCausalLM", "llama3", sizes | {"sliding_window": None})


def _qwen2(rope=_PLAIN, tied=False, **sizes):
    return Family("Qwen2Config", "Qwen2ForCausalLM", "qwen2", sizes, rope, tied)


FAMILIES = {
    "llama31": _llama(_LLAMA3 | {"factor": 8.0}),
    "llama32": _llama(_LLAMA3 | {"factor": 32.0}, tied=True),
    "llama_linear": _llama({"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}),
    "llama_yarn": _llama(_YARN | {"attention_factor": 1.5, "beta_fast": 16.0, "beta_slow": 2.0}),
    "tinyllama": _llama(num_key_value_heads=1),
    "smollm2": _llama(tied=True, num_attention_heads=3, num_key_value_heads=1, hidden_size=24),
    "mistral": _mistral(),
    "mistral_nemo": _mistral(head_dim=12),
    "qwen2": _qwen2(),
    "qwen25": _qwen2(_YARN, tied=True),
    "qwen3": Family("Qwen3Config", "Qwen3ForCausalLM", "qwen3", {"head_dim": 12}),
    "smollm3": Family(
        "SmolLM3Config", "SmolLM3ForCausalLM", "smollm3",
        {"num_hidden_layers": 3, "no_rope_layers": [1, 0, 1], "no_rope_layer_interval": 2, "pad_token_id": 0}, tied=True
    ),
}  # fmt: skip

# After which the logits of the next token are compared: the last one is longer than the original length of any scaled
# rotary embedding here.
PROMPTS = ["the mill", "a cart came over the bridge with nine sacks of rye. ", "the water turns the wheel, and the river is low. " * 4]

JOB = """\
[job]
dump_folder = "{dump}"
[model]
from = "{folder}"
[metrics]
log_freq = 1
[training]
dataset = "c4_test"
dataset_path = "{corpus}"
local_batch_size = 2
seq_len = 64
steps = {steps}
[activation_checkpoint]
mode = "none"
[debug]
seed = 42
"""


def write_job(context, folder, name, steps):
    path = context.folder / f"{name}.toml"
    path.write_text(JOB.format(dump=context.dump(name), folder=folder, corpus=golden.CORPUS, steps=steps))
    return path


def export(context, folder, dtype, ranks=2):
    """Returns the folder of an export of weights that the program has read from `folder`."""
    job = write_job(context, folder, f"export-{dtype}", 1)
    words = ["--checkpoint.last_save_in_hf", "--checkpoint.export_dtype", dtype]
    golden.train(context, ranks, ["--config", job, *golden.FP32, *golden.STILL, *words], f"export-{dtype}")
    return context.dump(f"export-{dtype}") / "checkpoint/step-1"
