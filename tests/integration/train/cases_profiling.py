"""Tests [profiling]: traces of chosen steps and ranks, in the Chrome trace format, with names on the parts of steps."""
import collections
import json
import re

from fixtures import write_job
from harness import case, check_identical, expect, read_rows, rows_by_step, run

KEYS = ("loss", "max_loss", "grad_norm", "lr", "tokens_seen")
# Two cycles of four steps record steps 3 and 4, and 7 and 8; the training ends within the third cycle.
CYCLE = ["--profiling.enable_profiling", "--profiling.profile_freq", 4, "--profiling.profiler_active", 2, "--profiling.profiler_warmup", 1]
# Events of Kineto's Chrome traces by the letter of their phase, and the fields that each must have by the format's
# documentation: complete events, metadata, instant events, the two ends of a flow.
NEEDED = {
    "X": {"name", "cat", "ts", "dur", "pid", "tid"},
    "M": {"name", "pid", "args"},
    "i": {"name", "s", "ts", "pid", "tid"},
    "s": {"name", "cat", "id", "ts", "pid", "tid"},
    "f": {"name", "cat", "id", "ts", "pid", "tid"},
}
# Times are microseconds with three digits after the point.
ROUNDING = 0.002


def read_trace(path):
    """Reads a trace and checks each of its events against the format."""
    expect(path.exists(), f"{path} was not written")
    trace = json.loads(path.read_text())
    events = trace["traceEvents"]
    for event in events:
        needed = NEEDED.get(event["ph"])
        expect(needed is not None, f"{path}: an event of phase {event['ph']!r}")
        expect(needed <= set(event), f"{path}: {event} lacks {sorted(needed - set(event))}")
        expect(event["ph"] != "X" or event["dur"] >= 0, f"{path}: {event} ends before it begins")
    flows = collections.Counter((event["id"], event["ph"]) for event in events if event["ph"] in "sf")
    expect(all(count == 1 and flows[id, "fs"[ph == "f"]] == 1 for (id, ph), count in flows.items()), f"{path}: half a flow")
    check_nesting(path, events)
    return trace


def end_of(event):
    return event["ts"] + event["dur"]


def check_nesting(path, events):
    """Checks that a thread's complete events are nested or disjoint: otherwise a viewer misplaces some."""
    threads = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            threads[event["pid"], event["tid"]].append(event)
    for thread in threads.values():
        open_events = []
        for event in sorted(thread, key=lambda e: (e["ts"], -e["dur"])):
            while open_events and end_of(open_events[-1]) <= event["ts"] + ROUNDING:
                open_events.pop()
            if open_events:
                around = open_events[-1]
                expect(end_of(event) <= end_of(around) + ROUNDING, f"{path}: {event['name']} ends after {around['name']}, in which it began")
            open_events.append(event)


def ranges(trace):
    """Returns {name: events} of the named ranges."""
    found = collections.defaultdict(list)
    for event in trace["traceEvents"]:
        if event.get("cat") == "user_annotation":
            found[event["name"]].append(event)
    return found


def check_inside(inner, outer, what):
    for event in inner:
        around = [o for o in outer if o["ts"] <= event["ts"] + ROUNDING and end_of(event) <= end_of(o) + ROUNDING]
        expect(len(around) == 1, f"{what}: {event['name']} lies in {len(around)} of {sorted({o['name'] for o in outer})}")


def check_steps(trace, steps, ranks):
    """Checks the ranges of the recorded steps (numbers of finished steps, as in torch.profiler) and all inside."""
    named = ranges(trace)
    found = [name for name in named if name.startswith("ProfilerStep#")]
    expect(found == [f"ProfilerStep#{step}" for step in steps], f"steps {found}, expected {steps}")
    whole = [event for name in found for event in named[name]]
    for name in ("data", "step", "forward", "backward", "optimizer", "checkpoint", "validation", "log"):
        expect(len(named[name]) >= len(steps), f"{len(named[name])} ranges {name!r} in {len(steps)} steps")
        check_inside(named[name], whole, "a step")
    # Backward recomputes what is inside a block.
    for name, times in (("layers.0", 1), ("output", 1), ("layers.1.attention", 2), ("layers.1.feed_forward", 2)):
        expect(len(named[name]) == times * len(steps), f"{len(named[name])} calls of {name} in {len(steps)} steps")
        check_inside(named[name], named["forward"] + named["recompute"], "forward")
    check_inside(named["recompute"], named["backward"], "backward")
    check_inside(named["forward"] + named["backward"], named["step"], "step")
    if ranks == 1:
        return
    for name in ("FSDP::all_gather (layers.1)", "FSDP::all_gather_copy_out (layers.1)", "FSDP::post_backward_reduce (layers.1)"):
        expect(named[name], f"no range {name}")
        check_inside(named[name], named["step"], "step")
    kinds = {name.split(" over ")[0] for name in named if " over " in name}
    wanted = {"all_gather", "reduce_scatter", "all_reduce", "wait for all_gather", "wait for reduce_scatter"}
    expect(wanted <= kinds, f"collectives {sorted(kinds)}, expected {sorted(wanted)}")


@case(120, quick=[2], ranks=[1, 2], wide=["1"])
def profiles(context, ranks):
    """Traces are where TorchTitan puts them, hold the steps of the schedule, and change no number of the training."""
    words = ["--checkpoint.enable", "--checkpoint.interval", 4, "--checkpoint.no-last_save_model_only", "--activation_checkpoint.mode", "full"]
    for name, extra in (("plain", []), ("profiled", CYCLE)):
        job = run(context, ranks, ["--config", write_job(context, name, steps=11), *words, *extra], name=name)
    check_identical(
        *(rows_by_step(context.dump(name) / "metrics.jsonl", exact=True) for name in ("profiled", "plain")), KEYS, "with a profile"
    )
    folder = context.dump("profiled") / "profile_traces"
    expected = [f"iteration_{step}/rank{rank}_trace.json" for step in (11, 4, 8) for rank in range(ranks)]
    found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    expect(found == sorted(expected), f"{folder} holds {found}, expected {sorted(expected)}")
    for rank in range(ranks):
        for last, steps in ((4, [2, 3]), (8, [6, 7]), (11, [10])):
            trace = read_trace(folder / f"iteration_{last}/rank{rank}_trace.json")
            expect(trace["distributedInfo"]["rank"] == rank, f"{trace['distributedInfo']} in the trace of rank {rank}")
            check_steps(trace, steps, ranks)
    check_table(job.text(), steps=5, ranks=ranks)
    expect("ERROR:" not in job.text(), f"Kineto speaks\n{job.tail(40)}")


def check_table(text, steps, ranks):
    """Checks the last lines of rank 0: every part once, shares that add up, and the operators."""
    whole = re.search(rf"where the time of {steps} profiled steps went, (\d+\.\d\d) ms each:", text)
    expect(whole, "no table at the end of the run")
    parts = {name: float(ms) for name, ms in re.findall(r"INFO -   ([a-z-]+) +(\d+\.\d\d) ms +\d+\.\d%", text)}
    wanted = {"forward", "backward", "optimizer", "checkpoint"} | ({"all-gather", "reduce-scatter", "all-reduce"} if ranks > 1 else set())
    expect(wanted <= set(parts), f"parts {sorted(parts)}, expected {sorted(wanted)}")
    # Parts below 0.01 ms are not shown; there are at most thirteen.
    expect(abs(sum(parts.values()) - float(whole[1])) <= 13 * 0.01, f"{parts} do not add up to {whole[1]} ms")
    expect(re.search(r"longest operators: \S+.* \d+\.\d\d ms", text), "no operators")


@case(60)
def profile_of_some_ranks(context):
    """profiling.ranks: one rank writes, into the folder of the key; the table is rank 0's, which recorded nothing."""
    words = [*CYCLE, "--profiling.ranks", "1", "--profiling.save_traces_folder", "traces"]
    job = run(context, 2, ["--config", write_job(context, "some", steps=4), *words])
    found = [str(path.relative_to(context.dump("some"))) for path in context.dump("some").rglob("*_trace.json")]
    expect(found == ["traces/iteration_4/rank1_trace.json"], f"traces {found}")
    read_trace(context.dump("some") / found[0])
    expect("where the time" not in job.text(), "rank 0 has a table of steps that it did not record")
    expect(len(read_rows(context.dump("some") / "metrics.jsonl")) == 4, "not four steps")


@case(60)
def profile_after_resume(context):
    """A resumed run is at the same place of its cycle; a training that ends in warm-up writes nothing."""
    save = ["--checkpoint.enable", "--checkpoint.interval", 3, "--checkpoint.no-last_save_model_only"]
    for steps in (3, 6):
        words = ["--training.steps", steps, "--lr_scheduler.total_steps", 6, *save, *CYCLE]
        run(context, 1, ["--config", write_job(context, "resumed"), *words], name=f"to{steps}")
    folder = context.dump("resumed") / "profile_traces"
    found = sorted(path.name for path in folder.iterdir())
    expect(found == ["iteration_3", "iteration_4"], f"{folder} holds {found}")
    for last, steps in ((3, [2]), (4, [3])):
        named = ranges(read_trace(folder / f"iteration_{last}/rank0_trace.json"))
        expect(list(name for name in named if name.startswith("Prof")) == [f"ProfilerStep#{s}" for s in steps], f"iteration_{last}: {list(named)}")


@case(60, processors=1)
def profile_of_a_run_that_diverges(context):
    """If a training ends early, its recording is written, and its last step has its end."""
    words = ["--optimizer.lr", "1e30", "--lr_scheduler.warmup_steps", 0, *CYCLE[:1], "--profiling.profile_freq", 100]
    words += ["--profiling.profiler_active", 100, "--profiling.profiler_warmup", 0]
    job = run(context, 1, ["--config", write_job(context, "run", steps=9), *words], exit_code=4)
    last = read_rows(context.dump("run") / "metrics.jsonl")[-1]["step"]
    named = ranges(read_trace(context.dump("run") / f"profile_traces/iteration_{last}/rank0_trace.json"))
    found = [name for name in named if name.startswith("ProfilerStep#")]
    expect(found == [f"ProfilerStep#{step}" for step in range(last)], f"steps {found}, diverged at {last}")
    expect(f"where the time of {last} profiled steps went" in job.text(), f"no table\n{job.tail()}")


@case(60, processors=1)
def profile_cannot_be_written(context):
    """A folder that cannot be written loses the trace, not the training."""
    config = write_job(context, "blocked", steps=4)
    context.dump("blocked").mkdir()
    (context.dump("blocked") / "profile_traces").write_text("a file")
    job = run(context, 1, ["--config", config, *CYCLE])
    expect("the profile could not be written to" in job.text(), f"no warning\n{job.tail()}")
    expect("training completed" in job.text(), "the training did not go on")


@case(30, processors=1)
def memory_snapshots_need_a_gpu(context):
    """A CPU has no such allocator: a run that asks for snapshots is refused, with the key's place."""
    config = write_job(context, "cpu", steps=2)
    words = ["--config", config, "--training.device", "cpu", "--profiling.enable_memory_snapshot"]
    job = run(context, 1, words, exit_code=2)
    expect("profiling.enable_memory_snapshot needs a GPU" in job.text(), f"no reason\n{job.tail()}")
