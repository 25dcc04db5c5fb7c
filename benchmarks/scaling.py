"""Measures how speed depends on model size, sequence length and number of ranks, compared with TorchTitan, on CPU.

    .venv/bin/python benchmarks/scaling.py [--axes size,sequence,ranks] [--dtype bf16] [--repeats 3] [--steps 12] [--json FILE]
    PYTHON benchmarks/scaling.py --plot FILE.json docs/scaling.svg       # with matplotlib: benchmarks/requirements-plots.txt

Runs are those of compare_torchtitan.py: the same TOML file, seed checkpoint and tokens, in rounds of rotating order. A
point is the median over rounds; if the losses disagree there is no point, and the exit code is 1. One axis changes at a
time, around the debug model at 2 ranks; all sequence lengths have the same tokens per step.
"""
import argparse
import json
import pathlib
import statistics
import sys
import tempfile

import common
import titan_pair
from common import Shape, harness
from compare_torchtitan import DTYPES, LOSS_TOLERANCE, UNCOUNTED_STEPS, loss_difference, print_machine, speed, words_of
from titan_pair import EAGER, OURS

SIZES = [(64, 2, 4), (128, 4, 8), (256, 6, 16), (512, 8, 8), (768, 12, 12)]  # dim, layers, heads
SEQUENCES = [64, 128, 256, 512, 1024, 2048]
TOKENS = 2048  # tokens per rank and step on the sequence axis
RANKS = [1, 2, 4]
AXES = ("size", "sequence", "ranks")
TITLES = {"size": "model", "sequence": "sequence length", "ranks": "ranks on the same cores"}


def cells_of(axis, dtype, steps):
    """Returns {label: Cell to run}."""
    def cell(label, dim=256, layers=6, heads=16, batch=4, sequence=256, ranks=2):
        shape = Shape(dim, layers, heads, 2048, 256, batch, sequence)
        return label, titan_pair.Cell(f"{axis}-{label}", shape, ranks, dtype, steps)

    if axis == "size":
        return dict(cell(f"{dim} x {layers}", dim, layers, heads) for dim, layers, heads in SIZES)
    if axis == "sequence":
        return dict(cell(str(length), batch=TOKENS // length, sequence=length) for length in SEQUENCES)
    return dict(cell(str(ranks), ranks=ranks) for ranks in RANKS)


def measure(pair, axis, options):
    points = []
    for label, cell in cells_of(axis, DTYPES[options.dtype], options.steps).items():
        rounds = []
        for repeat in range(options.repeats):
            order = (OURS, EAGER) if repeat % 2 == 0 else (EAGER, OURS)
            rounds.append({side: pair.run(side, cell, cell.steps) for side in order})
        difference = max(loss_difference(each[OURS], each[EAGER]) for each in rounds)
        speeds = {side: [speed(each[side]) for each in rounds] for side in (OURS, EAGER)}
        others = max(run.others for each in rounds for run in each.values())
        points.append(
            {"label": label, "tokens_per_second": speeds, "flops_per_token": cell.flops_per_token(), "loss_difference": difference,
             "agrees": difference <= LOSS_TOLERANCE[cell.dtype], "others": others, "dtype": cell.dtype}
        )  # fmt: skip
        medians = [statistics.median(speeds[side]) for side in (OURS, EAGER)]
        ratio = f"{medians[0] / medians[1]:.2f} times" if points[-1]["agrees"] else "NO RATIO, the losses disagree"
        print(f"{axis} {label}: {medians[0]:.0f} to {medians[1]:.0f} tokens/s, {ratio}, losses differ by {difference:.0e}, "
              f"others took up to {100 * others:.0f} % of the cores", flush=True)  # fmt: skip
    return points


def plot(source, target):
    """Plots the share of the GEMM peak of both, and the ratio, one column per axis."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "titan-train"  # the same bytes from the same numbers
    from matplotlib import pyplot

    found = json.loads(source.read_text())
    axes = [axis for axis in AXES if axis in found["axes"]]
    figure, panels = pyplot.subplots(2, len(axes), figsize=(4 * len(axes), 5.5), squeeze=False, sharex="col", sharey="row")
    for column, axis in enumerate(axes):
        points = [point for point in found["axes"][axis] if point["agrees"]]
        labels = [point["label"] for point in points]
        for side, color in ((OURS, "tab:blue"), (EAGER, "tab:orange")):
            shares = [100 * statistics.median(p["tokens_per_second"][side]) * p["flops_per_token"] / found["peak"] for p in points]
            panels[0][column].plot(labels, shares, "o-", color=color, label=side)
        ratios = [[a / b for a, b in zip(p["tokens_per_second"][OURS], p["tokens_per_second"][EAGER])] for p in points]
        middle = [statistics.median(each) for each in ratios]
        below = [m - min(each) for m, each in zip(middle, ratios)]
        above = [max(each) - m for m, each in zip(middle, ratios)]
        panels[1][column].errorbar(labels, middle, yerr=[below, above], fmt="o-", color="tab:green", capsize=3)
        panels[1][column].axhline(1, color="gray", linewidth=0.8)
        panels[1][column].set_xlabel(TITLES[axis])
    panels[0][0].set_ylabel("% of the GEMM peak")
    panels[1][0].set_ylabel("titan-train / TorchTitan")
    panels[0][0].legend()
    panels[0][0].set_ylim(bottom=0)
    panels[1][0].set_ylim(bottom=0)
    figure.suptitle(f"{found['dtype']}, {found['cores']} cores of {found['processor']}, peak {found['peak'] / 1e9:.0f} GFLOP/s", fontsize=10)
    figure.tight_layout()
    figure.savefig(target, metadata={"Date": None})


def processor():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "an unknown processor")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--axes", type=words_of(AXES), default=list(AXES), help=f"some of {','.join(AXES)}")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12, help=f"the first {UNCOUNTED_STEPS} count for no speed")
    parser.add_argument("--program", type=pathlib.Path, default=common.ROOT / "build/release/titan-train")
    parser.add_argument("--work", type=pathlib.Path, default=common.ROOT / "build/benchmarks")
    parser.add_argument("--venv", type=pathlib.Path, default=common.ROOT / "build/torchtitan-venv")
    parser.add_argument("--json", type=pathlib.Path, default=common.ROOT / "build/benchmarks/scaling.json")
    parser.add_argument("--plot", type=pathlib.Path, nargs=2, metavar=("JSON", "SVG"))
    options = parser.parse_args()
    if options.steps <= UNCOUNTED_STEPS or options.repeats < 1:
        parser.error(f"--steps must be above {UNCOUNTED_STEPS}, --repeats at least 1")
    return options


def main():
    options = parse_arguments()
    if options.plot:
        plot(*options.plot)
        return 0
    python = titan_pair.find_python(options.venv.resolve())
    options.program, options.work = options.program.resolve(), options.work.resolve()
    harness.expect(options.program.exists(), f"there is no {options.program}: build it, or name it with --program")
    options.work.mkdir(parents=True, exist_ok=True)
    found = {"dtype": DTYPES[options.dtype], "cores": titan_pair.CORES, "processor": processor(), "axes": {}}
    with tempfile.TemporaryDirectory(dir=options.work, prefix="scaling-") as folder:
        pair = titan_pair.Pair(options.program, python, options.work, pathlib.Path(folder))
        peaks = [titan_pair.gemm_peak(python, pair.folder)]
        try:
            for axis in options.axes:
                found["axes"][axis] = measure(pair, axis, options)
                peaks.append(titan_pair.gemm_peak(python, pair.folder))
        finally:  # an error or Ctrl-C does not lose what was measured
            found["peak"] = max(rate for each in peaks for name, rate in each.items() if name.startswith(found["dtype"]))
            print_machine(peaks)
            options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if all(point["agrees"] for points in found["axes"].values() for point in points) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except harness.Failure as failure:
        sys.exit(f"scaling.py: {failure}")
    finally:
        harness.end_all_jobs()
