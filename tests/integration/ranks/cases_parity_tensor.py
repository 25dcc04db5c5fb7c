"""Tests tensor parallelism, alone and below fully_shard, against PyTorch's parallelize_module and FSDP2, as
cases_parity_table.py tests fully_shard."""
import dataclasses
import json

import cases_parity_table as table
from cases_parity_table import CHECKPOINTING, DTYPES, FP32_BOUNDS, JOB, LOCAL_BATCH, STEPS, VARIANTS, check_row
from fixtures import write_job
from harness import case, check_close, expect, read_rows, run
from oracle import KERNELS, ask, ask_variants

MESHES = {
    "tp": (2, []),
    "tp x fsdp": (4, []),
    "tp x hsdp": (8, ["--parallelism.data_parallel_replicate_degree", "2"]),
}


@dataclasses.dataclass(frozen=True)
class Row:
    job = JOB
    shapes = table.SHAPES

    mesh: str
    checkpointing: str
    dtype: str
    accumulate: int
    loss_parallel: bool
    shape: str
    strategy: str = "zero3"
    overlaps: bool = False  # enable_async_tensor_parallel

    @property
    def ranks(self):
        return MESHES[self.mesh][0]

    @property
    def name(self):
        words = [self.mesh, self.strategy, self.dtype, self.shape, f"{self.accumulate}x"]
        words += [f"recompute {self.checkpointing}", "loss parallel" if self.loss_parallel else "logits gathered"]
        return ", ".join([*words, *(["overlapped"] if self.overlaps else [])])

    def words(self):
        param, reduce = DTYPES[self.dtype]
        words = ["--training.mixed_precision_param", param, "--training.mixed_precision_reduce", reduce]
        words += ["--parallelism.tensor_parallel_degree", "2", *MESHES[self.mesh][1], *table.STRATEGIES[self.strategy]]
        words += ["--training.global_batch_size", str(LOCAL_BATCH * self.ranks // 2 * self.accumulate)]
        words += [] if self.loss_parallel else ["--parallelism.disable_loss_parallel"]
        words += ["--parallelism.enable_async_tensor_parallel"] if self.overlaps else []
        words += CHECKPOINTING[self.checkpointing]
        return words + table.shape_words(self)


TABLE = [
    Row("tp", "none", "fp32", 1, True, "even"),
    Row("tp", "full", "bf16", 1, True, "odd vocabulary"),
    Row("tp", "by op", "fp32", 2, False, "odd vocabulary"),
    Row("tp", "none", "bf16", 1, False, "deep"),
    Row("tp", "by op", "bf16", 1, True, "even", overlaps=True),
    Row("tp x fsdp", "none", "bf16", 1, True, "even"),
    Row("tp x fsdp", "by op", "bf16", 1, True, "deep"),
    Row("tp x fsdp", "full", "fp32", 2, True, "odd vocabulary", "zero2"),
    Row("tp x fsdp", "none", "bf16", 2, False, "odd vocabulary", "zero2"),
    Row("tp x fsdp", "full", "fp32", 1, True, "deep", overlaps=True),
    Row("tp", "none", "fp32", 1, True, "tied"),
    Row("tp x fsdp", "full", "fp32", 1, False, "tied"),
    Row("tp x hsdp", "full", "fp32", 1, True, "odd vocabulary"),
]
def is_yardstick(row):
    """True for rows of the deepest model, which rounds most often on the way."""
    return row.dtype == "bf16" and row.accumulate == 1 and row.shape == "deep"


for row in TABLE:
    ask(row.ranks, row.name, row.words(), STEPS, JOB, "long" if row.ranks == 8 else "integration", weights=True)
    if is_yardstick(row):
        ask_variants(row.ranks, row.name, VARIANTS)


def bf16_bounds(context, ranks, kernels):
    rows = [row for row in TABLE if is_yardstick(row) and row.ranks == ranks]
    found = [table.spreads(context, row, kernels) for row in rows]
    return {
        key: table.bf16_bound(max(spread[key] for spread in found), table.FLOORS[key], ceiling)
        for key, ceiling in table.CEILINGS.items()
    }


@case(300, kernels=list(KERNELS), wide=["aten"])
def parity_tensor(context, kernels):
    """Losses, gradient norms and updated weights under tensor parallelism are PyTorch's."""
    check_rows(context, 2, kernels)


@case(300, tier="long", ranks=[8])
@case(300, ranks=[4])
def parity_tensor_sharded(context, ranks):
    """The same below fully_shard: on meshes of two axes, and of three, of eight processes."""
    check_rows(context, ranks, "own")


@case(300, tier="long")
def parity_tensor_sharded_aten(context):
    """The same with PyTorch's own kernels."""
    check_rows(context, 4, "aten")


def check_rows(context, ranks, kernels):
    rows = [row for row in TABLE if row.ranks == ranks]
    bounds = {"fp32": FP32_BOUNDS[kernels]}
    if any(is_yardstick(row) for row in rows):
        bounds["bf16"] = bf16_bounds(context, ranks, kernels)
    wrong = [check_row(context, index, row, kernels, bounds[row.dtype]) for index, row in enumerate(rows)]
    wrong = [line for line in wrong if line]
    expect(not wrong, f"{len(wrong)} of {len(rows)} rows:\n" + "\n".join(wrong))


@case(120)
def tensor_over_sockets(context):
    """Ranks that share no memory, like those of two hosts, have the same numbers as those that do."""
    words = ["--config", write_job(context, "job", steps=STEPS), "--parallelism.tensor_parallel_degree", 2]
    for name, more in {"plain": [], "overlapped": ["--parallelism.enable_async_tensor_parallel"]}.items():
        found = []
        for shares in "01":
            dump = context.dump(f"{name}-{shares}")
            run(context, 2, [*words, *more, "--job.dump_folder", dump], name=dump.name, env={"TITAN_SHARED_MEMORY": shares})
            found.append([{key: row[key] for key in ("step", "loss", "grad_norm")} for row in read_rows(dump / "metrics.jsonl")])
        expect(found[0] and found[0] == found[1], f"{name}: over sockets {found[0]}, in shared memory {found[1]}")


@case(120)
def any_mesh_has_the_same_curve(context):
    """A run that is resumed from one mesh to the next, with and without tensor and context parallelism, starts with the
    bits of a run on one rank, and has its losses, gradient norms, counts of tokens and validation losses."""
    steps = 8
    words = ["--training.dataset", "jsonl", "--training.local_batch_size", 1, "--training.global_batch_size", 4]
    words += ["--training.mixed_precision_param", "float32", "--lr_scheduler.total_steps", steps]
    words += ["--validation.enable", "--validation.freq", 1, "--validation.local_batch_size", 1, "--validation.seq_len", 64]
    held_out = context.folder / "held_out.jsonl"  # all of it, in each pass
    held_out.write_text("".join((context.fixtures / "corpus.jsonl").read_text().splitlines(keepends=True)[:3]))
    words += ["--validation.dataset", "jsonl", "--validation.dataset_path", held_out, "--validation.steps", -1]
    words += ["--model.args.n_kv_heads", 4, "--debug.checksum_freq", 1]
    run(context, 1, ["--config", write_job(context, "straight", steps=steps), *words], name="straight")

    words += ["--config", write_job(context, "meshes", steps=steps), "--checkpoint.enable", "--checkpoint.interval", 1000]
    words += ["--checkpoint.no-last_save_model_only", "--checkpoint.async_mode", "async"]
    for ranks, tensor, shared, last in [(2, 2, 1, 2), (4, 2, 1, 3), (4, 1, 2, 4), (2, 1, 1, 5), (4, 2, 2, 6), (4, 4, 1, steps)]:
        mesh = ["--parallelism.tensor_parallel_degree", tensor, "--parallelism.context_parallel_degree", shared, "--training.steps", last]
        run(context, ranks, [*words, *mesh], name=f"until_{last}")
    first = [json.loads((context.dump(name) / "checksums.jsonl").read_text().split("\n")[0]) for name in ("meshes", "straight")]
    expect(first[0]["step"] == 0 and first[0] == first[1], f"the first weights differ: {first}")
    # Rounded as in elastic_resize: far below the effect of one other sample.
    for file, keys in [("metrics.jsonl", ("loss", "grad_norm", "tokens_seen")), ("validation.jsonl", ("loss", "tokens"))]:
        found, expected = (read_rows(context.dump(name) / file) for name in ("meshes", "straight"))
        check_close(found, expected, keys, 1e-4, file)
