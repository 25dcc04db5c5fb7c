"""Compares titan-train with TorchTitan 0.2.2, eager and compiled: speed, start, memory and losses, on CPU and Gloo.

    .venv/bin/python benchmarks/compare_torchtitan.py [--rows debug,125m] [--ranks 1,2] [--dtypes fp32,bf16] [--compiled]
                                                      [--tensor-parallel 2] [--context-parallel 2] [--pipeline-parallel 2]
                                                      [--pipeline-schedule 1F1B] [--instructions avx2] [--repeats 5]
                                                      [--steps N] [--json FILE]

Needs a built program. The first run makes a virtual environment with TorchTitan (--venv; $TITAN_PEER_PYTHON names
another Python that has it); --setup does only that. Both train the same steps from TorchTitan's own seed checkpoint on
the same TOML file and tokens. Each round runs every side once, in rotating order, and ratios are within a round. If the
losses disagree, no ratio is printed and the exit code is 1. With tensor or pipeline parallelism and nothing else,
TorchTitan trains in float32 whatever the TOML file says: compare --dtypes fp32 there. Its schedules in a V do not run on
CPU.
"""
import argparse
import json
import pathlib
import statistics
import sys
import tempfile

import common
import titan_pair
from common import MIB, Shape, harness
from titan_pair import COMPILED, CORES, EAGER, OURS

ROWS = {
    "debug": common.SHAPES["debug"],
    "125m": common.SHAPES["125m"],
    "wide": Shape(2048, 2, 16, 8192, 256, batch=1, sequence=512),  # large matmuls, little else
}
STEPS = {"debug": 50, "125m": 10, "wide": 10}
# The first steps fill caches and allocators, and TorchTitan compiles in them.
UNCOUNTED_STEPS = 3
WARM_UP_STEPS = 2
DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
# Relative, for every step. In fp32 two orders of summation differ by less, and TorchTitan prints five digits after the
# point (5e-6 of a loss of 2.5 is 2e-6 of it); in bf16 TorchTitan's own two modes differ by up to 8e-4.
LOSS_TOLERANCE = {"float32": 5e-5, "bfloat16": 2e-3}


def loss_difference(ours, theirs):
    return max(harness.relative_distance(a, b) for a, b in zip(ours.losses, theirs.losses, strict=True))


def speed(run):
    return statistics.median(run.tokens_per_second[UNCOUNTED_STEPS:])


def measure(pair, cell, sides, repeats, cold, rounds):
    """Fills cold (side -> the Run that filled the caches) and rounds (a list of side -> Run)."""
    print(f"\n{title(cell)}", flush=True)
    cold.update({side: pair.run(side, cell, WARM_UP_STEPS) for side in sides})
    for repeat in range(repeats):
        turn = repeat % len(sides)
        runs = {side: pair.run(side, cell, cell.steps) for side in sides[turn:] + sides[:turn]}
        rounds.append({side: runs[side] for side in sides})
        for side in sides:
            run = runs[side]
            print(
                f"  round {repeat + 1}, {side}: {speed(run):.0f} tokens/s, {run.cpu_seconds:.3f} CPU seconds a step, first step after "
                f"{run.rank_seconds:.2f} s, {run.peak_bytes / MIB:.0f} MiB, others took {100 * run.others:.0f} % of the cores",
                flush=True,
            )


def title(cell):
    shape = cell.shape
    model = f"dim {shape.dim}, {shape.layers} layers, {shape.heads} heads, vocabulary {shape.vocabulary}"
    ranks = f"{cell.ranks} rank{'s' if cell.ranks > 1 else ''} of {cell.threads} thread{'s' if cell.threads > 1 else ''}"
    ranks += f", tensor parallel {cell.tensor_parallel}" if cell.tensor_parallel > 1 else ""
    ranks += f", context parallel {cell.context_parallel}" if cell.context_parallel > 1 else ""
    ranks += f", pipeline parallel {cell.pipeline_parallel} ({cell.schedule})" if cell.pipeline_parallel > 1 else ""
    ranks += f", {cell.instructions} played" if cell.instructions != "all" else ""
    return f"{cell.name} ({model}), batch {shape.batch} x {shape.sequence} a rank, {ranks}, {cell.dtype}, {cell.steps} steps"


def peak_of(cell, peaks):
    """Returns the best rate of the full comparison, by any library, in this dtype or in float32, to which it can be
    widened, so that a disturbed measurement favors neither side."""
    return max(rate for each in peaks for name, rate in each.items() if name.startswith((cell.dtype, "float32")))


def summarize(cell, cold, rounds, peaks):
    """Returns the numbers of one cell as one object: measure -> side -> one value per round."""
    sides = list(rounds[0])
    peak = peak_of(cell, peaks)
    flops = cell.flops_per_token()
    measures = {
        "tokens_per_second": lambda run: speed(run),
        "rank_seconds": lambda run: run.rank_seconds,
        "command_seconds": lambda run: run.command_seconds,
        "cpu_seconds": lambda run: run.cpu_seconds,
        "peak_bytes": lambda run: run.peak_bytes,
        "gemm_share": lambda run: speed(run) * flops / peak,
        "others": lambda run: run.others,
    }
    values = {name: {side: [get(each[side]) for each in rounds] for side in sides} for name, get in measures.items()}
    differences = {side: max(loss_difference(each[OURS], each[side]) for each in rounds) for side in sides[1:]}
    limit = LOSS_TOLERANCE[cell.dtype]
    ratios = {}
    for side in sides[1:]:
        # "not <=" so that NaN is a disagreement.
        if not differences[side] <= limit:
            continue
        names = ("tokens_per_second", "cpu_seconds", "rank_seconds", "command_seconds", "peak_bytes")
        pairs = {name: zip(values[name][OURS], values[name][side]) for name in names}
        ratios[side] = {name: [ours / theirs for ours, theirs in pairs[name]] for name in names}
    return {
        "row": cell.name,
        "ranks": cell.ranks,
        "tensor_parallel": cell.tensor_parallel,
        "context_parallel": cell.context_parallel,
        "pipeline_parallel": cell.pipeline_parallel,
        "schedule": cell.schedule,
        "threads": cell.threads,
        "instructions": cell.instructions,
        "dtype": cell.dtype,
        "steps": cell.steps,
        "gemm_peak_flops": peak,
        "flops_per_token": flops,
        "values": values,
        "cold_rank_seconds": {side: run.rank_seconds for side, run in cold.items()},
        "loss_difference": differences,
        "loss_limit": limit,
        "ratios": ratios,
        "losses": {side: rounds[-1][side].losses for side in sides},
        "title": title(cell),
    }


def print_table(found):
    sides, values = list(found["losses"]), found["values"]

    def line(label, cells):
        print(f"{label:<50}" + "".join(f"{cell:>26}" for cell in cells))

    def values_line(label, name, scale=1.0, digits=0):
        line(label, [common.median_and_range(values[name][side], scale, digits) for side in sides])

    def ratio_line(label, name):
        cells = [common.median_and_range(found["ratios"][s][name], digits=3) if s in found["ratios"] else "none" for s in sides[1:]]
        line(f"  ratio, {label}", ["", *cells])

    print(f"\n{found['title']}")
    line("median (min-max)", sides)
    values_line("tokens/s, all ranks", "tokens_per_second")
    ratio_line("more is faster", "tokens_per_second")
    values_line("CPU seconds a step, all ranks", "cpu_seconds", digits=3)
    ratio_line("less is cheaper", "cpu_seconds")
    values_line("seconds, rank's start to end of first step", "rank_seconds", digits=2)
    ratio_line("less is earlier", "rank_seconds")
    line("  the same with cold caches, once", [f"{found['cold_rank_seconds'][side]:.2f}" for side in sides])
    values_line("seconds, command's start to end of first step", "command_seconds", digits=2)
    ratio_line("less is earlier", "command_seconds")
    values_line("peak resident MiB, largest rank", "peak_bytes", MIB)
    ratio_line("less is smaller", "peak_bytes")
    values_line(f"% of GEMM peak ({found['gemm_peak_flops'] / 1e9:.0f} GFLOP/s)", "gemm_share", 0.01, 1)
    cells = [f"{found['loss_difference'][side]:.1e}" for side in sides[1:]]
    line(f"largest loss difference (limit {found['loss_limit']:.0e})", ["", *cells])
    values_line("% of the cores that others took", "others", 0.01)
    for side in sides[1:]:
        if side not in found["ratios"]:
            print(f"NO RATIO: the losses of {OURS} and {side} differ by {found['loss_difference'][side]:.1e}")


def print_summary(results):
    """Prints a Markdown table, one line per comparison."""
    print("\n| model | ranks | dtype | against | tokens/s | ratio | CPU time | first step | memory | GEMM peak | loss difference |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for found in results:
        for side in list(found["losses"])[1:]:
            ratios = found["ratios"].get(side)
            speeds = [statistics.median(found["values"]["tokens_per_second"][each]) for each in (OURS, side)]
            shares = [100 * statistics.median(found["values"]["gemm_share"][each]) for each in (OURS, side)]
            texts = ["losses disagree"] * 4
            if ratios:
                names = ("tokens_per_second", "cpu_seconds", "rank_seconds", "peak_bytes")
                texts = [common.median_and_range(ratios[name], digits=2) for name in names]
            cells = [found["row"], found["ranks"], found["dtype"], side, f"{speeds[0]:.0f} to {speeds[1]:.0f}", *texts]
            cells += [f"{shares[0]:.0f} % to {shares[1]:.0f} %", f"{found['loss_difference'][side]:.0e}"]
            print(f"| {' | '.join(map(str, cells))} |")


def print_machine(peaks, instructions="all"):
    info = pathlib.Path("/proc/cpuinfo").read_text()
    names = {line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")}
    played = "" if instructions == "all" else f", {instructions} played"
    print(f"\n{CORES} cores of {', '.join(sorted(names)) or 'an unknown processor'}{played}; GEMM rates of all cores, GFLOP/s:")
    for name in peaks[0]:
        print(f"  {name:<16}{common.median_and_range([each[name] for each in peaks], 1e9):>20}")
    if "AuthenticAMD" in info:
        print("  On this AMD processor torch's float32 products go through MKL's slow path: compare float32 mm with oneDNN.")


def report(results, peaks, instructions, json_path):
    print_machine(peaks, instructions)
    for found in results:
        print_table(found)
    print_summary(results)
    if json_path:
        json_path.write_text(json.dumps({"gemm": peaks, "cells": results}, indent=1) + "\n")


def words_of(choices):
    def convert(text):
        words = text.split(",")
        unknown = [word for word in words if word not in choices]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: expected some of {', '.join(choices)}")
        return words

    return convert


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=words_of(ROWS), default=["debug", "125m"], help=f"some of {','.join(ROWS)}")
    parser.add_argument("--ranks", type=lambda text: [int(word) for word in text.split(",")], default=[1, 2])
    parser.add_argument("--dtypes", type=words_of(DTYPES), default=list(DTYPES), help="some of fp32,bf16")
    parser.add_argument("--tensor-parallel", type=int, default=1, help="ranks that share each layer")
    parser.add_argument("--context-parallel", type=int, default=1, help="ranks that share each sequence")
    parser.add_argument("--pipeline-parallel", type=int, default=1, help="ranks that share the stack of layers")
    parser.add_argument("--pipeline-schedule", default="1F1B", help="the order of their microbatches, by TorchTitan's name")
    parser.add_argument("--compiled", action="store_true", help="also against TorchTitan with --compile.enable (needs g++)")
    parser.add_argument("--instructions", choices=titan_pair.PLAYED, default="all", help="a lesser processor, played for both")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, help=f"default: {STEPS}; the first {UNCOUNTED_STEPS} count for no speed")
    parser.add_argument("--program", type=pathlib.Path, default=common.ROOT / "build/release/titan-train")
    parser.add_argument("--work", type=pathlib.Path, default=common.ROOT / "build/benchmarks")
    parser.add_argument("--venv", type=pathlib.Path, default=common.ROOT / "build/torchtitan-venv")
    parser.add_argument("--setup", action="store_true", help="only make the virtual environment")
    parser.add_argument("--json", type=pathlib.Path, help="also write the numbers here")
    options = parser.parse_args()
    if options.steps is not None and options.steps <= UNCOUNTED_STEPS:
        parser.error(f"--steps must be above {UNCOUNTED_STEPS}")
    shared = options.tensor_parallel * options.context_parallel * options.pipeline_parallel
    if any(ranks % shared for ranks in options.ranks):
        parser.error("--tensor-parallel x --context-parallel x --pipeline-parallel must divide all of --ranks")
    if options.repeats < 1 or min(options.ranks) < 1:
        parser.error("--repeats and --ranks must be at least 1")
    return options


def main():
    options = parse_arguments()
    python = titan_pair.find_python(options.venv.resolve())
    if options.setup:
        print(f"TorchTitan is ready: {python}")
        return 0
    options.program, options.work = options.program.resolve(), options.work.resolve()
    harness.expect(options.program.exists(), f"there is no {options.program}: build it, or name it with --program")
    options.work.mkdir(parents=True, exist_ok=True)
    sides = [OURS, EAGER, *([COMPILED] if options.compiled else [])]
    cells = [
        titan_pair.Cell(
            name, ROWS[name], ranks, DTYPES[dtype], options.steps or STEPS[name],
            options.tensor_parallel, options.context_parallel, options.pipeline_parallel, options.pipeline_schedule,
            options.instructions,
        )
        for name in options.rows
        for ranks in options.ranks
        for dtype in options.dtypes
    ]
    with tempfile.TemporaryDirectory(dir=options.work, prefix="torchtitan-") as folder:
        pair = titan_pair.Pair(options.program, python, options.work, pathlib.Path(folder))
        measured, peaks = [], [titan_pair.gemm_peak(python, pair.folder, options.instructions)]
        try:
            for cell in cells:
                cold, rounds = {}, []
                measured.append((cell, cold, rounds))
                measure(pair, cell, sides, options.repeats, cold, rounds)
                peaks.append(titan_pair.gemm_peak(python, pair.folder, options.instructions))
        finally:  # measuring takes hours: an error or Ctrl-C must not lose the results
            results = [summarize(*each, peaks) for each in measured if each[-1]]
            report(results, peaks, options.instructions, options.json)
    return 0 if all(len(found["ratios"]) == len(sides) - 1 for found in results) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except harness.Failure as failure:
        sys.exit(f"compare_torchtitan.py: {failure}")
    finally:
        harness.end_all_jobs()
