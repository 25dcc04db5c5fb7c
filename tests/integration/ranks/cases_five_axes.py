"""Tests meshes of three of the five axes at once (replicas, shards, tensor, context and pipeline), against runs that
have the same data-parallel ranks and no other axis."""
import dataclasses
import itertools

import cases_parity_table as table
from cases_context_documents import FP32, FP32_BOUNDS
from cases_parity_context import BALANCER
from cases_parity_table import CHECKPOINTING, STEPS
from fixtures import SMALL_MODEL, write_job
from harness import case, check_close, expect, import_reference, read_rows, run

# Four layers for four stages, and as many key heads as two axes divide.
MODEL = SMALL_MODEL.replace("n_layers = 2", "n_layers = 4").replace("n_kv_heads = 2", "n_kv_heads = 4")
MODEL = MODEL.replace("local_batch_size = 2", "local_batch_size = 4")
# A tied embedding begins small; the learning rate is that of cases_parity_table.py.
TIED = MODEL.replace("[model.args]", "[model.args]\nenable_weight_tying = true").replace("lr = 3e-3", "lr = 3e-4")
AXES = {
    "replicate": "--parallelism.data_parallel_replicate_degree",
    "shard": "--parallelism.data_parallel_shard_degree",
    "tensor": "--parallelism.tensor_parallel_degree",
    "context": "--parallelism.context_parallel_degree",
    "pipeline": "--parallelism.pipeline_parallel_degree",
}
DATA_AXES = ("replicate", "shard")


@dataclasses.dataclass(frozen=True)
class Row:
    axes: tuple  # of two ranks each
    schedule: str = "1F1B"
    recompute: str = "none"
    accumulate: int = 1
    job: str = MODEL
    balancer: str = "headtail"

    @property
    def name(self):
        words = [" x ".join(self.axes), self.schedule, f"recompute {self.recompute}", f"{self.accumulate}x", self.balancer]
        return ", ".join([*words, *(["tied"] if self.job is TIED else [])])

    @property
    def data_ranks(self):
        return 2 ** len(self.data_axes)

    @property
    def data_axes(self):
        return [axis for axis in self.axes if axis in DATA_AXES]

    def words(self, axes):
        mesh = [word for axis in AXES for word in (AXES[axis], 2 if axis in axes else 1)]
        # ptrr deals out as headtail does if a rank has no more than two parts of its smallest size.
        length = ["--training.seq_len", 512 if self.balancer == "ptrr" else 64]
        return [*FP32, *mesh, *length, "--training.global_batch_size", 4 * self.data_ranks * self.accumulate]

    def own_words(self):
        share = [BALANCER, self.balancer, "--parallelism.pipeline_parallel_schedule", self.schedule]
        return [*self.words(self.axes), *share, *CHECKPOINTING[self.recompute]]


# Every pair of axes is in a row of eight ranks; check_pairs() checks that.
TABLE = [
    Row(("replicate", "shard", "pipeline"), "Interleaved1F1B", "by op", 2),
    Row(("replicate", "tensor", "pipeline"), "ZBVZeroBubble", "full"),
    Row(("replicate", "context", "pipeline"), "GPipe", "none", 2, TIED, "ptrr"),
    Row(("replicate", "tensor", "context"), recompute="by op"),
    Row(("shard", "tensor", "context"), recompute="full", accumulate=2, job=TIED),
    Row(("shard", "tensor", "pipeline"), "InterleavedZeroBubble", "by op"),
    Row(("shard", "context", "pipeline"), "DualPipeV", "full", balancer="None"),
    Row(("tensor", "context", "pipeline"), "1F1B", "none", 2, TIED),
]
FOUR_RANKS = Row(("context", "pipeline"), "InterleavedZeroBubble", "full", 1, TIED)


def check_pairs():
    missing = [pair for pair in itertools.combinations(AXES, 2) if not any(set(pair) <= set(row.axes) for row in TABLE)]
    expect(not missing, f"no row has the axes {missing}")


def weights_after(context, job, name, words, ranks):
    """Returns the rows, the first weights, and those after the last step."""
    init_weights, job_file = import_reference()
    config = write_job(context, name, job, steps=STEPS)
    run(context, ranks, ["--config", config, *words, "--checkpoint.enable", "--checkpoint.interval", 100000], name=name)
    start = init_weights.initial_weights(job_file.load_job(config))
    folder = context.dump(name) / f"checkpoint/step-{STEPS}"
    return read_rows(context.dump(name) / "metrics.jsonl"), start, init_weights.load_weights(list(start), folder)


def check_row(context, index, row):
    whole, start, their_weights = weights_after(context, row.job, f"{index}-whole", row.words(row.data_axes), row.data_ranks)
    rows, _, weights = weights_after(context, row.job, f"{index}-mesh", row.own_words(), 2 ** len(row.axes))
    check_close(rows, whole, ["tokens_seen", "lr"], 0.0, row.name)
    found, worst = table.distances((rows, weights), (whole, their_weights), start)
    bounds = {key: FP32_BOUNDS[key] for key in found}
    cells = " | ".join(f"{key} {found[key]:.1e} <= {bound:.1e}" for key, bound in bounds.items())
    print(f"  {row.name} | {cells}", flush=True)
    expect(all(found[key] <= bound for key, bound in bounds.items()), f"{row.name}: beyond a bound: {cells}; worst {worst}")


@case(300, tier="long")
def five_axes(context):
    """In fp32, losses, gradient norms and updated weights on any mesh are those of its data-parallel ranks alone."""
    check_pairs()
    for index, row in enumerate(TABLE):
        check_row(context, index, row)


@case(90)
def five_axes_of_four_ranks(context):
    """The same for a pipeline whose ranks share rows, with a tied embedding at its two ends and split backwards."""
    check_row(context, 0, FOUR_RANKS)
