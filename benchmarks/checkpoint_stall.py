"""Measures how long a checkpoint stalls training, if written synchronously and in the background.

    .venv/bin/python benchmarks/checkpoint_stall.py [--model 125m] [--ranks 2] [--repeats 3]

Runs the program alternately with checkpoint.async_mode = "disabled" and "async", with a checkpoint every other step.
Reads the cost of each checkpoint from its log: the full write, or the stall it reports. Prints medians and the ratio.
"""
import argparse
import pathlib
import re
import statistics
import subprocess
import tempfile

import common

WRITTEN = re.compile(r"Saved checkpoint \S+ \(full state, ([^)]*)\) in ([\d.]+) s$", re.MULTILINE)
BESIDE = re.compile(r"Saved checkpoint \S+ \(full state, [^)]*\) in ([\d.]+) s beside .* for ([\d.]+) s$", re.MULTILINE)
SHAPES = {
    "debug": common.Shape(256, 6, 16, 2048, 256, 8, 256),
    "125m": common.Shape(768, 12, 12, 32000, 256, 2, 512),
}


def run(program, config, mode, ranks, folder):
    words = ["--checkpoint.enable", "--checkpoint.interval", "2", "--checkpoint.keep_latest_k", "2"]
    words += ["--checkpoint.last_save_model_only=false", "--checkpoint.async_mode", mode, "--job.dump_folder", str(folder)]
    command = [str(program), "--nproc", str(ranks), "--config", str(config), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", choices=SHAPES, default="125m")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--program", type=pathlib.Path, default=common.ROOT / "build/release/titan-train")
    options = parser.parse_args()
    waits = {"disabled": [], "async": []}
    size = ""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        assets = common.fixtures.make_fixtures(folder / "assets")
        config = common.write_job(folder, SHAPES[options.model], assets, options.steps)
        for repeat in range(options.repeats):
            for mode in waits:
                run_folder = folder / f"{mode}{repeat}"
                job = run(options.program, config, mode, options.ranks, run_folder)
                text = job.stdout + job.stderr
                for match in (WRITTEN if mode == "disabled" else BESIDE).finditer(text):
                    waits[mode].append(float(match[2]))
                    size = match[1] if mode == "disabled" else size
    medians = {mode: statistics.median(seconds) for mode, seconds in waits.items()}
    for mode, seconds in waits.items():
        print(f"{mode:9} training waits {medians[mode]:7.3f} s a checkpoint ({min(seconds):.3f} to {max(seconds):.3f})")
    print(f"{options.model}, {options.ranks} ranks, {size} a checkpoint: ratio {medians['async'] / medians['disabled']:.3f}")


if __name__ == "__main__":
    main()
