"""Measures what recording everything costs: processor time per step with a row, TensorBoard, a table and histograms of
every step, against a row every 1000 steps.

    .venv/bin/python benchmarks/metrics_overhead.py [--repeats 5] [--steps 100] [--program build/release/titan-train]

Trains the debug model on one rank with one thread. Each round runs both sides, in turns. A side's value is the
difference between a run of all steps and one of a single step, divided by the steps between, so that the start does not
count. Prints both sides' medians and the median of the rounds' ratios, which is promised to be below 1.01. A ratio of
processor times varies by some percent, so it also prints the share of the run's time that its own rows attribute to
reading back and writing.
"""
import argparse
import json
import pathlib
import statistics
import tempfile

import common
from common import fixtures, harness

SIDES = {
    "everything": ["--metrics.log_freq", "1", "--metrics.enable_tensorboard", "--metrics.enable_csv", "--metrics.gradient_histograms"],
    "nothing": ["--metrics.log_freq", "1000"],
}


def seconds_of(context, side, steps):
    words = ["--config", context.folder / "job.toml", "--overwrite", "--training.steps", steps, *SIDES[side]]
    with harness.cpu_seconds() as spent:
        harness.run(context, 1, words, name=f"{side}-{steps}", timeout_s=600)
    return spent.seconds


def log_share(folder):
    """Returns the share of the time between the second row and the last one."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    spent = [rows[at]["lost_log_seconds"] + rows[at]["lost_other_seconds"] for at in (1, -1)]
    return (spent[1] - spent[0]) / (rows[-1]["unix_time"] - rows[1]["unix_time"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--program", type=pathlib.Path, default=common.ROOT / "build/release/titan-train")
    options = parser.parse_args()
    rounds, shares = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        context = harness.Context(options.program.resolve(), folder, fixtures.make_fixtures(folder / "assets"))
        fixtures.write_job(context, "job", fixtures.DEBUG_MODEL, steps=options.steps)
        for repeat in range(options.repeats):
            order = list(SIDES)[:: -1 if repeat % 2 else 1]
            spent = {}
            for side in order:
                spent[side] = [seconds_of(context, side, steps) for steps in (1, options.steps)]
                if side == "everything":
                    shares.append(log_share(context.dump("job")))
            rounds.append({side: (long - short) / (options.steps - 1) for side, (short, long) in spent.items()})
    for side in SIDES:
        print(f"{side:12} {common.median_and_range([1000 * each[side] for each in rounds], digits=2)} ms a step")
    ratios = [each["everything"] / each["nothing"] for each in rounds]
    print(f"ratio        {common.median_and_range(ratios, digits=4)}  (promised: {1.01})")
    print(f"in the log   {common.median_and_range([100 * share for share in shares], digits=3)} % of the time of a run with everything")


if __name__ == "__main__":
    main()
