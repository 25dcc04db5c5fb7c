"""Measures what debug.memory_check_freq costs: processor time per step with checks of memory, against none.

    .venv/bin/python benchmarks/memory_check_cost.py [--model 125m] [--ranks 1] [--freq 1] [--repeats 5] [--steps 6]

A frequency above the number of steps measures what each update costs that compares weights and moments.

Each round runs both sides, in turns. A side's value is the difference between a run of all steps and one of a single
step, divided by the steps between, so that the start does not count. Prints both sides' medians and the median of the
rounds' ratios.
"""
import argparse
import pathlib
import tempfile

import common
from common import fixtures, harness

SIDES = ["checked", "none"]


def seconds_of(context, config, side, ranks, steps, freq):
    words = ["--config", config, "--overwrite", "--training.steps", steps, "--debug.memory_check_freq", freq if side == "checked" else 0]
    with harness.cpu_seconds() as spent:
        harness.run(context, ranks, words, name=f"{side}-{steps}", timeout_s=600)
    return spent.seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", choices=common.SHAPES, default="125m")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--freq", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--program", type=pathlib.Path, default=common.ROOT / "build/release/titan-train")
    options = parser.parse_args()
    rounds = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        context = harness.Context(options.program.resolve(), folder, fixtures.make_fixtures(folder / "assets"))
        config = common.write_job(folder, common.SHAPES[options.model], context.fixtures, options.steps)
        for repeat in range(options.repeats):
            spent = {}
            for side in SIDES[:: -1 if repeat % 2 else 1]:
                short, long = (seconds_of(context, config, side, options.ranks, steps, options.freq) for steps in (1, options.steps))
                spent[side] = (long - short) / (options.steps - 1)
            rounds.append(spent)
    for side in SIDES:
        print(f"{side:8} {common.median_and_range([1000 * each[side] for each in rounds], digits=1)} ms a step")
    ratios = [each["checked"] / each["none"] for each in rounds]
    print(f"{options.model}, {options.ranks} ranks: ratio {common.median_and_range(ratios, digits=4)}")


if __name__ == "__main__":
    main()
