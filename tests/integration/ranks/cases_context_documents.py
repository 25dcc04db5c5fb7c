"""Tests context parallelism on rows of several documents and conversations, against the same runs with whole rows.

PyTorch's ring attention has no masks, so the program is its own peer here; cases_parity.py and cases_chat_training.py
compare its whole rows with others.
"""
import dataclasses
import itertools
import json

import cases_parity_table as table
from cases_chat_training import TEMPLATE, write_chats
from cases_parity import BF16_CEILING, BF16_FLOOR, FP32_TOLERANCE, bf16_bound
from cases_parity_context import BALANCER, CONTEXT, FP32_NORM_CEILING, FP32_WEIGHTS, ROTATE
from fixtures import write_job
from harness import case, check_close, expect, import_reference, read_rows, relative_distance, run
from oracle import KERNELS

STEPS = table.STEPS
# Weights tell most: attention is nearly even in a model that has just begun, and with the positions of another part of
# the row its losses move by as little as 3e-6, and its weights by a third of their way.
FP32_BOUNDS = {key: FP32_TOLERANCE for key in ("loss", "max_loss", "validation")}
FP32_BOUNDS |= {"grad_norm": FP32_NORM_CEILING, table.WEIGHTS: FP32_WEIGHTS}
BF16_FLOORS = {key: table.FLOORS.get(key, BF16_FLOOR) for key in FP32_BOUNDS}
BF16_CEILINGS = {key: table.CEILINGS.get(key, BF16_CEILING["loss"]) for key in FP32_BOUNDS}
# A rank's tokens are more than two parts of ptrr's smallest size, also where four ranks share rows.
SEQ_LEN = 512
FP32 = ["--training.mixed_precision_param", "float32"]
BALANCERS = {"headtail": "allgather", "ptrr": "alltoall", "None": "allgather"}  # with a way to exchange keys each
# name -> ranks, ranks that share rows, words, ranks with whole rows that read the same.
MESHES = {
    "2": (2, 2, [], 1),
    "4": (4, 4, [], 1),
    "2_sharded": (4, 2, [], 2),
    "2_tensor": (4, 2, ["--parallelism.tensor_parallel_degree", "2"], 1),
}


def pieces(context):
    """Yields texts from a few words to more than a row. A row has several, and most parts of a rank have an end."""
    text = "".join(json.loads(line)["text"] for line in open(context.fixtures / "corpus.jsonl", encoding="utf-8"))
    lengths = [40, 900, 61, 250, 2400, 130, 61, 500]
    begin, index = 0, 0
    while begin < 60_000:
        length = lengths[index % len(lengths)]
        yield text[begin : begin + length]
        begin, index = begin + length, index + 1


def write_documents(context):
    path = context.folder / "documents.jsonl"
    path.write_text("".join(json.dumps({"text": piece}) + "\n" for piece in pieces(context)), encoding="utf-8")
    return ["--training.dataset", "c4_test", "--training.dataset_path", path, "--model.args.attn_mask_type", "block_causal"]


def write_conversations(context, loss_weight):
    """Conversations of two and of four turns, of which only the answers are trained."""
    texts = [piece for piece in pieces(context) if len(piece) < 600]
    turns = [{"role": role, "content": text} for role, text in zip(["user", "assistant"] * len(texts), texts)]
    cuts = [0]
    while cuts[-1] + 4 <= len(turns):
        cuts.append(cuts[-1] + (2 if len(cuts) % 3 else 4))
    path = write_chats(context.folder / "chats.jsonl", [turns[a:b] for a, b in zip(cuts, cuts[1:])])
    (context.folder / "template.jinja").write_text(TEMPLATE)
    words = ["--training.dataset", "chat", "--training.dataset_path", path, "--chat.loss_weight", loss_weight]
    return [*words, "--chat.chat_template", context.folder / "template.jinja"]


DATA = {
    "documents": write_documents,
    "chats": lambda context: write_conversations(context, "token"),
    "chats_alike": lambda context: write_conversations(context, "sample"),
}


@dataclasses.dataclass
class Run:
    steps: list
    validations: list
    weights: dict  # after the last step


def train(context, ranks, words, name):
    init_weights, _ = import_reference()
    save = ["--checkpoint.enable", "--checkpoint.interval", "100000"]
    run(context, ranks, ["--config", write_job(context, name, steps=STEPS), *words, *save], name=name)
    dump = context.dump(name)
    steps, validations = (read_rows(dump / file) for file in ("metrics.jsonl", "validation.jsonl"))
    return Run(steps, validations, init_weights.load_weights(list(start_of(context, name)), dump / f"checkpoint/step-{STEPS}"))


def start_of(context, name):
    """Returns the weights that the seed of a job gives."""
    init_weights, job_file = import_reference()
    return init_weights.initial_weights(job_file.load_job(context.folder / f"{name}.toml"))


def common_words(data):
    """Words of all runs. Validation takes the whole set, whose last batch has fewer rows, and may have one for each of
    several ranks but not for all."""
    kind, path = data[data.index("--training.dataset") + 1], data[data.index("--training.dataset_path") + 1]
    words = [*data, "--training.seq_len", SEQ_LEN, "--validation.enable", "--validation.freq", 2, "--validation.steps", -1]
    words += ["--validation.dataset", "jsonl" if kind == "c4_test" else kind, "--validation.dataset_path", path]
    return [*words, "--validation.seq_len", SEQ_LEN, "--validation.local_batch_size", 3, "--activation_checkpoint.mode", "selective"]


def shared_words(mesh, balancer):
    return [CONTEXT, MESHES[mesh][1], *MESHES[mesh][2], BALANCER, balancer, ROTATE, BALANCERS[balancer]]


def distances(found, expected, start):
    """Returns {key of the bounds: the largest distance}."""
    result, _ = table.distances((found.steps, found.weights), (expected.steps, expected.weights), start)
    for name, key, mine, theirs in (
        ("max_loss", "max_loss", found.steps, expected.steps),
        ("validation", "loss", found.validations, expected.validations),
    ):
        result[name] = max(table.ordered(relative_distance(a[key], b[key])) for a, b in zip(mine, theirs))
    return result


def check_alike(found, expected, start, bounds, what):
    check_close(found.steps, expected.steps, ["tokens_seen"], 0.0, what)
    check_close(found.validations, expected.validations, ["tokens"], 0.0, what)
    distance = distances(found, expected, start)
    cells = " | ".join(f"{key} {distance[key]:.1e} <= {bound:.1e}" for key, bound in bounds.items())
    print(f"  {what} | {cells}", flush=True)
    expect(all(distance[key] <= bound for key, bound in bounds.items()), f"{what}: beyond a bound: {cells}")


@case(120, mesh=["2", "2_tensor"], data=["documents"], wide=["2_tensor_documents"])
@case(120, tier="wide", mesh=["4"], data=["chats"])
@case(120, tier="wide", mesh=["2_sharded"], data=["chats_alike"])
@case(120, tier="long", mesh=["2", "2_tensor"], data=["chats", "chats_alike"])
@case(120, tier="long", mesh=["4"], data=["documents", "chats_alike"])
@case(120, tier="long", mesh=["2_sharded"], data=["documents", "chats"])
def context_documents(context, mesh, data):
    """In fp32, losses, gradient norms, updated weights, validation losses and all counts are those of whole rows, however
    rows are dealt out."""
    made = DATA[data](context)
    words = [*common_words(made), *FP32]
    whole = train(context, MESHES[mesh][3], words, "whole")
    start = start_of(context, "whole")
    for balancer in BALANCERS:
        found = train(context, MESHES[mesh][0], [*words, *shared_words(mesh, balancer)], f"shared-{balancer}")
        check_alike(found, whole, start, FP32_BOUNDS, f"{mesh}, {data}, {balancer}")
    if data == "documents":
        unmasked = train(context, MESHES[mesh][3], [*words, "--model.args.attn_mask_type", "causal"], "unmasked")
        distance = max(relative_distance(a["loss"], b["loss"]) for a, b in zip(unmasked.steps, whole.steps))
        expect(distance > 10 * FP32_TOLERANCE, f"the mask makes no difference on this data: {distance:.1e}")


# Four rows at once, or one after the other. Ranks that share rows round gradients to bf16 in parts, and add them in fp32.
AT_ONCE = ["--training.local_batch_size", 4, "--training.global_batch_size", 4]
IN_PARTS = ["--training.local_batch_size", 1, "--training.global_batch_size", 4]


@case(120, tier="wide", mesh=["4"], data=["documents"])
@case(120, tier="long", mesh=["2"], data=["documents"])
@case(120, tier="long", mesh=["2", "4"], data=["chats"])
def context_documents_bf16(context, mesh, data):
    """The same in bf16, within the bounds of cases_parity.py. The yardstick is how far the program's runs with whole rows
    are apart: with its own kernels, with PyTorch's, and with as many parts of each gradient as four ranks make."""
    words = common_words(DATA[data](context))
    yardsticks = {"whole": AT_ONCE, "aten": [*AT_ONCE, *KERNELS["aten"][0]], "parts": IN_PARTS}
    runs = [train(context, 1, [*words, *more], name) for name, more in yardsticks.items()]

    start = start_of(context, "whole")
    found = [distances(a, b, start) for a, b in itertools.combinations(runs, 2)]
    bounds = {
        key: bf16_bound(max(pair[key] for pair in found), BF16_FLOORS[key], ceiling) for key, ceiling in BF16_CEILINGS.items()
    }
    for balancer in BALANCERS:
        shared = train(context, MESHES[mesh][0], [*words, *AT_ONCE, *shared_words(mesh, balancer)], f"shared-{balancer}")
        check_alike(shared, runs[0], start, bounds, f"{mesh}, {data}, {balancer}, bf16")
