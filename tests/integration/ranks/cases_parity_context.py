"""Tests context parallelism against PyTorch's ring attention below FSDP2, and against FSDP2 with whole rows, as
cases_parity_table.py tests fully_shard. The cases for documents in rows are in cases_context_documents.py."""
import dataclasses

import cases_parity_table as table
from cases_parity_table import CHECKPOINTING, DTYPES, FP32_BOUNDS, SHAPES, STEPS, STRATEGIES
from fixtures import SMALL_MODEL
from harness import case, expect
from oracle import KERNELS, answer, ask, ask_variants, variants_of

LOCAL_BATCH = 2  # of SMALL_MODEL
CONTEXT = "--parallelism.context_parallel_degree"
BALANCER = "--parallelism.context_parallel_load_balancer"
ROTATE = "--parallelism.context_parallel_rotate_method"
# name -> ranks, ranks that share rows, words. The ranks that neither share rows nor split layers read different rows.
MESHES = {
    "cp 2": (2, 2, []),
    "cp 4": (4, 4, []),
    "cp 2 x fsdp": (4, 2, []),
    "tp x cp 2": (4, 2, ["--parallelism.tensor_parallel_degree", "2"]),
    "cp 2 x hsdp": (8, 2, ["--parallelism.data_parallel_replicate_degree", "2"]),
    "tp x cp 2 x fsdp": (8, 2, ["--parallelism.tensor_parallel_degree", "2"]),
}


@dataclasses.dataclass(frozen=True)
class Row:
    job = SMALL_MODEL
    shapes = SHAPES

    mesh: str
    checkpointing: str
    dtype: str
    accumulate: int
    balancer: str  # headtail, ptrr or None
    rotate: str
    shape: str
    strategy: str = "zero3"

    @property
    def ranks(self):
        return MESHES[self.mesh][0]

    @property
    def batch_ranks(self):
        return self.ranks // (MESHES[self.mesh][1] * (2 if self.mesh.startswith("tp") else 1))

    @property
    def name(self):
        words = [self.mesh, self.strategy, self.dtype, self.shape, f"{self.accumulate}x"]
        return ", ".join([*words, f"recompute {self.checkpointing}", self.balancer, self.rotate])

    @property
    def whole_name(self):
        """Names the reference's run that has the same numbers but for rounding: of this row's data, without context or
        tensor parallelism."""
        return f"whole rows, {self.dtype}, {self.shape}, {self.accumulate}x, {self.seq_len}"

    @property
    def seq_len(self):
        # A rank's tokens are more than two parts of ptrr's smallest size: with two, it deals out as headtail does.
        return 512 if self.balancer == "ptrr" else 64

    def whole_words(self):
        param, reduce = DTYPES[self.dtype]
        words = ["--training.mixed_precision_param", param, "--training.mixed_precision_reduce", reduce]
        words += ["--training.seq_len", str(self.seq_len)]
        words += ["--training.global_batch_size", str(LOCAL_BATCH * self.batch_ranks * self.accumulate)]
        return words + table.shape_words(self)

    def words(self, balancer=None):
        mesh = [CONTEXT, str(MESHES[self.mesh][1]), *MESHES[self.mesh][2], *STRATEGIES[self.strategy]]
        share = [BALANCER, balancer or self.balancer, ROTATE, self.rotate]
        return [*self.whole_words(), *mesh, *share, *CHECKPOINTING[self.checkpointing]]


TABLE = [
    Row("cp 2", "none", "fp32", 1, "headtail", "allgather", "even"),
    Row("cp 2", "by op", "fp32", 2, "None", "alltoall", "uneven"),
    Row("cp 2", "full", "fp32", 1, "ptrr", "alltoall", "tied"),
    Row("cp 2", "full", "bf16", 1, "headtail", "alltoall", "deep"),
    Row("cp 2", "by op", "bf16", 1, "None", "allgather", "deep"),
    Row("cp 2", "none", "bf16", 2, "headtail", "allgather", "even", "zero2"),
    Row("cp 4", "full", "fp32", 1, "headtail", "alltoall", "deep"),
    Row("cp 4", "none", "fp32", 2, "None", "allgather", "narrow"),
    Row("cp 4", "by op", "bf16", 1, "headtail", "allgather", "deep"),
    Row("cp 4", "none", "bf16", 1, "ptrr", "alltoall", "deep"),
    Row("cp 2 x fsdp", "by op", "fp32", 1, "headtail", "allgather", "uneven"),
    Row("cp 2 x fsdp", "none", "bf16", 1, "None", "alltoall", "deep"),
    Row("cp 2 x fsdp", "full", "fp32", 2, "headtail", "alltoall", "tied", "zero2"),
    Row("tp x cp 2", "none", "fp32", 1, "headtail", "alltoall", "odd vocabulary"),
    Row("tp x cp 2", "by op", "fp32", 2, "ptrr", "allgather", "tied"),
    Row("tp x cp 2", "full", "bf16", 1, "headtail", "allgather", "deep"),
    Row("cp 2 x hsdp", "full", "fp32", 1, "headtail", "allgather", "uneven"),
    Row("tp x cp 2 x fsdp", "by op", "fp32", 2, "headtail", "alltoall", "deep"),
]
# The yardstick of bf16 has what PyTorch computes in another way: its kernels, but for the plain attention formula, which
# its ring cannot have; the other way to deal out rows, which rounds other parts of sums; and whole rows.
VARIANTS = ("float32 attention", "fused SwiGLU")
OTHER = {"headtail": "None", "None": "headtail"}
# In fp32, PyTorch's norms of whole rows are a yardstick, too: its kernel for CPUs adds the squares of 130,000 elements of a
# gradient one after the other in each lane, or those of a rank's part of them, which moves a norm by 7e-6 here. Each
# rank sums the gradients of all weights over its own tokens. So even with PyTorch's operators every gradient is rounded
# in another way, and PyTorch moves a weight by up to 1.5e-5 between its ring and whole rows, most a norm's, where no
# element counts little: six times that, far below the 0.1 of a fault.
FP32_NORM_CEILING = 5e-5
FP32_WEIGHTS = 1e-4


def is_yardstick(row):
    return row.dtype == "bf16" and row.accumulate == 1 and row.balancer != "ptrr"


def tier_of(row):
    is_long = row.ranks == 8 or (row.dtype == "bf16" and row.mesh in ("cp 2 x fsdp", "tp x cp 2"))
    return "long" if is_long else "integration"


def ask_for(row):
    # PyTorch has ptrr only for flex attention: such a row has another order of sums, as with headtail.
    ask(row.ranks, row.name, row.words("headtail" if row.balancer == "ptrr" else None), STEPS, row.job, tier_of(row), weights=True)
    if is_yardstick(row):
        ask_variants(row.ranks, row.name, VARIANTS)
        ask(row.ranks, f"{row.name}, dealt out otherwise", row.words(OTHER[row.balancer]), STEPS, row.job, tier_of(row), weights=True)


for row in TABLE:
    ask_for(row)
table.ask_for_whole_rows(TABLE, tier_of)


def oracles(context, row):
    """Returns what PyTorch computes on the row's mesh, and with whole rows."""
    return answer(context, row.ranks, row.name), answer(context, row.batch_ranks, row.whole_name)


def spreads(context, row, others):
    """Returns {key: the largest distance of the others of PyTorch's runs from the one on the row's mesh}."""
    return table.farthest(answer(context, row.ranks, row.name), others)


def bf16_bounds(context, rows, kernels):
    found = []
    for row in filter(is_yardstick, rows):
        variants = variants_of(context, row.ranks, row.name, [name for name in VARIANTS if name in KERNELS[kernels][1]])
        otherwise = answer(context, row.ranks, f"{row.name}, dealt out otherwise")
        found.append(spreads(context, row, [*variants, otherwise, oracles(context, row)[1]]))
    return table.bounds_from(found)


def fp32_bounds(context, rows, kernels):
    found = [spreads(context, row, [oracles(context, row)[1]]) for row in rows if row.dtype == "fp32"]
    bounds = {**FP32_BOUNDS[kernels], table.WEIGHTS: FP32_WEIGHTS}
    norm = table.bf16_bound(max(spread["grad_norm"] for spread in found), bounds["grad_norm"], FP32_NORM_CEILING)
    return {**bounds, "grad_norm": norm}


def check_row(context, index, row, kernels, bounds):
    ring, whole = oracles(context, row)
    return table.check_against(context, index, row, kernels, {"ring": (ring, bounds), "whole rows": (whole, bounds)})


def check_rows(context, rows, kernels):
    bounds = {}
    if any(row.dtype == "fp32" for row in rows):
        bounds["fp32"] = fp32_bounds(context, rows, kernels)
    if any(row.dtype == "bf16" for row in rows):
        bounds["bf16"] = bf16_bounds(context, rows, kernels)
    wrong = [line for index, row in enumerate(rows) for line in check_row(context, index, row, kernels, bounds[row.dtype])]
    expect(not wrong, f"{len(wrong)} comparisons of {len(rows)} rows:\n" + "\n".join(wrong))


@case(300, tier="long", ranks=[4], kernels=["aten"])
@case(300, ranks=[4], kernels=["own"])
@case(300, ranks=[2], kernels=list(KERNELS), wide=["2_aten"])
def parity_context(context, ranks, kernels):
    """Losses, gradient norms and updated weights under context parallelism are PyTorch's: of its ring on the same mesh,
    and of whole rows."""
    check_rows(context, [row for row in TABLE if row.ranks == ranks and tier_of(row) == "integration"], kernels)


@case(300, tier="long", ranks=[4, 8])
def parity_context_on_more_meshes(context, ranks):
    """The same where ranks that share rows are sharded over others, too, and at 8 ranks."""
    check_rows(context, [row for row in TABLE if row.ranks == ranks and tier_of(row) == "long"], "own")
