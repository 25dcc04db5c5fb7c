"""Measures this program's speed and memory with all and with fewer instructions of this processor, in each dtype.

    .venv/bin/python benchmarks/processors.py [--rows debug,125m,wide] [--sets all,avx512,avx2]
                                              [--dtypes float32,bfloat16,float16] [--ranks 2] [--repeats 3] [--steps N]

Needs a built program, and TorchTitan's Python for the seed and the GEMM peak (compare_torchtitan.py --setup). Every
round runs each instruction set and dtype once; the next round starts with another, and ratios are within a round: speed
relative to float32 with the same instructions, memory relative to the same dtype with all instructions. The GEMM peak
is torch's best with these instructions, in this dtype or in float32, to which a library can widen.
"""
import argparse
import pathlib
import tempfile

import common
import compare_torchtitan
import titan_pair
from common import MIB, median_and_range
from compare_torchtitan import ROWS, STEPS, peak_of, speed, words_of

DTYPES = ["float32", "bfloat16", "float16"]


def measure(pair, cells, repeats):
    """Returns {cell: a list of one Run per round}."""
    runs = {cell: [] for cell in cells}
    for cell in cells:
        pair.run(titan_pair.OURS, cell, compare_torchtitan.WARM_UP_STEPS)
    for repeat in range(repeats):
        turn = repeat % len(cells)
        for cell in cells[turn:] + cells[:turn]:
            run = pair.run(titan_pair.OURS, cell, cell.steps)
            runs[cell].append(run)
            numbers = f"{speed(run):.0f} tokens/s, {run.peak_bytes / MIB:.0f} MiB, others took {100 * run.others:.0f} % of the cores"
            print(f"  round {repeat + 1}, {cell.instructions}, {cell.dtype}: {numbers}", flush=True)
    return runs


def ratios(get, runs, others):
    return median_and_range([get(own) / get(other) for own, other in zip(runs, others, strict=True)], digits=2)


def print_rows(cells, runs, peaks):
    of = {(cell.instructions, cell.dtype): runs[cell] for cell in cells}
    for cell in cells:
        values = [cell.name, cell.instructions, cell.dtype, median_and_range([speed(run) for run in runs[cell]])]
        values.append(ratios(speed, runs[cell], of[cell.instructions, "float32"]))
        peak = peak_of(cell, peaks[cell.instructions])
        values.append(median_and_range([speed(run) * cell.flops_per_token() / peak for run in runs[cell]], 0.01))
        values.append(median_and_range([run.peak_bytes for run in runs[cell]], MIB))
        values.append(ratios(lambda run: run.peak_bytes, runs[cell], of["all", cell.dtype]))
        print(f"| {' | '.join(map(str, values))} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=words_of(ROWS), default=list(ROWS))
    parser.add_argument("--sets", type=words_of(titan_pair.PLAYED), default=["all", "avx512", "avx2"])
    parser.add_argument("--dtypes", type=words_of(DTYPES), default=DTYPES)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--program", type=pathlib.Path, default=common.ROOT / "build/release/titan-train")
    parser.add_argument("--venv", type=pathlib.Path, default=common.ROOT / "build/torchtitan-venv")
    parser.add_argument("--work", type=pathlib.Path, default=common.ROOT / "build/benchmarks")
    options = parser.parse_args()
    if "all" not in options.sets or "float32" not in options.dtypes:
        parser.error("ratios need the set all and the dtype float32")
    options.program, options.work = options.program.resolve(), options.work.resolve()
    python = titan_pair.find_python(options.venv.resolve())
    options.work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.work, prefix="processors-") as folder:
        pair = titan_pair.Pair(options.program, python, options.work, pathlib.Path(folder))
        peaks = {name: [titan_pair.gemm_peak(python, pair.folder, name)] for name in options.sets}
        measured = []
        for row in options.rows:
            cells = [
                titan_pair.Cell(row, ROWS[row], options.ranks, dtype, options.steps or STEPS[row], instructions=name)
                for name in options.sets
                for dtype in options.dtypes
            ]
            print(f"\n{row}", flush=True)
            measured.append((cells, measure(pair, cells, options.repeats)))
            for name in options.sets:
                peaks[name].append(titan_pair.gemm_peak(python, pair.folder, name))
    for name in options.sets:
        compare_torchtitan.print_machine(peaks[name], name)
    print("\n| model | instructions | dtype | tokens/s of all ranks | to float32 | share of GEMM peak | peak MiB of a rank | to all |")
    print("| --- " * 8 + "|")
    for cells, runs in measured:
        print_rows(cells, runs, peaks)


if __name__ == "__main__":
    main()
