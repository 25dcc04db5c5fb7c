"""Measures startup: to the first step of the debug model, to its ranks' start, to the end of --help, and to refusals.

    .venv/bin/python benchmarks/startup.py [--repeats 10] [--against OTHER/titan-train]

Each round runs every row once; with --against also with another build, in turns, so that ratios are within a round.
Prints medians and ranges of wall-clock seconds next to what is promised for a machine that does nothing else.
"""
import argparse
import pathlib
import statistics
import subprocess
import tempfile
import time

import common
from common import fixtures, harness

# Row: the words after the program, its exit code (None: ended once its ranks run), the promised seconds.
ROWS = {
    "first step, 1 rank": (["--config", "job.toml"], 0, 1.5),
    "first step, 2 ranks": (["--nproc", "2", "--config", "job.toml"], 0, 1.5),
    "both ranks started": (["--nproc", "2", "--config", "job.toml"], None, 0.03),
    "--help": (["--help"], 0, 0.01),
    "a refusal": (["--config", "job.toml", "--training.stepz", "3"], 2, 0.02),
    "a launch refused": (["--nproc", "2", "--config", "job.toml", "--training.stepz", "3"], 2, 0.02),
}


def seconds_until_ranks(command, folder):
    """Returns the seconds until the launcher has as many children as ranks, polled every half millisecond. Ends it."""
    wanted = int(command[command.index("--nproc") + 1])
    started = time.monotonic()
    launcher = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    children = pathlib.Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children")
    while len(children.read_text().split()) < wanted:
        harness.expect(launcher.poll() is None, "the launcher ended before its ranks started")
        time.sleep(0.0005)
    seconds = time.monotonic() - started
    launcher.terminate()
    launcher.wait()
    return seconds


def seconds_of(program, row, folder):
    words, exit_code, _ = ROWS[row]
    if exit_code is None:
        return seconds_until_ranks([program, *words], folder)
    metrics = folder / "job/metrics.jsonl"
    metrics.unlink(missing_ok=True)
    started = time.monotonic()
    done = subprocess.run([program, *words], cwd=folder, capture_output=True, text=True)
    seconds = time.monotonic() - started
    harness.expect(done.returncode == exit_code, f"{row}: exit code {done.returncode}\n{done.stderr}")
    return harness.read_rows(metrics)[0]["time_to_first_step_seconds"] if metrics.exists() else seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--program", type=pathlib.Path, default=common.ROOT / "build/release/titan-train")
    parser.add_argument("--against", type=pathlib.Path)
    options = parser.parse_args()
    programs = [path.resolve() for path in (options.program, options.against) if path]
    times = {row: [[] for _ in programs] for row in ROWS}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        context = harness.Context(programs[0], folder, fixtures.make_fixtures(folder / "assets"))
        fixtures.write_job(context, "job", fixtures.DEBUG_MODEL, steps=1)
        for repeat in range(-1, options.repeats):  # the first round fills the file cache
            for row in ROWS:
                for index, program in list(enumerate(programs))[:: 1 if repeat % 2 else -1]:
                    seconds = seconds_of(program, row, folder)
                    if repeat >= 0:
                        times[row][index].append(seconds)
    for row, (_, _, promised) in ROWS.items():
        text = "  ".join(common.median_and_range(seconds, digits=3) + " s" for seconds in times[row])
        if options.against:
            ratio = statistics.median(a / b for a, b in zip(*times[row]))
            text += f"  ratio {ratio:.3f}"
        print(f"{row:20} {text}  (promised: {promised} s)")


if __name__ == "__main__":
    main()
