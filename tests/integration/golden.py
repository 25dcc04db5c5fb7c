"""The questions that tests/golden answers: jobs, sizes and weights, the same for the program and for its peers.

tests/golden/make.py asks the peers, the cases ask the program. No question depends on the machine: text and tokenizer
are committed, weights come from Python's own generator, whose sequence is documented never to change.
"""
import array
import dataclasses
import json
import math
import random
import struct
import zipfile

from checkpoint_tools import FP32, STILL, train
from harness import ROOT, run

GOLDEN = ROOT / "tests/golden"
CORPUS, TOKENIZER = GOLDEN / "corpus", GOLDEN / "tokenizer"
RANKS = 2


def answers(name, folder=GOLDEN):
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


# ------------------------------------------------------------------------------------------------------ config.json

# One model, as different programs and generations of the format describe it. `refused`: a word of this program's
# reason, if it refuses to build the model.
_LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 128}
_TYPED = {"rope_type": "llama3", **_LLAMA3}
_MISTRAL = {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}


def _variant(name, refused="", without=(), **more):
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 64,
        "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
    } | more  # fmt: skip
    return {"name": name, "refused": refused, "config": {k: v for k, v in config.items() if k not in without}}


CONFIG_VARIANTS = [
    _variant("plain"),
    _variant("theta_at_the_top", rope_theta=500000.0),
    _variant("theta_is_whole", rope_theta=500000),
    _variant("theta_in_parameters", rope_parameters={"rope_theta": 500000.0, "rope_type": "default"}),
    _variant("theta_at_the_top_beside_parameters", rope_theta=500000.0, rope_parameters={"rope_type": "default"}),
    _variant("theta_in_both", rope_theta=1000.0, rope_parameters={"rope_theta": 500000.0, "rope_type": "default"}),
    _variant("parameters_empty", rope_theta=500000.0, rope_parameters={}),
    _variant("parameters_null", rope_theta=500000.0, rope_parameters=None),
    _variant("scaling_null", rope_theta=500000.0, rope_scaling=None),
    _variant("scaling_empty", rope_theta=500000.0, rope_scaling={}),
    _variant("scaling_empty_beside_parameters", rope_scaling={}, rope_parameters={"rope_theta": 500000.0, **_TYPED}),
    _variant("llama3_of_version_4", rope_theta=500000.0, rope_scaling=_TYPED),
    _variant("llama3_of_version_4_by_type", rope_theta=500000.0, rope_scaling={"type": "llama3", **_LLAMA3}),
    _variant("llama3_of_version_5", rope_parameters={"rope_theta": 500000.0, **_TYPED}),
    _variant("llama3_theta_at_the_top", rope_theta=500000.0, rope_parameters=_TYPED),
    _variant("llama3_scaling_with_theta", rope_scaling={"rope_theta": 500000.0, **_TYPED}),
    _variant("llama3_scaling_with_another_theta", rope_theta=1000.0, rope_scaling={"rope_theta": 500000.0, **_TYPED}),
    _variant("llama3_without_theta", rope_scaling=_TYPED),
    _variant("default_scaling_with_theta", rope_scaling={"rope_theta": 500000.0, "rope_type": "default"}),
    _variant("both_tables", rope_theta=2000.0, rope_scaling=_TYPED, rope_parameters={"rope_theta": 500000.0, "rope_type": "default"}),
    _variant("both_tables_llama3_in_the_new", rope_scaling={"rope_type": "default"}, rope_parameters={"rope_theta": 500000.0, **_TYPED}),
    _variant("both_tables_with_thetas", rope_scaling={"rope_theta": 3000.0, **_TYPED}, rope_parameters={"rope_theta": 500000.0, "rope_type": "default"}),
    _variant("original_at_the_top", rope_theta=500000.0, original_max_position_embeddings=64, rope_scaling=_TYPED),
    _variant("original_at_the_top_alone", rope_theta=500000.0, original_max_position_embeddings=64, rope_scaling={k: v for k, v in _TYPED.items() if not k.startswith("original")}),
    _variant("original_nowhere", rope_theta=500000.0, rope_parameters={k: v for k, v in _TYPED.items() if not k.startswith("original")}),
    _variant("whole_numbers", rope_theta=500000, rope_scaling={"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 128}),
    _variant("linear", rope_scaling={"type": "linear", "factor": 2.0}),
    _variant("linear_of_version_5", rope_parameters={"rope_theta": 10000.0, "rope_type": "linear", "factor": 2.0}),
    _variant("dynamic", "rope_type", rope_scaling={"rope_type": "dynamic", "factor": 2.0}),
    _variant("longrope", "rope_type", rope_scaling={"rope_type": "longrope", "factor": 2.0, "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}),
    _variant("yarn", rope_scaling={"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 128}),
    _variant("yarn_original_nowhere", rope_scaling={"type": "yarn", "factor": 2.0}),
    _variant("yarn_with_all_values", rope_parameters={"rope_theta": 500000.0, "rope_type": "yarn", "factor": 4.0, "attention_factor": 1.5, "beta_fast": 16.0, "beta_slow": 2.0, "original_max_position_embeddings": 64}),
    _variant("yarn_without_rounding", "truncate", rope_scaling={"rope_type": "yarn", "factor": 2.0, "truncate": False}),
    _variant("partly_rotated", "partial_rotary_factor", partial_rotary_factor=0.5),
    _variant("partly_rotated_in_parameters", "partial_rotary_factor", rope_parameters={"rope_theta": 10000.0, "rope_type": "default", "partial_rotary_factor": 0.5}),
    _variant("wholly_rotated", partial_rotary_factor=1.0),
    _variant("kv_heads_missing", without=["num_key_value_heads"]),
    _variant("kv_heads_null", num_key_value_heads=None),
    _variant("one_kv_head", num_key_value_heads=1),
    _variant("eps_missing", without=["rms_norm_eps"]),
    _variant("eps_large", rms_norm_eps=0.5),
    _variant("positions_missing", without=["max_position_embeddings"]),
    _variant("head_dim_null", head_dim=None),
    _variant("head_dim_said", head_dim=16),
    _variant("head_dim_other", head_dim=32),
    _variant("head_dim_odd", "head_dim", head_dim=15),
    _variant("activation_missing_is_silu", without=["hidden_act"]),
    _variant("activation_swish", hidden_act="swish"),
    _variant("activation_gelu", "hidden_act", hidden_act="gelu"),
    _variant("layers_of_a_window", "layer_types", layer_types=["full_attention", "sliding_attention"]),
    _variant("attention_bias", "attention_bias", attention_bias=True),
    _variant("mlp_bias", "mlp_bias", mlp_bias=True),
    _variant("no_biases", attention_bias=False, mlp_bias=False, pretraining_tp=1, use_cache=True, attention_dropout=0.0),
    _variant("quantized", "quantization_config", quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True}),
    _variant("of_the_dtype_key", dtype="bfloat16"),
    _variant("mistral_with_its_window", "sliding_window", **_MISTRAL, sliding_window=128),
    _variant("mistral_without_a_window", **_MISTRAL, sliding_window=None, rope_theta=1000000.0),
    _variant("mistral_with_a_wide_window", **_MISTRAL, sliding_window=256),
    _variant("mistral_by_default", "sliding_window", **_MISTRAL, without=["max_position_embeddings"]),
    _variant("mistral_kv_heads_by_default", **_MISTRAL, sliding_window=None, num_attention_heads=8, without=["num_key_value_heads"]),
]


# ------------------------------------------------------------------------------------------------------ TorchTitan

STEPS, HALF = 10, 5
# As small as a model with grouped heads and two layers goes: two of its checkpoints are committed.
SIZES = {"dim": 8, "n_layers": 2, "n_heads": 2, "n_kv_heads": 1, "vocab_size": 64, "multiple_of": 8}
FIGURES = ("loss", "grad_norm")
# Tensor parallelism with heads that two ranks can share. Without fully_shard, TorchTitan does not clip the gradients
# of norms, so that mesh is compared with a bound that no gradient reaches.
TENSOR_SIZES = SIZES | {"n_kv_heads": 2}
TENSOR = ["--parallelism.tensor_parallel_degree", "2"]
# Two ranks share each row.
CONTEXT = ["--parallelism.context_parallel_degree", "2"]
# Two ranks share the layers. There TorchTitan's gradients are of the sum of a step's losses: its norm is the program's
# times the tokens of a step, and both programs make the same steps if both clip in each. They do with this bound.
ALWAYS_CLIPPED = ["--training.max_norm", "0.1"]
STAGES = ["--parallelism.pipeline_parallel_degree", "2", *ALWAYS_CLIPPED]
INTERLEAVED = ["--parallelism.pipeline_parallel_schedule", "Interleaved1F1B"]
BF16 = ["--training.mixed_precision_param", "bfloat16"]
# TorchTitan's norms are divided by these: the tokens of one rank's batch, or of two.
NORM_DIVISORS = {"alone": 128, "interleaved": 128, "sharded": 256, "sharded_bf16": 256, "after_us": 128, "without_after_us": 1}
NEVER_CLIPPED = ["--training.max_norm", "1000"]
# Float8, with the smallest sizes that it takes, multiplied in float32 on the CPU.
FLOAT8_SIZES = SIZES | {"dim": 32, "multiple_of": 16}
FLOAT8 = ["--model.converters", "quantize.linear.float8", "--quantize.linear.float8.filter_fqns", "output"]
FLOAT8 += ["--quantize.linear.float8.emulate"]
FLOAT8_TABLE = "--quantize.linear.float8."
FLOAT8_GATHERED = [FLOAT8_TABLE + "enable_fsdp_float8_all_gather", FLOAT8_TABLE + "precompute_float8_dynamic_scale_for_fsdp"]
# Later, a value that float32 rounds otherwise on another machine has fallen to the next value of float8, 6 % away.
FLOAT8_STEPS = ["--training.steps", "4"]
FLOAT8_RECIPES = ("tensorwise", "rowwise", "rowwise_with_gw_hp")

JOB = """\
[job]
dump_folder = "{dump}"
[model]
name = "{model}"
flavor = "debugmodel"
hf_assets_path = "{tokenizer}"
[metrics]
log_freq = 1
[optimizer]
lr = 3e-2
[lr_scheduler]
warmup_steps = 3
decay_ratio = 0.5
total_steps = {steps}
[training]
dataset = "c4_test"
dataset_path = "{corpus}"
local_batch_size = 2
seq_len = 64
steps = {steps}
mixed_precision_param = "float32"
[checkpoint]
enable = true
interval = {half}
last_save_model_only = false
[activation_checkpoint]
mode = "none"
[debug]
seed = 42
"""


def write_job(context, name, steps=STEPS, model="llama3", half=HALF):
    """Writes a job. Its text is so short that it starts again within the run, on every rank."""
    path = context.folder / f"{name}.toml"
    dump = context.dump(name)
    path.write_text(JOB.format(dump=dump, model=model, tokenizer=TOKENIZER, corpus=CORPUS, steps=steps, half=half))
    return path


def size_words(sizes):
    return [f"--model.args.{key}={json.dumps(value)}" for key, value in sizes.items()]


# Options that TorchTitan's own debug_model.toml also needs to be trained and compared here. With one dtype, the
# printed digits can be compared.
DEBUG_WORDS = ["--model.hf_assets_path", TOKENIZER, "--training.dataset_path", CORPUS, "--debug.seed=42"]
DEBUG_WORDS += ["--training.seq_len=64", "--training.local_batch_size=2", "--training.mixed_precision_param", "float32"]


def hand_over(context, giver, taker, half=HALF):
    """Moves the first half's checkpoint of one run to the start of another."""
    target = context.dump(taker) / f"checkpoint/step-{half}"
    target.parent.mkdir(parents=True)
    (context.dump(giver) / f"checkpoint/step-{half}").rename(target)


def unpack_checkpoint(name, folder, golden=GOLDEN):
    """Unpacks TorchTitan's checkpoint resume_NAME.zip into `folder`; a number as name is its ranks."""
    with zipfile.ZipFile(golden / f"resume_{name}.zip") as archive:
        archive.extractall(folder)
    return folder


def pack_checkpoint(folder, path):
    """Packs the same checkpoint into the same bytes: no times, one order."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for file in sorted(folder.iterdir()):
            archive.writestr(zipfile.ZipInfo(file.name), file.read_bytes(), zipfile.ZIP_DEFLATED)


def near(found, expected):
    """True if two machines may give these two versions of one tensor of a checkpoint: five steps amplify 6e-8 of each
    sum to about 1e-6 of the full tensor, and the weights of another step are some 1e-2 away."""
    return (found.double() - expected.double()).norm() <= 1e-4 * expected.double().norm()


def mix_bits(value):
    mask = (1 << 64) - 1
    value = (value + 0x9E3779B97F4A7C15) & mask
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
    return value ^ (value >> 31)


def row_hash(tokens, labels):
    """Returns the hash of the program's sample log."""
    state = 0
    for token, label in zip(tokens, labels):
        state = mix_bits(mix_bits(state ^ token) ^ label)
    return str(state)


# ---------------------------------------------------------------------------------------------------- transformers

WEIGHT_STEPS = 4
HF_SIZES = {
    "hidden_size": 64, "intermediate_size": 180, "num_hidden_layers": 3, "num_attention_heads": 8,
    "num_key_value_heads": 2, "vocab_size": 64, "rms_norm_eps": 1e-6, "max_position_embeddings": 16384,
}  # fmt: skip
HF_ROPE = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
HF_ROPE |= {"original_max_position_embeddings": 128, "rope_theta": 10000.0}


@dataclasses.dataclass(frozen=True)
class Model:
    """A model of transformers' in our words."""

    name: str
    sizes: dict
    tables: str = ""  # more of the job file


# The same with our names.
LLAMA = Model("llama3", {
    "dim": 64, "n_layers": 3, "n_heads": 8, "n_kv_heads": 2, "vocab_size": 64, "norm_eps": 1e-6, "rope_theta": 10000,
    "multiple_of": 60,
}, """
[model.args.rope_scaling_args]
scaling_factor = 4.0
low_freq_factor = 1.0
high_freq_factor = 4.0
original_max_position_embeddings = 128
""")  # fmt: skip
SHARD_BYTES = 200_000
# Texts of the letters that the tokenizer has.
TEXTS = ["the rain in the train", "a note: one, two", "  spaces\n\nand lines  "]


# Prompts that are continued greedily. Two of the texts end by themselves.
PROMPTS = [
    "the mill stands by the water, and the water", "the smith has two hammers,", "three letters lay on the", "a cart came over the",
]  # fmt: skip
WRITTEN = 24  # tokens at most
BOS_ID, STOP_IDS = 62, [2, 63]  # defaults of transformers' config, and EOS of the tokenizer


def weight(name, shape):
    """Returns the fp32 values of a weight, row by row: uniform draws of deviation 0.2, for a norm 0.5 to 1.5."""
    draw = random.Random(name)
    half, center = (0.5, 1.0) if len(shape) == 1 else (0.2 * math.sqrt(3), 0.0)
    return array.array("f", (center + half * (2 * draw.random() - 1) for _ in range(math.prod(shape))))


def write_safetensors(path, shapes):
    """Writes a file of these names and shapes, filled by weight(), with the bytes of transformers' save_pretrained."""
    header, body = {"__metadata__": {"format": "pt"}}, b""
    for name, shape in sorted(shapes.items()):
        data = weight(name, shape).tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def read_config(folder):
    """Returns config.json without the one entry that only says who wrote it."""
    config = json.loads((folder / "config.json").read_text())
    config.pop("transformers_version", None)
    return config


def start_from(context, ranks, weights, name, steps, words, model=LLAMA):
    """Runs steps that change nothing, from the weights of a folder in transformers' format. Returns its dump folder."""
    path = write_job(context, name, steps, model.name)
    path.write_text(path.read_text() + model.tables)
    load = ["--checkpoint.initial_load_in_hf", "--checkpoint.initial_load_path", weights]
    train(context, ranks, ["--config", path, *size_words(model.sizes), *FP32, *STILL, *load, *words], name)
    return context.dump(name)


def convert_there_and_back(context, weights, model=LLAMA):
    """Exports weights in transformers' format by way of our own format. Returns the folder."""
    job, dcp, hf = write_job(context, "described", model=model.name), context.folder / "dcp", context.folder / "back"
    args = "[model.args]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in model.sizes.items())
    job.write_text(job.read_text() + args + model.tables)
    run(context, 1, ["convert", weights, dcp], name="to_dcp")
    run(context, 1, ["convert", dcp, hf, "--to", "hf", "--config", job], name="to_hf")
    return hf


def export(context, weights, dtype, model=LLAMA, ranks=3):
    """Returns the folder of an export by several ranks, of weights that the program has read."""
    words = ["--checkpoint.last_save_model_only", "--checkpoint.last_save_in_hf", "--checkpoint.export_dtype", dtype]
    return start_from(context, ranks, weights, f"export-{dtype}", 1, words, model) / "checkpoint/step-1"
