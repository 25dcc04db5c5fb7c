"""Tests every way to spread parameters, in pairs with every other setting of numbers or memory, against PyTorch.

Both programs start from the same weights and take the same tokens. After STEPS steps every loss, every gradient norm
and every updated parameter must be PyTorch's. The reference of a row is FSDP2, or DistributedDataParallel for replicas
in fp32.
"""
import dataclasses
import itertools
import math

import fixtures
from cases_parity import BF16_CEILING, BF16_FLOOR, FP32_TOLERANCE, bf16_bound
from harness import Failure, case, expect, import_reference, read_rows, relative_distance, start_plain
from oracle import KERNELS, answer, ask, ask_variants, variants_of

STEPS = 6
KEYS = ("loss", "grad_norm")
LOCAL_BATCH = 1
JOB = fixtures.SMALL_MODEL.replace("local_batch_size = 2", f"local_batch_size = {LOCAL_BATCH}")

# A weight's distance is Euclidean over the full weight, relative to how far the reference has moved it. Adam divides
# by the root of the second moment, so an element whose gradient is near zero turns a rounding into a full step of lr,
# and no useful bound holds for each element alone. For the same reason the ALONE elements of a matrix that are farthest
# off do not count: one such element among 4,096 was seen to multiply the distance of its weight by 40. A fault of
# sharding is never smaller than a row, and no matrix here has rows of fewer than ten elements.
WEIGHTS = "weights"
ALONE = 2
# In fp32, another attention kernel of PyTorch moves weights of these sizes by 2e-6 to 3e-6 in six steps; a wrong sum,
# a shard that misses a step or a parameter in the wrong place moves one by 0.1 and more. With PyTorch's operators the
# program gives PyTorch's bits if the processor's matmuls do. Its own kernels round five operators of a layer in
# another way, where that attention kernel rounds one: 1e-5, if all five pull the same way. Their rounding depends on
# the processor's vectors, so another processor is a new draw: three times that.
FP32_BOUNDS = {
    kernels: {**dict.fromkeys(KEYS, FP32_TOLERANCE), WEIGHTS: weights}
    for kernels, weights in {"own": 3 * 5 * 2e-6, "aten": FP32_TOLERANCE}.items()
}
# In bf16 the bound is a multiple of the distance between two of PyTorch's runs with its own kernels, as in
# cases_parity.py, with its floor (for weights: a few elements of small gradient rounded once differently) and ceiling.
# The yardstick is the largest distance in all rows of that dtype and number of ranks with one microbatch, which rounds
# its sums least: how far one row's runs diverge is chance, and other kernels on another processor are a new draw.
FLOORS = {**dict.fromkeys(KEYS, BF16_FLOOR), WEIGHTS: 3e-3}
VARIANTS = ("plain attention", "float32 attention", "fused SwiGLU")
CEILINGS = {**{key: BF16_CEILING[key] for key in KEYS}, WEIGHTS: 9e-2}

# No dimension of "uneven" is a multiple of 4 and its vocabulary is prime; of "narrow", the key and value projections
# have two rows, fewer than four ranks, and the norms ten elements. "tied" is Llama 3.2 1B, narrower. A
# tied embedding begins with a standard deviation of dim**-0.5, not 1: the job's learning rate would move it by several
# percent per step, and rounding errors would grow tenfold from step to step. A tenth of that rate is usual for it.
TIED = {"enable_weight_tying": "true", "dim": 128, "n_heads": 8, "n_kv_heads": 2, "ffn_dim_multiplier": 1.5, "multiple_of": 32}
SHAPES = {
    "even": {},
    "uneven": {"dim": 50, "n_layers": 3, "n_heads": 5, "n_kv_heads": 5, "vocab_size": 2053, "multiple_of": 7},
    "narrow": {"dim": 10, "n_layers": 2, "n_heads": 5, "n_kv_heads": 1, "vocab_size": 2049, "multiple_of": 3},
    "tied": TIED,
    # For tensor parallelism: two ranks have 1027 and 1026 of the rows of a vocabulary of 2053.
    "odd vocabulary": {"vocab_size": 2053},
    "deep": {"n_layers": 3, "n_heads": 8, "n_kv_heads": 4},
}
STRATEGIES = {
    "zero3": ["--parallelism.fsdp_reshard_after_forward", "always"],
    "zero2": ["--parallelism.fsdp_reshard_after_forward", "never"],
    "hpz": ["--parallelism.fsdp_reshard_after_forward", "2"],
    "hsdp": ["--parallelism.data_parallel_replicate_degree", "2"],
    "ddp": ["--parallelism.data_parallel_shard_degree", "1", "--parallelism.data_parallel_replicate_degree"],
}
DTYPES = {"fp32": ("float32", "float32"), "bf16": ("bfloat16", "float32"), "bf16 reduce": ("bfloat16", "bfloat16")}
CHECKPOINTING = {
    "none": ["--activation_checkpoint.mode", "none"],
    "full": ["--activation_checkpoint.mode", "full"],
    "every 2": ["--activation_checkpoint.mode", "selective", "--activation_checkpoint.selective_ac_option", "2"],
    "by op": ["--activation_checkpoint.mode", "selective", "--activation_checkpoint.selective_ac_option", "op"],
}


@dataclasses.dataclass(frozen=True)
class Row:
    job = JOB
    shapes = SHAPES

    strategy: str
    checkpointing: str
    dtype: str
    accumulate: int
    offload: bool
    ranks: int
    shape: str

    @property
    def name(self):
        words = [self.strategy, self.dtype, self.shape, f"{self.accumulate}x", f"recompute {self.checkpointing}"]
        return ", ".join([*words, "offload"] if self.offload else words)

    @property
    def is_ddp(self):
        return self.strategy == "ddp" and self.dtype == "fp32" and not self.offload

    def words(self):
        """Returns the command-line overrides for both programs."""
        param, reduce = DTYPES[self.dtype]
        words = ["--training.mixed_precision_param", param, "--training.mixed_precision_reduce", reduce]
        words += [*STRATEGIES[self.strategy], *([str(self.ranks)] if self.strategy == "ddp" else [])]
        words += ["--training.global_batch_size", str(LOCAL_BATCH * self.ranks * self.accumulate)]
        words += CHECKPOINTING[self.checkpointing]
        words += ["--training.enable_cpu_offload"] if self.offload else []
        return words + shape_words(self)


def shape_words(row):
    sizes = row.shapes[row.shape]
    words = [f"--model.args.{name}={value}" for name, value in sizes.items()]
    return words + (["--optimizer.lr=3e-4"] if sizes.get("enable_weight_tying") == "true" else [])


# Any two values of any two of the first five columns meet in at least one row; check_covering() checks that.
TABLE = [
    Row("zero3", "none", "bf16 reduce", 1, True, 4, "uneven"),
    Row("zero3", "full", "bf16", 1, False, 2, "narrow"),
    Row("zero3", "every 2", "fp32", 2, True, 4, "narrow"),
    Row("zero3", "by op", "bf16 reduce", 1, False, 2, "even"),
    Row("zero2", "none", "bf16", 1, True, 2, "uneven"),
    Row("zero2", "full", "bf16 reduce", 1, False, 4, "even"),
    Row("zero2", "every 2", "bf16", 2, True, 2, "even"),
    Row("zero2", "by op", "fp32", 2, False, 4, "uneven"),
    Row("hpz", "none", "bf16", 2, False, 4, "even"),
    Row("hpz", "full", "fp32", 1, False, 4, "uneven"),
    Row("hpz", "every 2", "bf16 reduce", 2, False, 4, "even"),
    Row("hpz", "by op", "bf16", 1, True, 4, "narrow"),
    Row("hsdp", "none", "fp32", 2, False, 4, "uneven"),
    Row("hsdp", "full", "bf16 reduce", 2, True, 4, "uneven"),
    Row("hsdp", "every 2", "bf16", 1, True, 4, "even"),
    Row("hsdp", "by op", "fp32", 1, True, 4, "narrow"),
    Row("ddp", "none", "bf16 reduce", 1, True, 2, "even"),
    Row("ddp", "full", "bf16 reduce", 1, True, 2, "uneven"),
    Row("ddp", "every 2", "bf16", 2, True, 2, "narrow"),
    Row("ddp", "by op", "fp32", 1, False, 2, "uneven"),
    Row("zero3", "none", "fp32", 1, False, 3, "uneven"),
    Row("zero2", "full", "fp32", 2, False, 3, "narrow"),
    Row("zero3", "none", "fp32", 2, False, 1, "tied"),
    Row("zero2", "none", "fp32", 1, False, 2, "tied"),
    Row("zero3", "full", "bf16", 1, False, 2, "tied"),
    Row("zero3", "by op", "fp32", 1, False, 4, "tied"),
    Row("hsdp", "none", "fp32", 1, False, 4, "tied"),
]


def is_yardstick(row):
    return row.dtype != "fp32" and row.accumulate == 1


def tier_of(row):
    return "long" if row.dtype == "bf16 reduce" and row.ranks == 4 else "integration"


for row in TABLE:
    ask(row.ranks, row.name, row.words(), STEPS, JOB, tier_of(row), weights=True, ddp=row.is_ddp)
    if is_yardstick(row):
        ask_variants(row.ranks, row.name, VARIANTS)


def ask_for_whole_rows(rows, tier):
    """Asks for whole_name of each row, which several may share, in the first tier that needs it."""
    of_whole = {(row.batch_ranks, row.whole_name): row for row in sorted(rows, key=tier, reverse=True)}
    for (ranks, name), row in of_whole.items():
        ask(ranks, name, row.whole_words(), STEPS, row.job, tier(row), weights=True)


VALUES = [list(STRATEGIES), list(CHECKPOINTING), list(DTYPES), [1, 2], [False, True]]


def check_covering():
    settings = [dataclasses.astuple(row)[: len(VALUES)] for row in TABLE]
    for (i, first), (j, second) in itertools.combinations(enumerate(VALUES), 2):
        for pair in itertools.product(first, second):
            expect(any((s[i], s[j]) == pair for s in settings), f"no row of the table has {pair}")


def run_program_row(context, row, index, kernels, reference, start):
    """Returns (metrics, weights) of the program."""
    init_weights, _ = import_reference()
    name = f"program-{index}"
    config = fixtures.write_job(context, name, row.job, STEPS)
    load = ["--checkpoint.enable", "--checkpoint.initial_load_path", reference.seed, "--checkpoint.interval", "100000"]
    for job in start_plain(context, row.ranks, ["--config", config, *load, *row.words(), *KERNELS[kernels][0]]):
        code = job.wait(60)
        expect(code == 0, f"exit code {code}: {' '.join(job.command)}\n{job.tail()}")
    saved = context.dump(name) / f"checkpoint/step-{STEPS}"
    return read_rows(context.dump(name) / "metrics.jsonl"), init_weights.load_weights(start, saved)


def ordered(distance):
    """Returns infinity for NaN, which max() may pass over."""
    return math.inf if math.isnan(distance) else distance


def norm_of_most(difference):
    """Returns the norm, of a matrix without the ALONE largest elements; NaN if any element is NaN."""
    if difference.dim() < 2 or difference.isnan().any():
        return difference.norm()
    return difference.flatten().abs().sort().values[:-ALONE].norm()


def distances(found, expected, start):
    """Returns {key of the bounds: the largest distance of the run}, and the name of the weight that is farthest off."""
    steps = [[row["step"] for row in rows] for rows, _ in (found, expected)]
    expect(steps[0] == steps[1] == list(range(1, STEPS + 1)), f"steps {steps[0]} and {steps[1]}")
    result = {
        key: max(ordered(relative_distance(mine[key], theirs[key])) for mine, theirs in zip(found[0], expected[0]))
        for key in KEYS
    }
    moved = {
        name: ordered((norm_of_most(found[1][name] - weight) / (weight - start[name]).norm()).item())
        for name, weight in expected[1].items()
    }
    worst = max(moved, key=moved.get)
    return {**result, WEIGHTS: moved[worst]}, worst


def farthest(expected, others):
    """Returns {key: the largest distance of the others from `expected`}; all are PyTorch's runs."""
    start, base = load_start(expected), (expected.rows, expected.weights)
    found = [distances((other.rows, other.weights), base, start)[0] for other in others]
    return {key: max(distance[key] for distance in found) for key in CEILINGS}


def bounds_from(found):
    """Returns the bounds of bf16 from the distances of rows."""
    return {key: bf16_bound(max(spread[key] for spread in found), FLOORS[key], CEILINGS[key]) for key in CEILINGS}


def spreads(context, row, kernels):
    """Returns {key: the largest distance that another kernel of PyTorch makes in this row}."""
    runs = variants_of(context, row.ranks, row.name, [name for name in VARIANTS if name in KERNELS[kernels][1]])
    return farthest(answer(context, row.ranks, row.name), runs)


def bf16_bounds(context, dtype, ranks, kernels):
    """Returns the bounds for one bf16 dtype at one number of ranks, from the variants of its rows."""
    rows = [row for row in TABLE if is_yardstick(row) and (row.dtype, row.ranks) == (dtype, ranks)]
    return bounds_from([spreads(context, row, kernels) for row in rows])


def load_start(reference):
    """Returns {name: tensor} of the start from which both programs train."""
    init_weights, _ = import_reference()
    return init_weights.load_weights(list(reference.weights), reference.seed)


def check_row(context, index, row, kernels, bounds):
    """Prints the row's line. Returns None, or what is wrong."""
    reference = answer(context, row.ranks, row.name)
    start = load_start(reference)
    try:
        run = run_program_row(context, row, index, kernels, reference, start)
        found, worst = distances(run, (reference.rows, reference.weights), start)
    except Failure as failure:
        return f"{row.name}: {failure}"
    cells = " | ".join(f"{key} {found[key]:.1e} <= {bounds[key]:.1e}" for key in bounds)
    print(f"  {row.ranks} ranks | {kernels} | {row.name} | {cells}", flush=True)
    wrong = [key for key in bounds if found[key] > bounds[key]]
    return f"{row.name}: {', '.join(wrong)} beyond the bound: {cells}; worst weight {worst}" if wrong else None


def check_against(context, index, row, kernels, oracles):
    """Prints a line for each of several runs of PyTorch, {name: (run, bounds)}; the program begins as the first one does.
    Returns what is wrong."""
    first = next(iter(oracles.values()))[0]
    start = load_start(first)
    try:
        run = run_program_row(context, row, index, kernels, first, start)
    except Failure as failure:
        return [f"{row.name}: {failure}"]
    wrong = []
    for what, (oracle, bounds) in oracles.items():
        found, worst = distances(run, (oracle.rows, oracle.weights), start)
        cells = " | ".join(f"{key} {found[key]:.1e} <= {bounds[key]:.1e}" for key in bounds)
        print(f"  {row.ranks} ranks | {kernels} | {row.name} | {what} | {cells}", flush=True)
        if any(not found[key] <= bounds[key] for key in bounds):
            wrong.append(f"{row.name}, against PyTorch's {what}: beyond a bound: {cells}; worst weight {worst}")
    return wrong


def check_rows(context, ranks, kernels, tier):
    rows = [row for row in TABLE if row.ranks == ranks and tier_of(row) == tier]
    bounds = {dtype: bf16_bounds(context, dtype, ranks, kernels) for dtype in {row.dtype for row in rows} - {"fp32"}}
    bounds["fp32"] = FP32_BOUNDS[kernels]
    wrong = [check_row(context, index, row, kernels, bounds[row.dtype]) for index, row in enumerate(rows)]
    wrong = [line for line in wrong if line]
    expect(not wrong, f"{len(wrong)} of {len(rows)} rows:\n" + "\n".join(wrong))


@case(300, tier="long", ranks=[3, 4], kernels=["aten"])
@case(300, ranks=[3, 4], kernels=["own"])
@case(300, ranks=[1, 2], kernels=list(KERNELS), wide=["1_aten", "2_aten"])
def parity_table(context, ranks, kernels):
    """Losses, gradient norms and updated weights of the table's rows are PyTorch's."""
    check_covering()
    check_rows(context, ranks, kernels, "integration")


@case(300, tier="long", kernels=list(KERNELS))
def parity_table_reduced_in_bf16(context, kernels):
    """The same of 4 ranks that reduce gradients in bf16."""
    check_rows(context, 4, kernels, "long")
