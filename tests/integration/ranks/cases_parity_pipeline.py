"""Tests pipeline parallelism against PyTorch's own stages and schedules around FSDP2, and against FSDP2 without a
pipeline, as cases_parity_table.py tests fully_shard."""
import dataclasses

import cases_parity_table as table
from cases_parity import FP32_TOLERANCE
from cases_parity_context import FP32_NORM_CEILING, FP32_WEIGHTS
from cases_parity_table import CHECKPOINTING, DTYPES, STEPS
from fixtures import QWEN3_MODEL, SMALL_MODEL
from harness import case, expect
from oracle import KERNELS, answer, ask, ask_variants, variants_of

LOCAL_BATCH = 4
JOBS = {
    name: model.replace("local_batch_size = 2", f"local_batch_size = {LOCAL_BATCH}").replace("seq_len = 64", "seq_len = 32")
    for name, model in (("llama3", SMALL_MODEL), ("qwen3", QWEN3_MODEL))
}
TENSOR, CONTEXT = ["--parallelism.tensor_parallel_degree", "2"], ["--parallelism.context_parallel_degree", "2"]
HYBRID = ["--parallelism.data_parallel_replicate_degree", "2"]
# name -> ranks, ranks that share layers, ranks that read the same rows of those with the same layers, words
MESHES = {
    "pp 2": (2, 2, 1, []),
    "pp 4": (4, 4, 1, []),
    "pp 2 x fsdp": (4, 2, 1, []),
    "pp 2 x tp": (4, 2, 2, TENSOR),
    "pp 2 x cp": (4, 2, 2, CONTEXT),
    "pp 4 x fsdp": (8, 4, 1, []),
    "pp 2 x hsdp": (8, 2, 1, HYBRID),
    "pp 2 x tp x fsdp": (8, 2, 2, TENSOR),
    "pp 2 x tp x cp": (8, 2, 4, [*TENSOR, *CONTEXT]),
}
SHAPES = table.SHAPES | {"six": {**table.SHAPES["deep"], "n_layers": 6}}  # eight stages need six layers
SHAPES["qwen3"] = {"enable_weight_tying": "true"}


@dataclasses.dataclass(frozen=True)
class Row:
    shapes = SHAPES

    mesh: str
    schedule: str
    checkpointing: str
    dtype: str
    accumulate: int
    shape: str
    rows_of_part: int = 1  # of a microbatch of the pipeline

    @property
    def job(self):
        return JOBS["qwen3" if self.shape == "qwen3" else "llama3"]

    @property
    def ranks(self):
        return MESHES[self.mesh][0]

    @property
    def batch_ranks(self):
        ranks, stages, sharing, _ = MESHES[self.mesh]
        return ranks // (stages * sharing)

    @property
    def name(self):
        words = [self.mesh, self.schedule, self.dtype, self.shape, f"{self.accumulate}x", f"parts of {self.rows_of_part}"]
        return ", ".join([*words, f"recompute {self.checkpointing}"])

    @property
    def whole_name(self):
        """Names the reference's run that has the same numbers but for rounding: of this row's data, where each rank has
        all layers, heads and tokens of its rows."""
        return f"whole model, {self.dtype}, {self.shape}, {self.accumulate}x"

    def whole_words(self):
        param, reduce = DTYPES[self.dtype]
        words = ["--training.mixed_precision_param", param, "--training.mixed_precision_reduce", reduce]
        words += ["--training.global_batch_size", str(LOCAL_BATCH * self.batch_ranks * self.accumulate)]
        return words + table.shape_words(self)

    def words(self):
        _, stages, _, more = MESHES[self.mesh]
        pipeline = ["--parallelism.pipeline_parallel_degree", str(stages)]
        pipeline += ["--parallelism.pipeline_parallel_schedule", self.schedule]
        pipeline += ["--parallelism.pipeline_parallel_microbatch_size", str(self.rows_of_part)]
        return [*self.whole_words(), *pipeline, *more, *CHECKPOINTING[self.checkpointing]]


TABLE = [
    Row("pp 2", "1F1B", "none", "fp32", 1, "even"),
    Row("pp 2", "GPipe", "full", "fp32", 2, "even", rows_of_part=2),
    Row("pp 2", "Interleaved1F1B", "by op", "fp32", 2, "uneven"),
    Row("pp 2", "LoopedBFS", "none", "fp32", 1, "qwen3", rows_of_part=2),
    Row("pp 2", "InterleavedZeroBubble", "by op", "fp32", 1, "tied"),
    Row("pp 2", "ZBVZeroBubble", "none", "fp32", 2, "uneven"),
    Row("pp 2", "DualPipeV", "full", "fp32", 1, "deep"),
    Row("pp 2", "1F1B", "by op", "bf16", 1, "deep"),
    Row("pp 2", "ZBVZeroBubble", "none", "bf16", 1, "deep"),
    Row("pp 4", "1F1B", "full", "fp32", 1, "tied"),
    Row("pp 2 x fsdp", "Interleaved1F1B", "none", "fp32", 2, "uneven"),
    Row("pp 2 x fsdp", "1F1B", "by op", "bf16", 1, "deep"),
    Row("pp 2 x tp", "InterleavedZeroBubble", "full", "fp32", 1, "odd vocabulary"),
    Row("pp 2 x cp", "1F1B", "none", "fp32", 1, "even"),
    Row("pp 4 x fsdp", "InterleavedZeroBubble", "none", "fp32", 1, "six"),
    Row("pp 2 x hsdp", "DualPipeV", "full", "fp32", 2, "uneven"),
    Row("pp 2 x tp x fsdp", "1F1B", "by op", "bf16", 1, "tied"),
    Row("pp 2 x tp x cp", "ZBVZeroBubble", "none", "fp32", 1, "deep"),
]
# The yardstick of bf16 has the kernels that change how PyTorch rounds, and its run without a pipeline.
VARIANTS = ("float32 attention", "fused SwiGLU")
# With PyTorch's operators, the program has the bits of PyTorch's pipeline in most rows, where the processor's matmuls do.
# Its own kernels round otherwise. With and without a pipeline alike, that was seen to move one element of a norm, whose
# gradient is near zero, by 7.6e-5 of the way of all 128, and no other element. Another processor may have such an element
# that is off by ten times that; a lost or doubled part of a gradient moves a weight by 1e-2 to 1.
WEIGHTS_OF_KERNELS = {"own": 1e-3, "aten": FP32_WEIGHTS}


def fp32_bounds(kernels, has_stages):
    """Returns the bounds against PyTorch's pipeline, or against its whole model: a norm of other parts of a gradient is
    rounded otherwise (see cases_parity_context.py)."""
    norm = FP32_TOLERANCE if has_stages else FP32_NORM_CEILING
    return {"loss": FP32_TOLERANCE, "grad_norm": norm, table.WEIGHTS: WEIGHTS_OF_KERNELS[kernels]}


def is_yardstick(row):
    return row.dtype == "bf16" and row.accumulate == 1


def tier_of(row):
    return "long" if row.ranks == 8 else "integration"


for row in TABLE:
    ask(row.ranks, row.name, row.words(), STEPS, row.job, tier_of(row), weights=True)
    if is_yardstick(row):
        ask_variants(row.ranks, row.name, VARIANTS)
table.ask_for_whole_rows(TABLE, tier_of)


def oracles(context, row):
    """Returns what PyTorch computes on the row's mesh, and without a pipeline."""
    return answer(context, row.ranks, row.name), answer(context, row.batch_ranks, row.whole_name)


def bf16_bounds(context, rows, kernels):
    found = []
    for row in filter(is_yardstick, rows):
        variants = variants_of(context, row.ranks, row.name, [name for name in VARIANTS if name in KERNELS[kernels][1]])
        pipeline, whole = oracles(context, row)
        found.append(table.farthest(pipeline, [*variants, whole]))
    return table.bounds_from(found)


def check_row(context, index, row, kernels, bf16):
    pipeline, whole = oracles(context, row)
    bounds = [bf16 if row.dtype == "bf16" else fp32_bounds(kernels, has_stages) for has_stages in (True, False)]
    found = {"pipeline": (pipeline, bounds[0]), "whole model": (whole, bounds[1])}
    return table.check_against(context, index, row, kernels, found)


@case(300, tier="long", ranks=[8], kernels=["own"])
@case(300, tier="long", ranks=[2, 4], kernels=["aten"])
@case(300, ranks=[2, 4], kernels=["own"])
def parity_pipeline(context, ranks, kernels):
    """Losses, gradient norms and updated weights under pipeline parallelism are PyTorch's: of its schedules on the same
    mesh, and of the whole model on each rank."""
    rows = [row for row in TABLE if row.ranks == ranks]
    bf16 = bf16_bounds(context, rows, kernels)
    wrong = [line for index, row in enumerate(rows) for line in check_row(context, index, row, kernels, bf16)]
    expect(not wrong, f"{len(wrong)} comparisons of {len(rows)} rows:\n" + "\n".join(wrong))
