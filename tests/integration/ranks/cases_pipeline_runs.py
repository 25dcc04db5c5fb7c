"""Tests what goes through a pipeline and what watches it: documents and conversations, batches that do not fill the
pipeline, adapters with dropout, offloading, checksums, traces and the files of metrics.

The same run without a pipeline is the peer; cases_parity*.py compare that with PyTorch.
"""
import dataclasses

from cases_context_documents import DATA, FP32, FP32_BOUNDS, STEPS, Run, common_words, distances, start_of
from cases_metrics import events_of
from cases_parity_context import BALANCER, CONTEXT
from cases_profiling import read_trace
from cases_validation import validation, write_held_out
from checkpoint_tools import read_state
from fixtures import SMALL_MODEL, write_job
from harness import (
    case, check_close, check_identical, expect, import_reference, peer_python, read_rows, rows_by_step, run,
)  # fmt: skip

MODEL = SMALL_MODEL.replace("n_layers = 2", "n_layers = 4")
STAGES = "--parallelism.pipeline_parallel_degree"
SCHEDULE = "--parallelism.pipeline_parallel_schedule"
ROWS = "--parallelism.pipeline_parallel_microbatch_size"
RESHARD = "--parallelism.fsdp_reshard_after_forward"
KEYS = ("loss", "max_loss", "grad_norm", "lr", "tokens_seen")


@dataclasses.dataclass(frozen=True)
class Same:
    """A run with a pipeline that computes what the same run without one does."""

    words: tuple  # of both runs
    pipeline: tuple  # of the run with one
    peers: int = 1  # ranks of the run without
    data: str = ""  # of DATA
    shared: int = 1  # ranks that share each row, with a pipeline

    @property
    def ranks(self):
        return 2 * self.peers * self.shared


RUNS = {
    "documents": Same((), (SCHEDULE, "Interleaved1F1B"), data="documents"),
    # The split of a microbatch's rows depends on its own documents.
    "split_documents": Same((), (SCHEDULE, "1F1B", CONTEXT, 2, BALANCER, "ptrr"), data="documents", shared=2),
    # Losses are divided by the labels of each answer.
    "chats": Same((), (SCHEDULE, "InterleavedZeroBubble"), data="chats_alike"),
    "offloaded": Same(("--training.enable_cpu_offload", "--training.global_batch_size", 8), (SCHEDULE, "1F1B"), 2),
    "gathered_again": Same(("--training.global_batch_size", 8), (SCHEDULE, "InterleavedZeroBubble", RESHARD, "always"), 2),
    "gathered_in_parts": Same((), (SCHEDULE, "GPipe", RESHARD, 2, ROWS, 1), 2),
}


def train(context, ranks, words, name):
    init_weights, _ = import_reference()
    save = ["--checkpoint.enable", "--checkpoint.interval", "100000"]
    run(context, ranks, ["--config", write_job(context, name, MODEL, steps=STEPS), *words, *save], name=name)
    dump = context.dump(name)
    steps, validations = (read_rows(dump / file) for file in ("metrics.jsonl", "validation.jsonl"))
    return Run(steps, validations, init_weights.load_weights(list(start_of(context, name)), dump / f"checkpoint/step-{STEPS}"))


@case(120, tier="long", what=["offloaded", "gathered_in_parts"])
@case(120, what=["documents", "split_documents", "chats", "gathered_again"], wide=["split_documents", "chats", "gathered_again"])
def pipeline_same(context, what):
    """In fp32, losses, gradient norms, updated weights, validation losses and all counts are those without a pipeline."""
    each = RUNS[what]
    if each.data:
        words = common_words(DATA[each.data](context))
    else:
        # 13 windows in batches of 4 rows, of two or four ranks' worth: the last one has a row or none on each rank.
        words = [*validation(write_held_out(context)), "--validation.local_batch_size", 4, "--training.local_batch_size", 4]
    words = [*words, *FP32, *each.words]
    whole = train(context, each.peers, words, "whole")
    found = train(context, each.ranks, [*words, STAGES, 2, *each.pipeline], "stages")
    check_close(found.steps, whole.steps, ["tokens_seen", "lr"], 0.0, what)
    check_close(found.validations, whole.validations, ["tokens"], 0.0, what)
    distance = distances(found, whole, start_of(context, "whole"))
    cells = " | ".join(f"{key} {distance[key]:.1e} <= {bound:.1e}" for key, bound in FP32_BOUNDS.items())
    print(f"  {what} | {cells}", flush=True)
    expect(all(distance[key] <= bound for key, bound in FP32_BOUNDS.items()), f"{what}: beyond a bound: {cells}")


@case(90)
def pipeline_validates_few_rows(context):
    """A validation batch with fewer rows than the pipeline has microbatches, or than one of them, counts as it does
    without a pipeline."""
    path = write_held_out(context)
    words = [*validation(path, freq=1), *FP32, "--training.local_batch_size", 4, "--metrics.log_freq", 1]
    rows = {}
    # 13 windows make three full batches of 4 rows and one of 1 row, or one of 8 rows and one of 5.
    for name, ranks, more in (
        ("whole", 1, ["--validation.local_batch_size", 4]),
        ("few", 2, [STAGES, 2, SCHEDULE, "Interleaved1F1B", "--validation.local_batch_size", 4]),
        ("parts", 2, [STAGES, 2, ROWS, 2, "--validation.local_batch_size", 8]),
    ):
        run(context, ranks, ["--config", write_job(context, name, MODEL, steps=2), *words, *more], name=name)
        rows[name] = read_rows(context.dump(name) / "validation.jsonl")
    for name in ("few", "parts"):
        check_close(rows[name], rows["whole"], ["tokens"], 0.0, name)
        check_close(rows[name], rows["whole"], ["loss"], FP32_BOUNDS["validation"], name)


@case(90, tier="wide")
def pipeline_drops_the_same(context):
    """With adapters and dropout, a recomputed forward drops what the first one did, in every microbatch; ranks with other
    layers drop other elements; and a resumed run goes on with the same numbers."""
    # Each rank has two layers with two adapters, and draws equally many numbers.
    adapters = ["--lora.rank", 4, "--lora.targets", "wq,wo", "--lora.dropout", 0.25]
    words = [*adapters, *FP32, STAGES, 2, SCHEDULE, "Interleaved1F1B", "--training.local_batch_size", 4]
    save = ["--checkpoint.enable", "--checkpoint.interval", 1000, "--checkpoint.no-last_save_model_only"]
    for name, mode in (("kept", "none"), ("recomputed", "full")):
        more = ["--activation_checkpoint.mode", mode]
        run(context, 2, ["--config", write_job(context, name, MODEL, steps=4), *words, *more], name=name)
    half = ["--config", write_job(context, "halves", MODEL, steps=4), *words, *save]
    run(context, 2, [*half, "--training.steps", 2, "--lr_scheduler.total_steps", 4], name="half")
    run(context, 2, half, name="halves")
    state = read_state(context.dump("halves") / "checkpoint/step-2")
    expect(state["titan.rng.rank_0"] != state["titan.rng.rank_1"], "both stages draw the same numbers")
    kept = rows_by_step(context.dump("kept") / "metrics.jsonl", exact=True)
    for name in ("recomputed", "halves"):
        check_identical(rows_by_step(context.dump(name) / "metrics.jsonl", exact=True), kept, KEYS, name)


def norms_of(events):
    return [count for _, count in events["histograms"]["grad_norm_by_layer"]]


@case(120)
def pipeline_is_watched(context):
    """Checksums of the first weights are those without a pipeline, to the bit; the traces of all ranks name the actions
    of the schedule; metrics and TensorBoard have the same rows; and nothing of it changes the training."""
    watch = ["--debug.checksum_freq", 1, "--profiling.enable_profiling", "--profiling.profile_freq", 3]
    watch += ["--profiling.profiler_warmup", 1, "--profiling.profiler_active", 1]
    watch += ["--metrics.enable_tensorboard", "--metrics.gradient_histograms"]
    # A tied embedding, of which the last stage has a copy that does not count.
    words = [*FP32, "--training.local_batch_size", 4, "--model.args.enable_weight_tying=true", "--optimizer.lr", "3e-4"]
    stages = [STAGES, 2, SCHEDULE, "InterleavedZeroBubble"]
    for name, ranks, more in (("whole", 1, watch), ("stages", 2, [*stages, *watch]), ("plain", 2, stages)):
        run(context, ranks, ["--config", write_job(context, name, MODEL, steps=3), *words, *more], name=name)
    sums = {name: read_rows(context.dump(name) / "checksums.jsonl") for name in ("whole", "stages")}
    expect(sums["whole"][0]["step"] == 0 and sums["stages"][0] == sums["whole"][0], f"the first weights differ:\n{sums}")
    check_identical(
        *(rows_by_step(context.dump(name) / "metrics.jsonl", exact=True) for name in ("stages", "plain")), KEYS, "watched"
    )
    check_close(
        *(read_rows(context.dump(name) / "metrics.jsonl") for name in ("stages", "whole")), ("loss", "grad_norm"), 1e-5, "stages"
    )
    for rank, own in enumerate(((0, 2), (1, 3))):
        trace = read_trace(context.dump("stages") / f"profile_traces/iteration_3/rank{rank}_trace.json")
        named = {event["name"] for event in trace["traceEvents"] if "name" in event}
        actions = {f"{stage}{kind}{part}" for stage in own for kind in "FIW" for part in range(4)}
        expect(actions <= named, f"rank {rank}: the trace does not name {sorted(actions - named)}")
    python = peer_python("tensorboard")
    stages, whole = (events_of(python, context.dump(name) / "tb") for name in ("stages", "whole"))
    expect(set(stages["scalars"]) == set(whole["scalars"]), f"tags {set(stages['scalars']) ^ set(whole['scalars'])}")
    # Embedding, four layers, last norm.
    expect(norms_of(stages) == norms_of(whole) == [6.0, 6.0, 6.0], f"{stages['histograms']}")
