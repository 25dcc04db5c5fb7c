"""Soaks the program in faults: see scripts/soak.sh."""
import argparse
import pathlib
import random
import signal
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import case_files  # adds the folders of cases
import fixtures
import harness
from disturbances import FAULTS
from soaked_run import MESHES, SoakedRun


def schedule_of(path):
    """Returns [(mesh, fault)] from a file with a start a line; # begins a comment."""
    lines = [line.partition("#")[0].split() for line in pathlib.Path(path).read_text().splitlines()]
    schedule = [tuple(words) for words in lines if words]
    for words in schedule:
        if len(words) != 2 or words[0] not in MESHES or words[1] not in FAULTS:
            raise SystemExit(f"soak.sh: {path}: '{' '.join(words)}' is not 'MESH FAULT'; --list names both")
    return schedule


def soak(options, run, seconds):
    until = time.monotonic() + seconds
    planned = iter(options.schedule or [])
    while options.starts is None or len(run.faults) < options.starts:
        step = next(planned, None) if options.schedule else run.next()
        if step is None or (options.starts is None and not options.schedule and time.monotonic() > until):
            break
        print(f"start {len(run.faults) + 1}: {' '.join(step)}", flush=True)
        run.live(*step)
    print(run.finish(), flush=True)


def main():
    parser = argparse.ArgumentParser(prog="scripts/soak.sh", description="Trains under faults, and compares with a run without.")
    parser.add_argument("--seed", type=int, default=None, help="of the schedule (default: drawn)")
    parser.add_argument("--minutes", type=float, default=60, help="how long to disturb (default: 60); the comparison comes after")
    parser.add_argument("--starts", type=int, help="disturb so many starts instead")
    parser.add_argument("--mesh", choices=[*MESHES, "changing", "both"], default="both", help="default: half of the time one, half changing")
    parser.add_argument("--schedule", help="a file with a line 'MESH FAULT' for each start")
    parser.add_argument("--list", action="store_true", help="print the meshes and faults, and stop")
    parser.add_argument("--program", default=harness.ROOT / "build/release/titan-train", type=pathlib.Path)
    parser.add_argument("--work", default=harness.ROOT / "build/release/soak", type=pathlib.Path)
    options = parser.parse_args()
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # under nohup; the runs must not ignore it
        signal.signal(signal.SIGHUP, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # after the runs' processes and copies are removed
    if options.list:
        print("meshes:", *MESHES)
        print("faults:", *FAULTS)
        return 0
    options.seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    options.schedule = schedule_of(options.schedule) if options.schedule else None
    one = random.Random(options.seed).choice(sorted(MESHES))
    meshes = ["changing"] if options.schedule else [one, "changing"] if options.mesh == "both" else [options.mesh]
    options.work.mkdir(parents=True, exist_ok=True)
    print(f"seed {options.seed}", flush=True)
    for mesh in meshes:
        folder = pathlib.Path(tempfile.mkdtemp(dir=options.work.resolve(), prefix=f"seed-{options.seed}-{mesh}-"))
        context = harness.Context(program=options.program.resolve(), folder=folder, fixtures=fixtures.make_fixtures(options.work))
        try:
            with SoakedRun(context, options.seed, mesh) as run:
                soak(options, run, options.minutes * 60 / len(meshes))
        except harness.Failure as failure:
            print(f"FAILED {failure}\nkept: {folder}", flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
