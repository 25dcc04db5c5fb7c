"""Compares Qwen3 with the reference, with TorchTitan 0.2.2 and with transformers, whose answers are in tests/golden."""
import dataclasses
import itertools

import cases_parity_table as table
import cases_parity_tensor as tensor_table
import golden
import golden_qwen3 as qwen3
from cases_checkpoint_peers import check_alike, check_figures
from cases_generate import GREEDY, PROMPTS, check_argmax, samples, sentencepieces
from cases_parity import FP32, KEYS, STEPS, bf16_bound, bf16_tolerance, compare, run_program
from cases_transformers import check_config, check_losses, check_weights, our_losses, write_theirs
from cases_validation import model_of
from checkpoint_tools import SAVE, check_same_tensors, read_state, train
from fixtures import QWEN3_MODEL, write_job
from harness import case, check_close, expect, import_reference, rows_by_step, run
from oracle import KERNELS, answer, ask, ask_variants

# ----------------------------------------------------------------------------------------------------- the reference

# A tied table takes a tenth of the job's learning rate (see cases_parity_table.py).
TIES = {"tied": ["--model.args.enable_weight_tying=true", "--optimizer.lr=3e-4"], "untied": ["--model.args.enable_weight_tying=false"]}
MESHES = {"1": (1, []), "2": (2, []), "tensor": (2, golden.TENSOR), "both": (4, golden.TENSOR)}


def ask_of_mesh(mesh, tie, tier):
    ranks, words = MESHES[mesh]
    words = [*FP32, *TIES[tie], *words]
    ask(ranks, f"qwen3 {tie} {mesh}", words, STEPS, QWEN3_MODEL, tier)
    ask(ranks, f"qwen3 gradients {tie} {mesh}", words, 1, QWEN3_MODEL, tier, state=True)


for mesh, tie in itertools.product(MESHES, TIES):
    ask_of_mesh(mesh, tie, "integration" if tie == {"1": "tied", "2": "untied", "tensor": "untied", "both": "tied"}[mesh] else "long")


@case(120, mesh=["2", "tensor"], tie=["untied"], quick=["2"])
@case(120, mesh=["1", "both"], tie=["tied"])
@case(120, tier="long", mesh=["2", "tensor"], tie=["tied"])
@case(120, tier="long", mesh=["1", "both"], tie=["untied"])
def qwen3_parity(context, mesh, tie):
    """fp32 losses, gradient norms and rates are the reference's: sharded, with tensor parallelism, and with both."""
    compare(context, MESHES[mesh][0], f"qwen3 {tie} {mesh}", QWEN3_MODEL)


# In fp32 two correct programs differ by 2^-24 = 6e-8 per operation; through two layers, PyTorch's plain attention moves
# no gradient by more than 5e-7 of its length (measured). A head's norm or rotation that is missing in backward moves
# the gradients of its layer by 1e-1 and more.
GRADIENT_TOLERANCE = 1e-5


@case(60, mesh=["1", "both"], tie=["tied"])
@case(60, mesh=["2", "tensor"], tie=["untied"])
@case(60, tier="long", mesh=["2", "tensor"], tie=["tied"])
@case(60, tier="long", mesh=["1", "both"], tie=["untied"])
def qwen3_gradients(context, mesh, tie):
    """The gradient of each parameter is the reference's: Adam's first moment is a tenth of it after one step."""
    ranks, _ = MESHES[mesh]
    reference = answer(context, ranks, f"qwen3 gradients {tie} {mesh}")
    config = write_job(context, "program", QWEN3_MODEL, 1)
    train(context, ranks, ["--config", config, *SAVE, "--checkpoint.initial_load_path", reference.seed, *reference.words], "program")
    found, expected = (moments(folder) for folder in (context.dump("program") / "checkpoint/step-1", reference.state))
    expect(set(found) == set(expected) and len(found) == 24 + (tie == "untied"), f"the moments are {sorted(found)}")
    for key, theirs in expected.items():
        distance = ((found[key] - theirs).norm() / theirs.norm()).item()
        expect(distance <= GRADIENT_TOLERANCE, f"{key} is off by {distance:.1e} of its length")


def moments(folder):
    return {key: value.double() for key, value in read_state(folder).items() if key.endswith(".exp_avg")}


for ranks in (1, 2):
    for tie, tied in TIES.items():
        ask(ranks, f"qwen3 bf16 {tie}", tied, STEPS, QWEN3_MODEL, "integration" if tie == "tied" else "long")
        ask_variants(ranks, f"qwen3 bf16 {tie}")


@case(180, ranks=[1, 2], tie=["tied"], kernels=["own"])
@case(180, tier="long", ranks=[1, 2], tie=["untied"], kernels=["own"])
@case(180, tier="long", ranks=[1, 2], tie=list(TIES), kernels=["aten"])
def qwen3_parity_bf16(context, ranks, tie, kernels):
    """bf16 losses and gradient norms are as near to the reference's as Llama's must be (cases_parity.py): the rotation
    runs in bf16, with a table that was rounded to it."""
    name = f"qwen3 bf16 {tie}"
    expected, tolerance = bf16_tolerance(context, ranks, kernels, name)
    found = run_program(context, ranks, answer(context, ranks, name), KERNELS[kernels][0], template=QWEN3_MODEL)
    check_close(found, expected, KEYS, tolerance, f"{ranks} ranks, {kernels} kernels")


# ------------------------------------------------------------------------------------------------ ways to spread it

# No dimension of "uneven" is a multiple of 4, and its vocabulary is prime. "narrow" has fewer key rows than ranks, no
# norms of heads, and first weights that do not depend on a layer's depth.
SHAPES = {
    "qwen3 tied": {"enable_weight_tying": "true"},
    "qwen3 untied": {"enable_weight_tying": "false", "n_heads": 8, "n_kv_heads": 4, "head_dim": 16},
    "qwen3 uneven": {
        "dim": 50, "n_layers": 3, "n_heads": 5, "n_kv_heads": 5, "head_dim": 14, "vocab_size": 2053, "hidden_dim": 133,
        "enable_weight_tying": "true",
    },
    "qwen3 narrow": {
        "dim": 10, "n_heads": 5, "n_kv_heads": 1, "head_dim": 2, "vocab_size": 2049, "hidden_dim": 27, "qk_norm": "false",
        "depth_init": "false", "enable_weight_tying": "false",
    },
}  # fmt: skip
JOB = QWEN3_MODEL.replace("local_batch_size = 2", f"local_batch_size = {table.LOCAL_BATCH}")


@dataclasses.dataclass(frozen=True)
class Row(table.Row):
    job = JOB
    shapes = SHAPES


@dataclasses.dataclass(frozen=True)
class TensorRow(tensor_table.Row):
    job = JOB
    shapes = SHAPES


TABLE = [
    Row("zero3", "by op", "fp32", 2, False, 2, "qwen3 uneven"),
    Row("zero2", "full", "bf16", 1, False, 2, "qwen3 tied"),
    Row("ddp", "every 2", "fp32", 1, False, 2, "qwen3 tied"),
    Row("zero3", "none", "fp32", 1, True, 3, "qwen3 narrow"),
    Row("hsdp", "by op", "bf16", 1, False, 4, "qwen3 untied"),
    Row("zero2", "full", "fp32", 1, False, 4, "qwen3 uneven"),
    TensorRow("tp", "by op", "fp32", 2, False, "qwen3 untied"),
    TensorRow("tp", "full", "bf16", 1, True, "qwen3 tied"),
    TensorRow("tp x fsdp", "by op", "bf16", 1, True, "qwen3 untied", overlaps=True),
    TensorRow("tp x fsdp", "full", "fp32", 2, True, "qwen3 tied", "zero2"),
]
def tier_of(row):
    return "long" if row.dtype == "bf16" and row.ranks == 4 else "integration"


for row in TABLE:
    ask(row.ranks, row.name, row.words(), table.STEPS, JOB, tier_of(row), weights=True, ddp=isinstance(row, Row) and row.is_ddp)
    if row.dtype == "bf16":
        ask_variants(row.ranks, row.name, table.VARIANTS)


# As table.FP32_BOUNDS: another attention kernel of PyTorch moves weights by 6e-6 to 9e-6 in six steps, three times as
# far as Llama's (measured). Own kernels: five operators, and another processor.
FP32_WEIGHTS = {"own": 3 * 5 * 9e-6, "aten": 3 * 9e-6}


def bounds_of(context, row, kernels):
    if row.dtype == "fp32":
        return table.FP32_BOUNDS[kernels] | {table.WEIGHTS: FP32_WEIGHTS[kernels]}
    spread = table.spreads(context, row, kernels)
    return {key: bf16_bound(spread[key], table.FLOORS[key], ceiling) for key, ceiling in table.CEILINGS.items()}


def check_rows(context, ranks, kernels, tier="integration"):
    rows = [row for row in TABLE if row.ranks == ranks and tier_of(row) == tier]
    wrong = [table.check_row(context, index, row, kernels, bounds_of(context, row, kernels)) for index, row in enumerate(rows)]
    wrong = [line for line in wrong if line]
    expect(not wrong, f"{len(wrong)} of {len(rows)} rows:\n" + "\n".join(wrong))


@case(300, ranks=[2, 3, 4], kernels=["own"])
@case(300, tier="long", ranks=[2], kernels=["aten"])
def qwen3_table(context, ranks, kernels):
    """Losses, gradient norms and updated weights are PyTorch's with each way to spread parameters and layers."""
    check_rows(context, ranks, kernels)


@case(300, tier="long")
def qwen3_table_in_bf16(context):
    """The same of 4 ranks in bf16."""
    check_rows(context, 4, "own", "long")


# ------------------------------------------------------------------------------------------------ start and inference


@case(60, ranks=[1], tie=["tied"])
@case(60, ranks=[2], tie=["untied"])
@case(60, tier="long", ranks=[1], tie=["untied"])
@case(60, tier="long", ranks=[2], tie=["tied"])
def qwen3_init(context, ranks, tie):
    """The seed checkpoint has, on any number of ranks, the bits of a one-rank TorchTitan initialization."""
    config = write_job(context, "seed", QWEN3_MODEL)
    run(context, ranks, ["--config", config, *TIES[tie], "--checkpoint.enable", "--checkpoint.create_seed_checkpoint"])
    init_weights, job_file = import_reference()
    expected = init_weights.initial_weights(job_file.load_job(config, TIES[tie]))
    found = init_weights.load_weights(expected, context.dump("seed") / "checkpoint/step-0")
    lines = init_weights.differences(expected, found)
    expect(not lines, "weights differ from the reference:\n" + "\n".join(lines))


@case(120)
def qwen3_generate(context):
    """Greedy tokens are the argmax of the reference's logits, for the weights of a run."""
    config = write_job(context, "run", QWEN3_MODEL, STEPS)
    run(context, 2, ["--config", config, *FP32, *SAVE, "--checkpoint.interval", STEPS])
    (context.folder / "prompts.txt").write_text("\n".join(PROMPTS) + "\n", encoding="utf-8")
    words = [*GREEDY, "--prompts", context.folder / "prompts.txt", "--max-tokens", 24]
    rows = samples(context, context.dump("run"), *words)
    model, pieces = model_of(context, config, STEPS, "run"), sentencepieces(context)
    expect([row["prompt"] for row in rows] == PROMPTS, f"other prompts: {rows}")
    for row in rows:
        expect(len(row["ids"]) == 24 or row["ids"][-1] == pieces.eos_id(), f"{len(row['ids'])} tokens")
        check_argmax(model, row, row["prompt"])


# -------------------------------------------------------------------------------------------------------- TorchTitan

# As in cases_checkpoint_peers.py, with twice the steps: the reference is within half of the last printed digit all the
# way, 5e-6 and 5e-5. An eps of 1e-5 moves a loss by 1e-2 (tried).
TOLERANCE = {"loss": 5e-5, "grad_norm": 2e-4}
# mesh -> (ranks, words, TorchTitan's ranks with the same batches): its Qwen3 has no tensor parallelism on CPU.
SEEDED = {"1": (1, [], "1"), "2": (2, [], "2"), "tensor": (2, golden.TENSOR, "1"), "both": (4, golden.TENSOR, "2")}


def ours(context, name, mesh, words):
    """Returns the program's rows of the tiny job. `words`: the start."""
    ranks, more, _ = SEEDED[mesh]
    train(context, ranks, ["--config", qwen3.write_job(context, name), *golden.size_words(qwen3.SIZES), *more, *words], name)
    return rows_by_step(context.dump(name) / "metrics.jsonl")


def check_their_figures(found, theirs, what, first=1, tolerances=TOLERANCE):
    check_figures(found, theirs, what, first, qwen3.STEPS, tolerances)


@case(60, processors=1)
def qwen3_torchtitan_full(context):
    """The full debugmodel has TorchTitan's losses from the seed on: one seed gives the same weights."""
    # The largest norm is 50, and printed as exactly as the others.
    tolerances = TOLERANCE | {"grad_norm": 1e-3}
    words = ["--config", qwen3.write_job(context, "full"), *qwen3.FULL]
    train(context, 1, words, "full", timeout_s=55)
    found, theirs = rows_by_step(context.dump("full") / "metrics.jsonl"), golden.answers("qwen3_full")
    check_their_figures(found, theirs, "the full debugmodel", tolerances=tolerances)


@case(60, mesh=list(SEEDED))
def qwen3_torchtitan_seed(context, mesh):
    """From TorchTitan's seed checkpoint, every mesh has its figures, and on the way its weights and moments."""
    theirs = golden.answers("qwen3_torchtitan")[SEEDED[mesh][2]]
    found = ours(context, "we", mesh, qwen3.start_words(context))
    check_their_figures(found, theirs, f"mesh {mesh}")
    mine = read_state(context.dump("we") / f"checkpoint/step-{qwen3.HALF}")
    half = read_state(golden.unpack_checkpoint(f"qwen3_{SEEDED[mesh][2]}", context.folder / "their_half"))
    check_alike(mine, half, same_start=True)
    check_same_tensors({"it": mine["output.weight"]}, {"it": mine["tok_embeddings.weight"]}, "the tied table")
    expect("optimizer.state.output.weight.exp_avg" not in mine, "the second name of the tied table has moments")


@case(60, mesh=list(SEEDED))
def qwen3_torchtitan_after(context, mesh):
    """Every mesh goes on from TorchTitan's checkpoint, data and schedule included, as TorchTitan did."""
    theirs = SEEDED[mesh][2]
    golden.unpack_checkpoint(f"qwen3_{theirs}", context.dump("we") / f"checkpoint/step-{qwen3.HALF}")
    found = ours(context, "we", mesh, [])
    check_their_figures(found, golden.answers("qwen3_torchtitan")[theirs], f"mesh {mesh}", qwen3.HALF + 1)


@case(60, mesh=list(qwen3.HANDED_OVER))
def qwen3_torchtitan_goes_on(context, mesh):
    """TorchTitan, going on from our checkpoint, had the figures that we have when we go on ourselves."""
    ranks, _, more = qwen3.HANDED_OVER[mesh]
    words = ["--config", qwen3.write_job(context, "we"), *golden.size_words(qwen3.SIZES), *more, *qwen3.start_words(context)]
    train(context, ranks, words, "we")
    rest = {step: row for step, row in rows_by_step(context.dump("we") / "metrics.jsonl").items() if step > qwen3.HALF}
    check_their_figures(rest, golden.answers("qwen3_after_us")[mesh], f"TorchTitan after us, {mesh}", qwen3.HALF + 1)


# ------------------------------------------------------------------------------------------------------ transformers


def their_folder(context, tie):
    return write_theirs(context, golden.answers("qwen3_transformers")[tie])


@case(30, tie=["tied"], processors=1)
@case(30, tier="long", tie=["untied"], processors=1)
def qwen3_reference_logits(context, tie):
    """The reference, which the other cases trust, has the logits of transformers' Qwen3ForCausalLM."""
    import torch

    (models,) = import_reference("models")
    answers = golden.answers("qwen3_transformers")[tie]
    args = qwen3.MODELS[tie].sizes
    job = {"model": {"name": qwen3.MODEL, "flavor": "debugmodel", "args": args}, "training": {"seq_len": len(answers["tokens"])}}
    job["lora"] = {"rank": 0, "base_dtype": None}
    model = models.build_initialized(job, seed=0)
    weights = dict(model.named_parameters())
    shapes = {name: shape for file in answers["files"].values() for name, shape in file["tensors"].items()}
    expect({qwen3.our_name(name) for name in shapes} == set(weights), "the reference has other weights")
    with torch.no_grad():
        for name, shape in shapes.items():
            values = torch.frombuffer(golden.weight(name, shape), dtype=torch.float32)
            weights[qwen3.our_name(name)].copy_(values.view(shape))
        found = model(torch.tensor([answers["tokens"]]))[0, -1]
    expected = torch.tensor(answers["logits"])
    expect(expected.abs().max() > 1, "the logits are nearly zero")
    # They are some 3 in size, and both sum in fp32 in other orders: 2e-6 apart (measured). No norm of heads, another
    # theta or pairs of neighbors instead of halves move them by 1 and more (tried).
    gap = (found - expected).abs().max().item()
    expect(gap <= 2e-5, f"the logits are off by {gap}")


@case(60, tie=list(TIES))
def qwen3_reads_transformers(context, tie):
    """A Qwen3ForCausalLM of save_pretrained, in several files, has the same loss here as there."""
    folder, answers = their_folder(context, tie)
    check_losses(our_losses(context, folder, qwen3.MODELS[tie]), answers["losses"])


@case(60, tie=["tied"], dtype=["float32"])
@case(60, tie=["untied"], dtype=["bfloat16"])
@case(60, tier="long", tie=["untied"], dtype=["float32"])
@case(60, tier="long", tie=["tied"], dtype=["bfloat16"])
def qwen3_for_transformers(context, tie, dtype):
    """An export has the weights that were read, bit for bit, and the config that from_pretrained has read."""
    folder, answers = their_folder(context, tie)
    model = qwen3.MODELS[tie]
    export = golden.export(context, folder, dtype, model)
    check_weights(export, answers, dtype)
    expected = golden.answers("qwen3_exports")[tie][dtype]
    check_config(export, expected["config"])
    check_losses(our_losses(context, export, model), expected["losses"])


@case(60, tie=list(TIES))
def qwen3_converts(context, tie):
    """Weights of transformers' come back bit for bit by way of our own format."""
    folder, answers = their_folder(context, tie)
    check_weights(golden.convert_there_and_back(context, folder, qwen3.MODELS[tie]), answers, "float32")
