"""Weights that go to and from transformers' LlamaForCausalLM itself, where a Python has it ($TITAN_PEER_PYTHON)."""
import json

from checkpoint_tools import FP32, STILL, train
from fixtures import write_job
from harness import Job, case, expect, import_reference, peer_python, read_rows, relative_distance

STEPS, RANKS = 4, 2
# Both sides sum in fp32 in other orders (see cases_parity.py). Rows of a head in the wrong order, or the key heads given
# to the wrong queries, move the loss of these weights by 1e-3 and more.
TOLERANCE = 1e-5

# transformers makes or loads the model, and writes the mean loss of each (tokens, labels).
PEER = """
import json, sys, torch, torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM
folder, action, batches, output = sys.argv[1:5]
torch.set_num_threads(1)
torch.manual_seed(3)
if action == "make":
    config = LlamaConfig(
        hidden_size=64, intermediate_size=180, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=2,
        vocab_size=2048, rms_norm_eps=1e-6, initializer_range=0.2, tie_word_embeddings=False, max_position_embeddings=16384,
        rope_theta=10000.0, attn_implementation="eager", dtype="float32",
        rope_scaling={"rope_type": "llama3", "rope_theta": 10000.0, "factor": 4.0, "low_freq_factor": 1.0,
                      "high_freq_factor": 4.0, "original_max_position_embeddings": 128})
    model = LlamaForCausalLM(config)
    for name, weight in model.named_parameters():
        if weight.dim() == 1:  # norms are ones otherwise, which any norm could take the place of
            torch.nn.init.uniform_(weight, 0.5, 1.5)
    model.save_pretrained(folder, max_shard_size="400KB")
else:
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
model.eval()
losses = []
with torch.no_grad():
    for tokens, labels in json.load(open(batches)):
        logits = model(torch.tensor(tokens)).logits
        losses.append(F.cross_entropy(logits.flatten(0, 1), torch.tensor(labels).flatten()).item())
json.dump({"losses": losses, "grouped": model.config.num_attention_heads // model.config.num_key_value_heads}, open(output, "w"))
"""

# The same sizes in our words.
THEIR_SIZES = {
    "dim": 64, "n_layers": 3, "n_heads": 8, "n_kv_heads": 2, "vocab_size": 2048, "norm_eps": 1e-6, "rope_theta": 10000,
    "multiple_of": 60,
}  # fmt: skip
THEIR_ROPE = """
[model.args.rope_scaling_args]
scaling_factor = 4.0
low_freq_factor = 1.0
high_freq_factor = 4.0
original_max_position_embeddings = 128
"""


def write_batches(context, config):
    """What the ranks train on in STEPS steps, as pairs of lists; rank after rank within a step."""
    _, job_file = import_reference()
    import text_data

    job = job_file.load_job(config)
    sources = [text_data.rank_batches(job, rank, RANKS) for rank in range(RANKS)]
    batches = [[part.tolist() for part in next(source)] for _ in range(STEPS) for source in sources]
    path = context.folder / "batches.json"
    path.write_text(json.dumps(batches))
    return path


def transformers_losses(context, python, folder, action, batches):
    """The mean loss of each step, and the query heads per key head."""
    output = context.folder / "losses.json"
    env = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(context.folder / "hf"), "CUDA_VISIBLE_DEVICES": ""}
    job = Job([python, "-c", PEER, folder, action, batches, output], context.folder / "logs", "transformers", env)
    expect(job.wait(100) == 0, f"transformers failed\n{job.tail(30)}")
    found = json.loads(output.read_text())
    means = [sum(found["losses"][at : at + RANKS]) / RANKS for at in range(0, STEPS * RANKS, RANKS)]
    return means, found["grouped"]


def our_losses(context, config, folder, words=()):
    """The losses of steps that change nothing, from the weights of the folder."""
    load = ["--checkpoint.enable", "--checkpoint.load_only", "--checkpoint.initial_load_in_hf"]
    load += ["--checkpoint.initial_load_path", folder]
    train(context, RANKS, ["--config", config, *FP32, *STILL, *load, *words], "ours")
    return [row["loss"] for row in read_rows(context.dump("ours") / "metrics.jsonl")]


def check_equal(found, expected):
    expect(len(found) == len(expected) == STEPS, f"{len(found)} losses, {len(expected)} of transformers")
    expect(max(expected) - min(expected) > 1e-3, f"the batches do not differ: {expected}")
    for step, (mine, theirs) in enumerate(zip(found, expected), 1):
        distance = relative_distance(mine, theirs)
        expect(distance <= TOLERANCE, f"batch {step}: loss {mine}, transformers' {theirs}: {distance:.1e}")


@case(200, dtype=["float32", "bfloat16"])
def transformers_reads_ours(context, dtype):
    """from_pretrained on an export gives, batch by batch, the loss that a run which starts from it has."""
    python = peer_python("transformers")
    if python is None:
        return
    export = ["--checkpoint.enable", "--checkpoint.last_save_in_hf", "--checkpoint.export_dtype", dtype]
    # Long enough that heads and layers do something: the rows of a fresh wq can be swapped unseen.
    words = [*FP32, "--optimizer.lr", "1e-2", "--lr_scheduler.decay_ratio", "0"]
    train(context, 3, ["--config", write_job(context, "export", steps=30), *words, *export], "export")
    folder = context.dump("export") / "checkpoint/step-30"
    config = write_job(context, "ours", steps=STEPS)
    expected, grouped = transformers_losses(context, python, folder, "load", write_batches(context, config))
    expect(grouped == 2, f"{grouped} query heads per key head, expected 2")
    check_equal(our_losses(context, config, folder), expected)


@case(120)
def we_read_transformers(context):
    """A random LlamaForCausalLM of save_pretrained, in several files, has the loss here that it has there."""
    python = peer_python("transformers")
    if python is None:
        return
    config = write_job(context, "ours", steps=STEPS)
    folder = context.folder / "theirs"
    expected, grouped = transformers_losses(context, python, folder, "make", write_batches(context, config))
    files = list(folder.glob("*.safetensors"))
    expect(len(files) > 1 and grouped == 4, f"{len(files)} files, {grouped} query heads per key head")
    sizes = [word for key, value in THEIR_SIZES.items() for word in (f"--model.args.{key}", value)]
    config.write_text(config.read_text() + THEIR_ROPE)
    check_equal(our_losses(context, config, folder, sizes), expected)
