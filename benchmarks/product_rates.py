"""Measures one core's GFLOP/s in matmuls of a linear layer: this program's kernels and the libraries in torch's wheel.

    .venv/bin/python benchmarks/product_rates.py [--rounds 3] [--sets all,avx512,avx2] [--rows debug,125m,wide]

Needs the target product_tool. For each instruction set, as smaller processors have it, and each shape, measures the
matmul of forward and the two of backward: in float32 through MKL, and in 16 bits with this program's kernels, through
MKL on operands widened to float32 with a rounded result, and as ATen does it. Sets, shapes and ways take turns; a rate
is the best of all rounds, because other load on the machine can only lower it.
"""
import argparse
import pathlib
import subprocess

import common

SETS = ["all", "avx512_bf16", "avx512", "avx2"]  # a set that the processor lacks has no effect
# Tokens per rank, and the sizes of the first matmul of a feed-forward layer.
SHAPES = {"debug": (1024, 256, 768), "125m": (1024, 768, 2048), "wide": (512, 2048, 5632)}


def measure(tool, instructions, shape):
    """Returns {name: (GFLOP/s in forward, in backward)}."""
    command = [tool, instructions, *map(str, shape)]
    text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout
    rows = [line.split("\t") for line in text.splitlines()]
    return {name: (float(forward), float(backward)) for name, forward, backward in rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--rows", default=",".join(SHAPES))
    parser.add_argument("--tool", type=pathlib.Path, default=common.ROOT / "build/release/tests/unit/kernels/product_tool")
    options = parser.parse_args()
    sets, rows = options.sets.split(","), options.rows.split(",")
    best = {}  # set, row, name -> (forward, backward)
    for _ in range(options.rounds):
        for instructions in sets:
            for row in rows:
                for name, rates in measure(options.tool, instructions, SHAPES[row]).items():
                    key = (instructions, row, name)
                    best[key] = tuple(map(max, rates, best.get(key, rates)))
    print("| instructions | product | " + " | ".join(rows) + " |")
    print("| --- " * (2 + len(rows)) + "|")
    for instructions in sets:
        for name in dict.fromkeys(name for found, _, name in best if found == instructions):
            rates = ["{:.0f}, {:.0f}".format(*best[instructions, row, name]) for row in rows]
            print(f"| {instructions} | {name} | {' | '.join(rates)} |")


if __name__ == "__main__":
    main()
