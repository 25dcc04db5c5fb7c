"""Compares two builds of titan-train in turns: a step's time and a rank's memory, with equal losses.

    .venv/bin/python benchmarks/compare_programs.py --against OTHER/titan-train [--program build/release/titan-train]
                             [--rows debug,125m,wide] [--ranks 2] [--dtypes bf16,fp32] [--repeats 4] [--steps N]
                             [--tolerance 0] [--turns run|step]

Each round runs both builds once, on the models of compare_torchtitan.py; the next round starts with the other build,
and ratios are within a round. With --turns step both builds run at once and take turns at every step, the other being
stopped meanwhile, and the ratio is the median over the pairs of steps: it needs the memory of both, and a machine whose
speed changes from minute to minute spoils it less. If a loss differs in any bit, or relatively by more than
--tolerance, no ratio is printed and the exit code is 1. Ranks have one thread each.
"""
import argparse
import pathlib
import signal
import statistics
import sys
import tempfile

import common
import step_turns
from common import MIB, harness
from compare_torchtitan import DTYPES, ROWS, STEPS, UNCOUNTED_STEPS, words_of

SIDES = ["program", "against"]


def run(program, row, ranks, dtype, steps, folder, assets, make_watch=common.Watch):
    """Returns (median seconds of a step, peak bytes of the largest rank, losses)."""
    config = common.write_job(folder, ROWS[row], assets, steps)
    words = ["--training.mixed_precision_param", DTYPES[dtype]]
    result = common.run_once(common.PROGRAMS[0], program, config, None, ranks, words, make_watch=make_watch)
    seconds = [each["step_seconds"] for each in result.rows[UNCOUNTED_STEPS:]]
    return statistics.median(seconds), max(result.peaks), [each["loss"] for each in result.rows]


def run_in_turns(programs, row, ranks, dtype, steps, folder, assets):
    """Returns (side -> what run() returns, ratios of the pairs of steps)."""

    def run_side(side, turns):
        watch = turns.watch_of(side, folder / side / "program/metrics.jsonl")
        return run(programs[side], row, ranks, dtype, steps, folder / side, assets, watch)

    runs, seconds = step_turns.run_in_turns(run_side, SIDES, ranks, UNCOUNTED_STEPS, steps)
    ours, other = (seconds[side] for side in SIDES)
    runs = {side: (statistics.median(seconds[side]), *runs[side][1:]) for side in SIDES}
    return runs, [a / b for a, b in zip(ours, other, strict=True)]


def are_equal(ours, other, tolerance):
    return all(harness.relative_distance(a, b) <= tolerance for a, b in zip(ours, other, strict=True))


def compare(options, row, ranks, dtype, folder, assets):
    """Prints a line of the table. Returns True if the losses are equal."""
    steps = options.steps or STEPS[row]
    programs = {side: getattr(options, side) for side in SIDES}
    rounds, ratios = [], [[], []]  # of seconds, and of bytes
    for number in range(options.repeats):
        if options.turns == "step":
            runs, of_steps = run_in_turns(programs, row, ranks, dtype, steps, folder, assets)
        else:
            order = SIDES[:: 1 if number % 2 == 0 else -1]
            runs = {side: run(programs[side], row, ranks, dtype, steps, folder / side, assets) for side in order}
            of_steps = [runs["program"][0] / runs["against"][0]]
        rounds.append([runs[side] for side in SIDES])
        ratios[0] += of_steps
        ratios[1].append(runs["program"][1] / runs["against"][1])
    is_equal = all(are_equal(ours[2], other[2], options.tolerance) for ours, other in rounds)
    texts = [common.median_and_range(each, digits=3) if is_equal else "losses differ" for each in ratios]
    seconds = [statistics.median(side[0] for side in sides) for sides in zip(*rounds)]
    peaks = [statistics.median(side[1] for side in sides) / MIB for sides in zip(*rounds)]
    cells = [row, ranks, dtype, f"{seconds[1]:.3f} to {seconds[0]:.3f}", texts[0], f"{peaks[1]:.0f} to {peaks[0]:.0f}", texts[1]]
    print(f"| {' | '.join(map(str, cells))} |", flush=True)
    return is_equal


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=common.ROOT / "build/release/titan-train")
    parser.add_argument("--against", type=pathlib.Path, required=True, help="the other build's program")
    parser.add_argument("--rows", type=words_of(ROWS), default=list(ROWS), help=f"some of {','.join(ROWS)}")
    parser.add_argument("--ranks", type=lambda text: [int(word) for word in text.split(",")], default=[2])
    parser.add_argument("--dtypes", type=words_of(DTYPES), default=["bf16"], help="some of fp32,bf16")
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--steps", type=int, help=f"default: {STEPS}; the first {UNCOUNTED_STEPS} are not counted")
    parser.add_argument("--tolerance", type=float, default=0, help="of a loss, as a part of it; for what rounds elsewhere")
    parser.add_argument("--turns", choices=["run", "step"], default="run", help="when the other build is next")
    parser.add_argument("--work", type=pathlib.Path, default=common.ROOT / "build/benchmarks")
    options = parser.parse_args()
    least = UNCOUNTED_STEPS + (5 if options.turns == "step" else 1)
    if options.repeats < 1 or (options.steps is not None and options.steps < least):
        parser.error(f"--repeats must be at least 1, and --steps at least {least}")
    for side in ("program", "against"):
        setattr(options, side, getattr(options, side).resolve())
        harness.expect(getattr(options, side).exists(), f"there is no {getattr(options, side)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that jobs are ended, too
    options.work.mkdir(parents=True, exist_ok=True)
    assets = common.fixtures.make_fixtures(options.work.resolve())
    print("| model | ranks | dtype | seconds a step | ratio | peak MiB of a rank | ratio |\n|---|---|---|---|---|---|---|", flush=True)
    cells = [(row, ranks, dtype) for row in options.rows for ranks in options.ranks for dtype in options.dtypes]
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        try:
            equal = [compare(options, *cell, pathlib.Path(folder) / "-".join(map(str, cell)), assets) for cell in cells]
        finally:
            harness.end_all_jobs()
    return 0 if all(equal) else 1


if __name__ == "__main__":
    sys.exit(main())
