"""Measures the waits and the memory of a pipeline's ranks, and compares them with what `titan-train schedule` predicts.

    .venv/bin/python benchmarks/pipeline_bubble.py [--ranks 2,4] [--schedules GPipe,1F1B] [--microbatches 8] [--repeats 3]
                                                   [--dtype float32] [--json FILE]

Every rank has one thread and equally many layers; the vocabulary is small, so that stages take nearly equal time.

Bubble: the share of the time, over all ranks, in which no stage computes, between begin and end of the part of a step
that the schedule orders. It is read from traces of every rank (two steps of each run): an action's range without the
wait for its message inside it is computation. Beside it are two predictions: with equal times of F, I and W, and with
the means that the traces have. "messages" is the part of the bubble that is waits for other ranks; the rest is what the
ranks do between actions. "rank 0 waits" is measured in steps without a trace, by the program's own comm_seconds, and is
a check that the trace does not change what it shows. If ranks share cores, one computes while another waits, and no
bubble is printed.

Memory: the peak of each rank's tensors. The difference between GPipe with N and with N / 2 microbatches is the memory of
N / 2 microbatches; in this unit the table has what each rank kept, against the prediction.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import sys
import tempfile

import common
from common import harness

SCHEDULES = {"GPipe": 1, "1F1B": 1, "Interleaved1F1B": 2, "LoopedBFS": 2, "InterleavedZeroBubble": 2, "ZBVZeroBubble": 2, "DualPipeV": 2}
LAYERS = 8
STEPS, TRACED = 7, 2
UNTRACED = range(3, STEPS - TRACED)  # without the first ones, which fill allocators, and the profiler's warm-up
ACTION = re.compile(r"\d+([FBIW])\d+")
PEAK = re.compile(r"tensors of this rank took at most ([\d.]+) (KiB|MiB|GiB)")
UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
CORES = len(os.sched_getaffinity(0))


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.assets = common.fixtures.make_fixtures(folder / "assets")

    def train(self, schedule, ranks, microbatches):
        """Returns the folder of a run that has ended."""
        shape = common.Shape(self.options.dim, LAYERS, 8, common.fixtures.VOCABULARY, 256, batch=microbatches, sequence=self.options.sequence)
        folder = self.folder / "run"
        config = common.write_job(folder, shape, self.assets, STEPS)
        # Equally many layers in each stage: embedding and output projection count as none.
        mesh = {
            "degree": ranks,
            "schedule": schedule,
            "layers_per_stage": LAYERS // (ranks * SCHEDULES[schedule]),
            "first_stage_less_layers": 0,
            "last_stage_less_layers": 0,
        }
        words = [word for key, value in mesh.items() for word in (f"--parallelism.pipeline_parallel_{key}", value)]
        words += ["--training.mixed_precision_param", self.options.dtype, "--overwrite"]
        words += ["--profiling.enable_profiling", "--profiling.profile_freq", STEPS, "--profiling.profiler_active", TRACED]
        words += ["--profiling.profiler_warmup", 1]
        command = [self.options.program, "--nproc", ranks, "--config", config, *words]
        job = harness.Job(command, folder / "logs", "titan", {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""})
        code = job.wait(1800)
        harness.expect(code == 0, f"{schedule} on {ranks} ranks failed with {code}\n{job.tail(30)}")
        return folder / "program"

    def predict(self, schedule, ranks, microbatches, costs="1,1,1"):
        words = ["schedule", schedule, "--ranks", ranks, "--microbatches", microbatches, "--costs", costs, "--format", "json"]
        job = harness.Job([self.options.program, *words], self.folder / "logs", "schedule")
        harness.expect(job.wait(60) == 0, job.tail(10))
        return json.loads(job.out_path.read_text())


def inside(events, outer):
    return [e for e in events if outer["ts"] <= e["ts"] and e["ts"] + e["dur"] <= outer["ts"] + outer["dur"]]


def read_trace(path):
    """Returns, of each traced step of a rank: its microseconds, those that compute, those of waits for messages, and the
    lengths of its actions by letter."""
    events = [e for e in json.loads(path.read_text())["traceEvents"] if e.get("ph") == "X" and e.get("cat") == "user_annotation"]
    steps = []
    for whole in (e for e in events if e["name"] == "forward and backward"):
        own = inside(events, whole)
        messages = [e for e in own if re.match(r"(wait for )?(send to|receive from) rank", e["name"])]
        lengths = {}
        for action in own:
            if found := ACTION.fullmatch(action["name"]):
                waits = sum(e["dur"] for e in inside(messages, action))
                lengths.setdefault(found[1], []).append(action["dur"] - waits)
        steps.append((whole["dur"], sum(map(sum, lengths.values())), sum(e["dur"] for e in messages), lengths))
    harness.expect(len(steps) == TRACED, f"{path} has {len(steps)} steps")
    return steps


def costs_of(lengths):
    """Returns the times of F, I and W for --costs; a full backward is halved."""
    mean = {letter: statistics.mean(values) for letter, values in lengths.items()}
    halves = [mean.get("I", mean.get("B", 0) / 2), mean.get("W", mean.get("B", 0) / 2)]
    return ",".join(f"{value:.0f}" for value in [mean["F"], *halves])


def bubble_of(dump, ranks):
    """Returns the bubble, the part of it that is waits for messages, the measured costs, and rank 0's waits."""
    traces = [read_trace(dump / f"profile_traces/iteration_{STEPS}/rank{rank}_trace.json") for rank in range(ranks)]
    bubbles, waits, lengths = [], [], {}
    for step in zip(*traces):
        makespan = max(whole for whole, _, _, _ in step)
        bubbles.append(1 - sum(busy for _, busy, _, _ in step) / (ranks * makespan))
        waits.append(sum(wait for _, _, wait, _ in step) / (ranks * makespan))
        for _, _, _, of_rank in step:
            for letter, values in of_rank.items():
                lengths.setdefault(letter, []).extend(values)
    rows = harness.rows_by_step(dump / "metrics.jsonl")
    rank_0 = statistics.median(rows[step]["comm_seconds"] / rows[step]["step_seconds"] for step in UNTRACED)
    return statistics.mean(bubbles), statistics.mean(waits), costs_of(lengths), rank_0


def peaks_of(dump, ranks):
    """Returns the peak bytes of each rank's tensors."""
    found = [PEAK.findall((dump / f"logs/rank_{rank}.log").read_text())[-1] for rank in range(ranks)]  # runs append
    return [float(size) * UNITS[unit] for size, unit in found]


def percent(values):
    return common.median_and_range([100 * value for value in values], digits=1)


def measure(bench, ranks):
    options = bench.options
    count = options.microbatches
    print(f"\n{ranks} ranks on {CORES} cores, {count} microbatches of {options.sequence} tokens, {LAYERS} layers of width {options.dim}, {options.dtype}", flush=True)
    half = peaks_of(bench.train("GPipe", ranks, count // 2), ranks)
    full = peaks_of(bench.train("GPipe", ranks, count), ranks)
    units = [(a - b) / (count - count // 2) for a, b in zip(full, half)]
    head = ["schedule", "bubble %", "predicted", "with costs", "messages %", "rank 0 waits %", "kept by rank", "predicted"]
    line = "{:<22}{:>20}{:>11}{:>12}{:>20}{:>20}   {:<24}{}"
    print(line.format(*head))
    results = []
    for schedule in options.schedules:
        rounds, peaks = [], []
        for _ in range(options.repeats):
            dump = bench.train(schedule, ranks, count)
            rounds.append(bubble_of(dump, ranks))
            peaks.append(peaks_of(dump, ranks))
        bubbles, waits, costs, rank_0 = zip(*rounds)
        predicted = bench.predict(schedule, ranks, count)
        with_costs = [bench.predict(schedule, ranks, count, each)["bubble"] for each in costs]
        kept = [(max(each[rank] for each in peaks) - full[rank]) / units[rank] + count for rank in range(ranks)]
        expected = [each["activations"] / SCHEDULES[schedule] for each in predicted["ranks"]]
        results.append({"ranks": ranks, "schedule": schedule, "bubbles": bubbles, "predicted": predicted["bubble"], "costs": costs,
                        "with_costs": with_costs, "waits": waits, "rank_0_waits": rank_0, "kept": kept, "expected": expected, "peaks": peaks})  # fmt: skip
        shared = ranks > CORES
        times = ["cores are shared", f"{100 * predicted['bubble']:.1f}", "", "", ""]
        if not shared:
            times = [percent(bubbles), times[1], f"{100 * statistics.median(with_costs):.1f}", percent(waits), percent(rank_0)]
        print(line.format(schedule, *times, " ".join(f"{x:.1f}" for x in kept), " ".join(f"{x:g}" for x in expected)), flush=True)
    return results


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ranks", type=lambda text: [int(word) for word in text.split(",")], default=[2, 4])
    parser.add_argument("--schedules", type=lambda text: text.split(","), default=list(SCHEDULES), help="names, as in --help of schedule")
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--sequence", type=int, default=512)
    parser.add_argument("--dim", type=int, default=512, help="width of the model")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--program", type=pathlib.Path, default=common.ROOT / "build/release/titan-train")
    parser.add_argument("--json", type=pathlib.Path, help="also write the numbers here")
    options = parser.parse_args()
    if unknown := set(options.schedules) - set(SCHEDULES):
        parser.error(f"--schedules: {', '.join(sorted(unknown))}: expected some of {', '.join(SCHEDULES)}")
    if any(ranks < 2 or LAYERS % (2 * ranks) for ranks in options.ranks):
        parser.error(f"--ranks: expected numbers whose double divides the {LAYERS} layers")
    options.program = options.program.resolve()
    return options


def main():
    options = parse_arguments()
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(options, pathlib.Path(name))
        results = [result for ranks in options.ranks for result in measure(bench, ranks)]
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except harness.Failure as failure:
        sys.exit(f"pipeline_bubble.py: {failure}")
    finally:
        harness.end_all_jobs()
