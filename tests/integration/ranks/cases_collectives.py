"""Tests the schedule: a step's collectives, over how many elements, and in which order, against FSDP2's."""
import collections

import fixtures
from harness import Job, case, expect
from oracle import answer, ask

STEPS = 2
LAYERS = 3
GROUPS = LAYERS + 2  # the embedding, the blocks, and the norm with the output
SIZES = ["--model.args.n_layers", str(LAYERS), "--model.args.dim", "56"]
RESHARD = "--parallelism.fsdp_reshard_after_forward"
REPLICAS = "--parallelism.data_parallel_replicate_degree"

# ranks -> name -> (overrides, microbatches, collectives of a microbatch). Backward gathers again what forward freed.
REDUCED = {"reduce_scatter": GROUPS}
SCHEDULES = {
    2: {
        "default": ([RESHARD, "default"], 1, {"all_gather": 2 * GROUPS - 1, **REDUCED}),
        "always": ([RESHARD, "always"], 1, {"all_gather": 2 * GROUPS, **REDUCED}),
        "never": ([RESHARD, "never"], 1, {"all_gather": GROUPS, **REDUCED}),
        "accumulation": (["--training.global_batch_size", "8"], 2, {"all_gather": 2 * GROUPS - 1, **REDUCED}),
    },
    4: {
        "hsdp": ([REPLICAS, "2"], 1, {"all_gather": 2 * GROUPS - 1, **REDUCED, "all_reduce": GROUPS}),
        "neighbours": ([RESHARD, "2"], 1, {"all_gather": 2 * GROUPS - 1, **REDUCED}),
    },
}


for ranks, schedules in SCHEDULES.items():
    for name, (words, _, _) in schedules.items():
        ask(ranks, f"schedule {name}", SIZES + words, STEPS, tier="integration" if ranks == 2 else "wide", trace=True)


def run_program(context, ranks, config, name, words):
    trace = context.folder / f"program-{name}.trace"
    command = [context.program, "--nproc", ranks, "--config", config, "--overwrite", *SIZES, *words]
    job = Job(command, context.folder / "logs", name, {"TITAN_TRACE_COLLECTIVES": str(trace)})
    code = job.wait(60)
    expect(code == 0, f"{name}: exit code {code}\n{job.tail()}")
    return trace.read_text().splitlines()


def of_parameters(lines):
    """Returns (kind, elements in, elements out, dtype) of the collectives that carry parameters and gradients.

    Skips barriers, exchanges of integers and bytes (counts, messages), and the program's all-reduces outside the
    replicas' group (losses, and the gradient norm, which FSDP2 sums by calls that are not recorded).
    """
    split = [line.split() for line in lines]
    return [
        (kind, size_in, size_out, dtype)
        for kind, group, size_in, size_out, dtype in split
        if kind in ("all_gather", "reduce_scatter", "all_reduce")
        and "float" in dtype
        and (kind != "all_reduce" or group in ("-", "dp_replicate"))
    ]


def check_order(name, found, expected, kinds):
    """Checks that the collectives of `kinds` are the same ones, in the same order."""
    mine, theirs = ([c for c in calls if c[0] in kinds] for calls in (found, expected))
    for index, (one, other) in enumerate(zip(mine, theirs)):
        expect(one == other, f"{name}: {' and '.join(kinds)} number {index} is {one}, expected {other}")
    expect(len(mine) == len(theirs), f"{name}: {len(mine)} of {' and '.join(kinds)}, expected {len(theirs)}")


@case(180, ranks=[2, 4], wide=["4"])
def collective_order(context, ranks):
    """Every step starts FSDP2's collectives, no more and no fewer, in FSDP2's order.

    Gathers keep their place among reduce-scatters and reduce-scatters among all-reduces. A gather and an all-reduce
    have no order: they run on streams of their own, and neither waits for the other.
    """
    config = fixtures.write_job(context, "job", steps=STEPS)
    for name, (words, microbatches, counts) in SCHEDULES[ranks].items():
        found = of_parameters(run_program(context, ranks, config, name, words))
        expected = of_parameters(answer(context, ranks, f"schedule {name}").trace)
        per_run = {kind: count * microbatches * STEPS for kind, count in counts.items()}
        for whose, calls in (("the program", found), ("FSDP2", expected)):
            started = dict(collections.Counter(kind for kind, *_ in calls))
            expect(started == per_run, f"{name}: {whose} starts {started}, expected {per_run}")
        check_order(name, found, expected, ("all_gather", "reduce_scatter"))
        check_order(name, found, expected, ("reduce_scatter", "all_reduce"))
