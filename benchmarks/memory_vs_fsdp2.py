"""Compares the peak memory of a rank with PyTorch's FSDP2 (the reference of tests/reference), on CPU and Gloo.

    .venv/bin/python benchmarks/memory_vs_fsdp2.py [--model debug|125m|both] [--ranks 1,2,4] [--repeats N] [--json FILE]

Both train the same few steps, in turns. "Above bare" is the peak resident set minus that of the same program training a
model of 16 features and one layer, which is the program, its libraries, threads and connections. A ratio is printed
only if the losses of both agree.
"""
import argparse
import json
import pathlib
import statistics
import sys
import tempfile

import common
from common import MIB, PROGRAMS

# Adam's state exists after the first step and all buffers have been used once after the second.
STEPS = 3
# bf16 losses of two correct programs over three steps; a wrong weight or token moves them by more.
LOSS_TOLERANCE = 5e-3
# A checkpoint has some kilobytes of indices and of the data position besides the tensors.
HELD_TOLERANCE = 0.01
FLOAT, BFLOAT = 4, 2
DEFAULT_RANKS = {"125m": [2], "debug": [1, 2, 4]}


def expected_bytes(shape, ranks):
    """Returns the bytes that rank 0 (the largest chunks) holds by the shapes, and the two largest gathered groups."""
    groups = [[(rows, size // rows) for size, rows in ((numel(p), p[0]) for p in group)] for group in shape.groups()]
    shard = sum(-(-rows // ranks) * width for group in groups for rows, width in group)
    gathered = sorted((sum(-(-rows // ranks) * ranks * width for rows, width in group) for group in groups))[-2:]
    return {
        "parameters": shard * FLOAT,
        "gradients": shard * FLOAT,
        "optimizer": 2 * shard * FLOAT,
        "gathered": sum(gathered) * BFLOAT,
    }


def numel(dims):
    count = 1
    for size in dims:
        count *= size
    return count


def measured_held(program, config, seed, ranks):
    """Returns the bytes that rank 0 really holds, for both: our checkpoint's own file, and PyTorch's tensors."""
    words = ["--checkpoint.enable", "--checkpoint.interval", "100000", "--checkpoint.no-last-save-model-only"]
    common.run_once(PROGRAMS[0], program, config, seed, ranks, ["--training.steps", "1", *words])
    files = list((config.parent / "program/checkpoint/step-1").glob("__0_*.distcp"))
    common.harness.expect(files, f"no checkpoint of rank 0 under {config.parent}/program")
    ours = sum(file.stat().st_size for file in files)
    report = config.parent / "held.json"
    common.run_once(PROGRAMS[1], program, config, seed, ranks, ["--training.steps", "1", "--held", report])
    return ours, json.loads(report.read_text())


def check_held(expected, ours, theirs):
    """Raises if a rank does not hold exactly its share."""
    for name, size in theirs.items():
        # Adam's step counters are a few bytes per parameter.
        close = abs(size - expected[name]) <= HELD_TOLERANCE * expected[name]
        common.harness.expect(close, f"FSDP2 holds {size} bytes of {name}, expected {expected[name]}")
    saved = expected["parameters"] + expected["optimizer"]
    close = abs(ours - saved) <= HELD_TOLERANCE * saved + 2 * MIB
    common.harness.expect(close, f"the program saved {ours} bytes of parameters and optimizer, expected {saved}")


def check_losses(results):
    first, second = (result.rows for result in results)
    common.harness.check_close(first, second, ["loss"], LOSS_TOLERANCE, "no ratio: the losses differ")


def measure(name, ranks, options, assets, folder):
    """Runs everything for one model and number of ranks. Returns the numbers as one object."""
    shape = common.SHAPES[name]
    configs = {
        "full": common.write_job(folder / f"{name}-{ranks}", shape, assets, STEPS),
        "bare": common.write_job(folder / f"bare-{ranks}", common.BARE, assets, STEPS),
    }
    seeds = {kind: common.make_seed(config, config.parent / "seed/step-0") for kind, config in configs.items()}
    expected = expected_bytes(shape, ranks)
    ours, theirs = measured_held(options.program, configs["full"], seeds["full"], ranks)
    check_held(expected, ours, theirs)
    peaks = {kind: {which: [] for which in PROGRAMS} for kind in configs}
    largest = {}
    losses = None
    for repeat in range(options.repeats):
        for kind, config in configs.items():
            # The order changes with every repetition, so that neither always follows the other.
            order = PROGRAMS if repeat % 2 == 0 else PROGRAMS[::-1]
            results = {which: common.run_once(which, options.program, config, seeds[kind], ranks) for which in order}
            check_losses([results[which] for which in PROGRAMS])
            for which, result in results.items():
                peaks[kind][which].append(max(result.peaks))
                print(f"  {name} {ranks} ranks, {kind}, {which}: {max(result.peaks) / MIB:.0f} MiB", flush=True)
            if kind == "full":
                losses = {which: [row["loss"] for row in result.rows] for which, result in results.items()}
                largest = {which: result.largest[0] for which, result in results.items()}
    return summarize(name, ranks, expected, peaks, losses, largest)


def summarize(name, ranks, expected, peaks, losses, largest):
    bare = {which: statistics.median(peaks["bare"][which]) for which in PROGRAMS}
    above = {which: [peak - bare[which] for peak in peaks["full"][which]] for which in PROGRAMS}
    ratios = [ours / theirs for ours, theirs in zip(*(above[which] for which in PROGRAMS))]
    return {
        "model": name,
        "ranks": ranks,
        "peak": peaks["full"],
        "bare": peaks["bare"],
        "above_bare": above,
        "expected": expected,
        "rest": {which: statistics.median(above[which]) - sum(expected.values()) for which in PROGRAMS},
        "ratios": ratios,
        "losses": losses,
        "largest_resident": largest,
    }


def print_table(row):
    def line(label, cells):
        print(f"{label:<40}" + "".join(f"{cell:>22}" for cell in cells))

    def range_line(label, values):
        line(label, [common.median_and_range(values[which], MIB) for which in PROGRAMS])

    shape = common.SHAPES[row["model"]]
    print(f"\n{row['model']}, {row['ranks']} ranks, batch {shape.batch} x {shape.sequence}, bf16 compute, fp32 reduce")
    line("MiB, largest rank, median (min-max)", PROGRAMS)
    range_line("peak resident set", row["peak"])
    range_line("  bare program", row["bare"])
    range_line("  above bare", row["above_bare"])
    labels = {"parameters": "sharded parameters", "gradients": "gradients", "optimizer": "optimizer state"}
    labels["gathered"] = "two largest groups, gathered"
    for key, label in labels.items():
        line(f"    {label} (by shapes)", [f"{row['expected'][key] / MIB:.0f}"] * 2)
    line("    activations and the rest", [f"{row['rest'][which] / MIB:.0f}" for which in PROGRAMS])
    line("loss of the last step", [f"{row['losses'][which][-1]:.5f}" for which in PROGRAMS])
    print(f"ratio of the peaks above bare: {common.median_and_range(row['ratios'], digits=3)}", flush=True)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", choices=("debug", "125m", "both"), default="both")
    parser.add_argument("--ranks", help="comma-separated (default: 2 for 125m; 1,2,4 for debug)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--program", type=pathlib.Path, default=common.ROOT / "build/release/titan-train")
    parser.add_argument("--work", type=pathlib.Path, default=common.ROOT / "build/benchmarks")
    parser.add_argument("--json", type=pathlib.Path, help="also write the numbers here")
    return parser.parse_args()


def main():
    options = parse_arguments()
    options.program = options.program.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    assets = common.fixtures.make_fixtures(options.work)
    rows = []
    for name in common.SHAPES if options.model == "both" else [options.model]:
        for ranks in [int(word) for word in options.ranks.split(",")] if options.ranks else DEFAULT_RANKS[name]:
            with tempfile.TemporaryDirectory(dir=options.work, prefix="memory-") as folder:
                rows.append(measure(name, ranks, options, assets, pathlib.Path(folder)))
    for row in rows:
        print_table(row)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except common.harness.Failure as failure:
        sys.exit(f"memory_vs_fsdp2.py: {failure}")
    finally:
        common.harness.end_all_jobs()
