"""Compares two builds of titan-train in turns: a step's time and a rank's memory, with equal losses.

    .venv/bin/python benchmarks/compare_programs.py --against OTHER/titan-train [--program build/release/titan-train]
                             [--rows debug,125m,wide] [--ranks 2] [--dtypes bf16,fp32] [--repeats 4] [--steps N]
                             [--tolerance 0]

Each round runs both builds once, on the models of compare_torchtitan.py; the next round starts with the other build,
and ratios are within a round. If a loss differs in any bit, or relatively by more than --tolerance, no ratio is printed
and the exit code is 1. Ranks have one thread each.
"""
import argparse
import pathlib
import statistics
import sys
import tempfile

import common
from common import MIB, harness
from compare_torchtitan import DTYPES, ROWS, STEPS, UNCOUNTED_STEPS, words_of


def run(program, row, ranks, dtype, steps, folder, assets):
    """Returns (median seconds of a step, peak bytes of the largest rank, losses)."""
    config = common.write_job(folder, ROWS[row], assets, steps)
    words = ["--training.mixed_precision_param", DTYPES[dtype]]
    result = common.run_once(common.PROGRAMS[0], program, config, None, ranks, words)
    seconds = [each["step_seconds"] for each in result.rows[UNCOUNTED_STEPS:]]
    return statistics.median(seconds), max(result.peaks), [each["loss"] for each in result.rows]


def are_equal(ours, other, tolerance):
    return all(harness.relative_distance(a, b) <= tolerance for a, b in zip(ours, other, strict=True))


def compare(options, row, ranks, dtype, folder, assets):
    """Prints a line of the table. Returns True if the losses are equal."""
    steps = options.steps or STEPS[row]
    rounds = []
    for number in range(options.repeats):
        sides = ["program", "against"][:: 1 if number % 2 == 0 else -1]
        runs = {side: run(getattr(options, side), row, ranks, dtype, steps, folder / side, assets) for side in sides}
        rounds.append((runs["program"], runs["against"]))
    is_equal = all(are_equal(ours[2], other[2], options.tolerance) for ours, other in rounds)
    ratios = [[ours[i] / other[i] for ours, other in rounds] for i in range(2)]
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
    parser.add_argument("--work", type=pathlib.Path, default=common.ROOT / "build/benchmarks")
    options = parser.parse_args()
    if options.repeats < 1 or (options.steps is not None and options.steps <= UNCOUNTED_STEPS):
        parser.error(f"--repeats must be at least 1, and --steps above {UNCOUNTED_STEPS}")
    for side in ("program", "against"):
        setattr(options, side, getattr(options, side).resolve())
        harness.expect(getattr(options, side).exists(), f"there is no {getattr(options, side)}")
    options.work.mkdir(parents=True, exist_ok=True)
    assets = common.fixtures.make_fixtures(options.work.resolve())
    print("| model | ranks | dtype | seconds a step | ratio | peak MiB of a rank | ratio |\n|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        cells = [(row, ranks, dtype) for row in options.rows for ranks in options.ranks for dtype in options.dtypes]
        equal = [compare(options, *cell, pathlib.Path(folder) / "-".join(map(str, cell)), assets) for cell in cells]
    return 0 if all(equal) else 1


if __name__ == "__main__":
    sys.exit(main())
