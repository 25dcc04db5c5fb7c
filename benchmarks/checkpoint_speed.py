"""Compares checkpoint saves and loads with PyTorch's Distributed Checkpoint and with dd, on the same disk, in turns.

    .venv/bin/python benchmarks/checkpoint_speed.py [--model 90m] [--ranks 2] [--repeats 5] [--folder FOLDER]

The same float32 tensors (parameters and two moments of each) are split over the same number of Gloo ranks. Both sides
flush their files to the disk (fsync) before a save ends; so does dd. Loads are timed cold, with the files dropped from
the page cache, and warm, right after that. Every loaded element is checked. Needs the target speed_tool.

Each round makes every measurement once, starting with another side each time, and ratios are within a round, so that
drift of the disk or the machine affects all sides alike. --folder: where the files go, on the disk to measure.
"""
import argparse
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile

import common
import harness

SHAPES = {
    "debug": common.Shape(256, 6, 16, 2048, 256, 8, 256),
    "90m": common.Shape(768, 6, 12, 32000, 256, 2, 512),  # 1.1 GB with its moments
}
SIDES = ("titan-train", "PyTorch DCP", "dd")
MEASURES = ("save", "load cold", "load warm")


def write_shapes(path, shape):
    """Writes one line per tensor. Returns the bytes of all tensors."""
    tensors = [sizes for group in shape.groups() for sizes in group for _ in ("weight", "exp_avg", "exp_avg_sq")]
    path.write_text("".join(" ".join(map(str, sizes)) + "\n" for sizes in tensors))
    return 4 * sum(math.prod(sizes) for sizes in tensors)


def drop_from_cache(folder):
    """Drops the folder's files from the page cache. Only clean pages can be dropped; all sides flush their files."""
    for path in folder.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


def timed(command, logs, name):
    job = harness.Job(command, logs, name)
    code = job.wait(600)
    harness.expect(code == 0, f"{name} failed with {code}: {' '.join(job.command)}\n{job.tail(30)}")
    return float(job.out_path.read_text().splitlines()[-1])


class Sides:
    def __init__(self, options, folder, bytes_):
        self.options, self.folder, self.bytes = options, folder, bytes_
        self.logs, self.shapes = folder / "logs", folder / "shapes"

    def torchrun(self, *words):
        return [harness.VENV / "torchrun", "--nproc-per-node", self.options.ranks, "--master-port", harness.free_port(), *words]

    def run(self, side, action, target):
        if side == "dd":
            return self.dd(action, target)
        script = [common.ROOT / "benchmarks/dcp_speed.py"]
        command = ["--no-python", self.options.tool] if side == SIDES[0] else script
        return timed([*self.torchrun(*command), action, target, self.shapes], self.logs, f"{side}-{action}".replace(" ", "-"))

    def dd(self, action, target):
        target.mkdir(exist_ok=True)
        blocks = -(-self.bytes // common.MIB)
        flags = {
            "save": ["if=/dev/zero", f"of={target}/zeros", f"count={blocks}", "conv=fsync"],
            "load": [f"if={target}/zeros", "of=/dev/null"],
        }[action]
        done = subprocess.run(["dd", "bs=1M", *flags], check=True, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
        return float(done.stderr.splitlines()[-1].split(",")[-2].split()[0])

    def measure(self, side):
        """Returns {measure: seconds} of one save into an empty place and two loads."""
        target = self.folder / "checkpoint"
        shutil.rmtree(target, ignore_errors=True)
        os.sync()
        seconds = {"save": self.run(side, "save", target)}
        drop_from_cache(target)
        seconds["load cold"] = self.run(side, "load", target)
        seconds["load warm"] = self.run(side, "load", target)
        return seconds


def report(rounds, bytes_):
    for measure in MEASURES:
        for side in SIDES:
            seconds = [each[side][measure] for each in rounds]
            speed = bytes_ / statistics.median(seconds) / 1e9
            print(f"{measure:9}  {side:12} {common.median_and_range(seconds, digits=3):>24} s  {speed:6.2f} GB/s")
        for other in SIDES[1:]:
            ratios = [each[other][measure] / each[SIDES[0]][measure] for each in rounds]
            print(f"{measure:9}  {SIDES[0]} is {common.median_and_range(ratios, digits=2)} times as fast as {other}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", choices=SHAPES, default="90m")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", type=pathlib.Path, help="default: the folder for temporary files")
    parser.add_argument("--tool", type=pathlib.Path, default=common.ROOT / "build/release/tests/unit/checkpoint/speed_tool")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = pathlib.Path(name)
        bytes_ = write_shapes(folder / "shapes", SHAPES[options.model])
        sides, rounds = Sides(options, folder, bytes_), []
        for repeat in range(options.repeats):
            turn = repeat % len(SIDES)
            found = {side: sides.measure(side) for side in SIDES[turn:] + SIDES[:turn]}
            rounds.append(found)
            texts = (f"{side} {' '.join(f'{s:.2f}' for s in found[side].values())}" for side in SIDES)
            print(f"round {repeat + 1}: {'; '.join(texts)}", flush=True)
        print(f"{options.model}, {bytes_ / 1e9:.2f} GB, {options.ranks} ranks, {options.repeats} rounds: median (range)")
        report(rounds, bytes_)


if __name__ == "__main__":
    main()
