"""What scripts/gpu_check.sh asks of the metrics.jsonl files that its runs wrote. The exit code is the answer.

    falls STEPS RUN               every loss is finite, it starts near ln(2048) and the last five are lower by 1 at least
    same RUN RUN                  the same losses and gradient norms to the bit
    close TOLERANCE RUN RUN       the same within TOLERANCE, relative
    at_most RATIO RUN RUN         the first run's peak of reserved device memory is at most RATIO of the second's
    profiled STEP RUN             rank 0's trace and memory snapshot of that step show the device's kernels and allocations
    measured RUN                  no question: prints a JSON object of the run's speed and memory
    report FILE RESULTS           no question: writes FILE, one JSON object, of the results folder (see gpu_check.sh)
"""
import datetime
import json
import math
import pathlib
import pickle
import platform
import sys


def rows_of(run):
    return [json.loads(line) for line in pathlib.Path(run, "metrics.jsonl").read_text().splitlines()]


def series(run, key):
    return [row[key] for row in rows_of(run)]


def falls(steps, run):
    losses = series(run, "loss")
    print(len(losses), "losses:", losses[0], "...", losses[-5:])
    return (
        len(losses) == int(steps)
        and all(map(math.isfinite, losses))
        and 7 < losses[0] < 9
        and sum(losses[-5:]) / 5 < losses[0] - 1
    )


def same(first, second):
    return close(0.0, first, second)


def close(tolerance, first, second):
    worst = 0.0
    for key in ("loss", "grad_norm"):
        a, b = series(first, key), series(second, key)
        if len(a) != len(b) or not a:
            print(f"{len(a)} and {len(b)} steps")
            return False
        worst = max(worst, *(abs(x - y) / abs(y) if math.isfinite(x - y) else math.inf for x, y in zip(a, b)))
    print("largest relative difference", worst, "allowed", tolerance)
    return worst <= float(tolerance)


def peak(run):
    return max(series(run, "memory_peak_bytes"))


def at_most(ratio, first, second):
    print(peak(first), "bytes of", peak(second), "=", peak(first) / peak(second), "allowed", ratio)
    return peak(first) <= float(ratio) * peak(second)


def profiled(step, run):
    trace = json.loads(pathlib.Path(run, f"profile_traces/iteration_{step}/rank0_trace.json").read_text())
    kernels = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
    with open(pathlib.Path(run, f"memory_snapshot/iteration_{step}/rank0_memory_snapshot.pickle"), "rb") as file:
        snapshot = pickle.load(file)
    allocations = [entry for device in snapshot["device_traces"] for entry in device if entry["action"] == "alloc"]
    print(len(kernels), "kernels,", len(snapshot["segments"]), "segments,", len(allocations), "allocations")
    return bool(kernels and snapshot["segments"] and allocations)


def measured(run):
    rows = rows_of(run)
    found = {"memory_peak_bytes": peak(run), "last_loss": rows[-1]["loss"]}
    for key in ("memory_peak_allocated_bytes", "tokens_per_second", "mfu"):
        values = sorted(row[key] for row in rows if row.get(key) is not None)
        if values:
            found[key] = values[-1] if key.startswith("memory") else values[len(values) // 2]
    print(json.dumps(found))
    return True


def processor():
    names = [line for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return f"{len(names)} x {names[0].partition(': ')[2]}" if names else platform.machine()


def report(path, results):
    """RESULTS: gpus and version (text), checks (lines "ok|FAILED SECONDS NAME"), left_out (lines), runs/ (RUN.json)."""
    results = pathlib.Path(results)
    lines = lambda name: [line for line in (results / name).read_text().splitlines() if line]  # noqa: E731
    checks = [line.split(" ", 2) for line in lines("checks")]
    content = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "hardware": {"gpus": lines("gpus"), "cpu": processor()},
        "program": lines("version")[0],
        "checks": [{"name": name, "passed": word == "ok", "seconds": int(took)} for word, took, name in checks],
        "left_out": lines("left_out"),
        "runs": {file.stem: json.loads(file.read_text()) for file in sorted((results / "runs").glob("*.json"))},
    }
    pathlib.Path(path).write_text(json.dumps(content, indent=1) + "\n")
    return True


if __name__ == "__main__":
    verbs = {function.__name__: function for function in (falls, same, close, at_most, profiled, measured, report)}
    sys.exit(not verbs[sys.argv[1]](*sys.argv[2:]))
