"""Tests the keys that say how a model becomes stages and in which order they run: module_fqns_per_model_part and
pipeline_parallel_schedule_csv."""
import json
import re

from fixtures import QWEN3_MODEL, SMALL_MODEL, write_job
from harness import case, check_close, check_identical, expect, read_rows, rows_by_step, run

STEPS = 3
DEGREE = ["--parallelism.pipeline_parallel_degree", 2]
SCHEDULE = "--parallelism.pipeline_parallel_schedule"
CSV = "--parallelism.pipeline_parallel_schedule_csv"
# Without clipping, which divides by a norm whose last bits depend on which rank has which parameter.
PLAIN = ["--training.max_norm", 1000, "--training.local_batch_size", 4]
ROUNDING = 2.0**-24  # of one operation in float32
# A norm is the root of a sum over ranks of squares of roots of sums. Other stages add the same numbers in another order:
# 4 operations, and sums of some 20 parameters with errors half of which lie in the same direction at most.
NORM_TOLERANCE = 16 * ROUNDING
# Each list is for two ranks. With four, two ranks share each stage.
STAGES = {
    "embedding alone": [["tok_embeddings"], ["layers.0", "layers.1", "norm", "output"]],
    "output alone": [["tok_embeddings", "layers.0", "layers.1", "norm"], ["output"]],
    "norm and output alone": [["tok_embeddings", "layers.0", "layers.1"], ["norm", "output"]],
    "out of order in a stage": [["layers.0", "tok_embeddings"], ["output", "layers.1", "norm"]],
}
SEVERAL_STAGES = {
    "a norm alone": [["tok_embeddings", "layers.0"], ["layers.1"], ["norm"], ["output"]],
    "both layers in one": [["tok_embeddings"], ["layers.0", "layers.1"], ["norm"], ["output"]],
}


def rows_of(context, ranks, name, words, stages=None, template=SMALL_MODEL):
    """Returns the rows of a run, read exactly and not."""
    name = re.sub(r"\W", "_", name)
    config = write_job(context, name, template, STEPS)
    if stages:  # no flag can spell lists of lists
        config.write_text(config.read_text() + f"[parallelism]\nmodule_fqns_per_model_part = {json.dumps(stages)}\n")
    run(context, ranks, ["--config", config, *DEGREE, *PLAIN, *words], name=name)
    rows = context.dump(name) / "metrics.jsonl"
    return rows_by_step(rows, exact=True), read_rows(rows)


def compare(context, ranks, words, lists, what, template=SMALL_MODEL):
    """Compares stages by name with those of an even division, which compute the same."""
    exact, rows = rows_of(context, ranks, what, words, template=template)
    for name, stages in lists.items():
        found_exact, found = rows_of(context, ranks, f"{what} {name}", words, stages, template)
        check_identical(found_exact, exact, ["loss"], f"{what}, {name}")
        check_close(found, rows, ["grad_norm"], NORM_TOLERANCE, f"{what}, {name}")


@case(120, ranks=[2, 4], quick=[2], wide=["4"])
def stages_by_name(context, ranks):
    """Stages that module_fqns_per_model_part names train as those of an even division, to the last bit of the loss: also
    a stage without a layer, and norm and output projection in two stages."""
    compare(context, ranks, ["--training.mixed_precision_param", "float32"], STAGES, "one stage")
    compare(context, ranks, [SCHEDULE, "InterleavedZeroBubble"], SEVERAL_STAGES, "several stages")


@case(90, ranks=[2, 4])
def tied_stages_by_name(context, ranks):
    """The same with a tied output projection, whose rank may have the norm in another stage than the embedding."""
    stages = {"norm apart": [["tok_embeddings"], ["layers.0"], ["layers.1", "norm"], ["output"]]}
    compare(context, ranks, [SCHEDULE, "Interleaved1F1B"], stages, "tied", QWEN3_MODEL)


@case(90)
def frozen_first_stage(context):
    """With LoRA a first stage may have frozen parameters alone: its part of the backward pass computes nothing."""
    compare(context, 2, ["--lora.rank", 4], {"embedding alone": STAGES["embedding alone"]}, "1F1B")
    # An even division gives the embedding a stage of its own here, and the list does not.
    stages = {"a norm alone": SEVERAL_STAGES["a norm alone"]}
    compare(context, 4, ["--lora.rank", 4, SCHEDULE, "ZBVZeroBubble"], stages, "ZBVZeroBubble")


def write_order(context, name, order):
    path = context.folder / f"{name}.csv"
    path.write_text("".join(",".join(row) + "\n" for row in order))
    return path


def actions_in_trace(dump, rank):
    """Returns the actions that a rank computed in one step, in order."""
    trace = json.loads((dump / f"profile_traces/iteration_{STEPS}/rank{rank}_trace.json").read_text())
    events = [each for each in trace["traceEvents"] if each.get("ph") == "X" and re.fullmatch(r"\d+[FBIW]\d+", each["name"])]
    return [each["name"] for each in sorted(events, key=lambda each: each["ts"])]


@case(90, quick=True)
def order_in_a_file(context):
    """pipeline_parallel_schedule_csv replaces a schedule's order: the file that `titan-train schedule` prints trains the
    same to the bit, and ranks follow one that no schedule has."""
    for schedule in ("1F1B", "DualPipeV"):
        words = ["schedule", schedule, "--ranks", 2, "--microbatches", 4, "--format", "csv"]
        job = run(context, 1, words, launcher="none", name=f"schedule_{schedule}")
        path = context.folder / f"{schedule}.csv"
        path.write_text(job.out_path.read_text())
        own, _ = rows_of(context, 2, f"{schedule} itself", [SCHEDULE, schedule])
        read, _ = rows_of(context, 2, f"{schedule} of a file", [SCHEDULE, schedule, CSV, path])
        check_identical(read, own, ["loss", "grad_norm"], f"{schedule} of a file")
    # Rank 0 is as greedy as in GPipe, and rank 1 is not; gradients are added in the order of 1F1B. Cells may be empty.
    order = [["0F0", "0F1", "0F2", "0F3", "", "0B0", "0B1", "0B2", "0B3"], ["1F0", "1F1", "1B0", "1F2", "1B1", "1F3", "", "1B2", "1B3"]]
    words = [SCHEDULE, "PipelineScheduleSingle", CSV, write_order(context, "own", order)]
    words += ["--profiling.enable_profiling", "--profiling.profile_freq", STEPS, "--profiling.profiler_active", 1]
    words += ["--profiling.profiler_warmup", 1]
    found, _ = rows_of(context, 2, "own", words)
    check_identical(found, rows_of(context, 2, "1F1B again", [])[0], ["loss", "grad_norm"], "an order of one's own")
    for rank, row in enumerate(order):
        actions = actions_in_trace(context.dump("own"), rank)
        expect(actions == [cell for cell in row if cell], f"rank {rank} computed {actions}, expected {row}")
