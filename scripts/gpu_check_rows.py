"""Checks the files that the runs of scripts/gpu_check.sh wrote. The exit code is the answer; lines that begin with
"found: " go into the table at the end and into the report.

    falls STEPS RUN               every loss is finite, it starts near ln(2048) and the last five are lower by 1 at least
    same RUN RUN                  each step of the first run is in the second with the same bits: losses, gradient norms,
                                  validation losses and checksums, as far as the second has them
    close TOLERANCE RUN RUN       the same losses and norms within TOLERANCE, relative
    begins STEP RUN               the first row of the run is of that step
    at_most RATIO RUN RUN         the first run's peak of reserved device memory is at most RATIO of the second's
    profiled STEP RUN             rank 0's trace and memory snapshot of that step show the device's kernels and allocations
    predicted RATIO FILE DRY_RUN  the peak in FILE (of `measured`) is at most RATIO of the dry run's; both go into FILE
    torchtitan STEPS LOG FILE OURS  every step is in TorchTitan's log; writes FILE, with ratios to OURS (of `measured`)
    measured RUN                  not a check: prints a JSON object of the run's speed and memory
    speed FILE                    not a check: prints what `measured` found
    inputs FOLDER CORPUS          not a check: makes a data set and a tokenizer that TorchTitan reads, too
    table RESULTS                 not a check: prints the results folder (see gpu_check.sh) as a table
    report FILE RESULTS           not a check: writes FILE, one JSON object, of the results folder
"""
import datetime
import json
import math
import pathlib
import pickle
import platform
import re
import statistics
import sys

GIB = 1 << 30


def found(text):
    print("found:", text)


def rows_of(run, name="metrics.jsonl"):
    path = pathlib.Path(run, name)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def series(run, key, name="metrics.jsonl"):
    """Returns one column of the rows as floats; numbers that are not finite are strings in the file."""
    return [float(row[key]) for row in rows_of(run, name)]


# ------------------------------------------------------------------------------------------------ losses


def falls(steps, run):
    losses = series(run, "loss")
    found(f"{losses[0]:.3f} to {losses[-1]:.3f} in {len(losses)} steps")
    return (
        len(losses) == int(steps)
        and all(map(math.isfinite, losses))
        and 7 < losses[0] < 9
        and sum(losses[-5:]) / 5 < losses[0] - 1
    )


BITS = {
    "metrics.jsonl": ("loss", "max_loss", "grad_norm", "grad_scale"),
    "validation.jsonl": ("loss",),
    "checksums.jsonl": ("gradients", "weights"),
}


def first_difference(first, second, key):
    """Returns the first difference, or None. Checksums are objects: parameter -> number."""
    a, b = first.get(key), second.get(key)
    if not isinstance(a, dict) or not isinstance(b, dict):
        return None if a == b else f"{key} {a} and {b}"
    names = [name for name in {**a, **b} if a.get(name) != b.get(name)]
    return f"{len(names)} of {len(a)} {key}, first {names[0]}" if names else None


def same(first, second):
    counts = []
    for name, keys in BITS.items():
        ours, theirs = rows_of(first, name), {row["step"]: row for row in rows_of(second, name)}
        if bool(ours) != bool(theirs) or not {row["step"] for row in ours} <= set(theirs):
            found(f"{name}: steps {[row['step'] for row in ours]} and {list(theirs)}")
            return False
        for row in ours:
            for key in keys:
                if difference := first_difference(row, theirs[row["step"]], key):
                    found(f"{name}: step {row['step']} differs: {difference}")
                    return False
        if ours:
            counts.append(f"{len(ours)} {name.partition('.')[0]}")
    if not counts or not math.isfinite(series(first, "loss")[-1]):
        found("no finite loss at the end")
        return False
    found(f"equal rows: {', '.join(counts)}")
    return True


def close(tolerance, first, second):
    worst = 0.0
    for name, keys in (("metrics.jsonl", ("loss", "grad_norm")), ("validation.jsonl", ("loss",))):
        for key in keys:
            a, b = series(first, key, name), series(second, key, name)
            if len(a) != len(b) or not a and name == "metrics.jsonl":
                found(f"{name} has {len(a)} and {len(b)} rows")
                return False
            for x, y in zip(a, b):
                worst = max(worst, abs(x - y) / abs(y) if math.isfinite(x - y) else math.inf)
    found(f"largest relative difference {worst:.1e}, allowed {tolerance}")
    return worst <= float(tolerance)


def begins(step, run):
    steps = [row["step"] for row in rows_of(run)]
    print("steps", steps)
    return steps[:1] == [int(step)]


# ------------------------------------------------------------------------------------------------ memory and speed


def peak(run):
    return max(series(run, "memory_peak_bytes"))


def at_most(ratio, first, second):
    found(f"{peak(first) / GIB:.3f} of {peak(second) / GIB:.3f} GiB = {peak(first) / peak(second):.3f}, allowed {ratio}")
    return peak(first) <= float(ratio) * peak(second)


def profiled(step, run):
    trace = json.loads(pathlib.Path(run, f"profile_traces/iteration_{step}/rank0_trace.json").read_text())
    kernels = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
    with open(pathlib.Path(run, f"memory_snapshot/iteration_{step}/rank0_memory_snapshot.pickle"), "rb") as file:
        snapshot = pickle.load(file)
    allocations = [entry for device in snapshot["device_traces"] for entry in device if entry["action"] == "alloc"]
    found(f"{len(kernels)} kernels, {len(snapshot['segments'])} segments, {len(allocations)} allocations")
    return bool(kernels and snapshot["segments"] and allocations)


def measured(run):
    rows = rows_of(run)
    values = {"memory_peak_bytes": int(peak(run)), "last_loss": rows[-1]["loss"]}
    for key in ("memory_active_bytes", "memory_peak_allocated_bytes", "tokens_per_second", "mfu"):
        known = [row[key] for row in rows if row.get(key) is not None]
        if known:
            values[key] = max(known) if key.startswith("memory") else statistics.median(known)
    print(json.dumps(values))
    return True


def speed(file):
    run = json.loads(pathlib.Path(file).read_text())
    mfu = f", {run['mfu']:.1f} % of the device's peak" if "mfu" in run else ""
    found(f"{run['tokens_per_second']:,.0f} tokens/s{mfu}, {run['memory_peak_bytes'] / GIB:.2f} GiB")
    return True


def predicted(ratio, file, dry_run):
    path, forecast = pathlib.Path(file), json.loads(pathlib.Path(dry_run).read_text())
    run = json.loads(path.read_text())
    of_allocator = forecast["peak_bytes"] + forecast["pooled_bytes"]
    over = run["memory_peak_bytes"] / of_allocator
    run |= {"predicted_peak_bytes": of_allocator, "predicted_active_bytes": forecast["peak_bytes"]}
    run |= {"peak_over_prediction": over, "allowed_over_prediction": float(ratio)}
    path.write_text(json.dumps(run) + "\n")
    found(f"{path.stem} {run['memory_peak_bytes'] / GIB:.2f} of {of_allocator / GIB:.2f} GiB = {over:.3f}, allowed {ratio}")
    return over <= float(ratio)


PEER_LINE = re.compile(r"step: +(\d+)  loss: +(\S+)  grad_norm: .*?memory: +([\d.]+)GiB.*?tps: ([\d,]+)")


def torchtitan(steps, log, file, ours):
    lines = PEER_LINE.findall(pathlib.Path(log).read_text())
    if [int(step) for step, *_ in lines] != list(range(1, int(steps) + 1)):
        found(f"steps {[line[0] for line in lines]} of {steps} in TorchTitan's log")
        return False
    tokens = statistics.median(float(line[3].replace(",", "")) for line in lines)
    run = {"memory_peak_bytes": int(max(float(line[2]) for line in lines) * GIB), "last_loss": float(lines[-1][1])}
    run["tokens_per_second"] = tokens
    found(f"{tokens:,.0f} tokens/s, {run['memory_peak_bytes'] / GIB:.2f} GiB")
    if pathlib.Path(ours).exists():
        mine = json.loads(pathlib.Path(ours).read_text())
        ratios = {key: mine[key] / run[key] for key in ("tokens_per_second", "memory_peak_bytes") if run[key]}
        run["ours_over_theirs"] = ratios
        found("ours over theirs: " + ", ".join(f"{key} {ratio:.3f}" for key, ratio in ratios.items()))
    pathlib.Path(file).write_text(json.dumps(run) + "\n")
    return math.isfinite(run["last_loss"])


# ------------------------------------------------------------------------------------------------ inputs


LINES_PER_DOCUMENT = 8
CORPUS_CHARACTERS = 1 << 20  # more than 20 steps of 8192 bytes
SPECIAL = ["<|begin_of_text|>", "<|end_of_text|>"]


def byte_names():
    """Returns GPT-2's names of the 256 bytes: printable bytes name themselves, the others come after."""
    prints = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in prints]
    return {byte: chr(byte) for byte in prints} | {byte: chr(256 + i) for i, byte in enumerate(others)}


def write_tokenizer(folder):
    """Writes a tokenizer.json that both programs read, with one token per byte, so that nothing has to be trained."""
    names = byte_names()
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [{"id": 256 + i, "content": name, **flags, "special": True} for i, name in enumerate(SPECIAL)]
    bytes_of_text = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "vocab": {names[byte]: byte for byte in range(256)}, "merges": []}
    content = {"version": "1.0", "added_tokens": added, "pre_tokenizer": bytes_of_text, "decoder": bytes_of_text}
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text(json.dumps(content | {"model": model}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": SPECIAL[0], "eos_token": SPECIAL[1]}))


def inputs(folder, corpus):
    folder, documents, size = pathlib.Path(folder), [], 0
    for path in sorted(pathlib.Path(corpus).iterdir()):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        parts = ["".join(lines[i : i + LINES_PER_DOCUMENT]) for i in range(0, len(lines), LINES_PER_DOCUMENT)]
        documents += parts
        size += sum(map(len, parts))
        if size > CORPUS_CHARACTERS:
            break
    (folder / "corpus").mkdir(parents=True)
    (folder / "corpus/data.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    write_tokenizer(folder / "tokenizer")
    return bool(documents)


# ------------------------------------------------------------------------------------------------ report


def processor():
    names = [line for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return f"{len(names)} x {names[0].partition(': ')[2]}" if names else platform.machine()


def read_results(results):
    """Reads the folder RESULTS: gpus and version (text), checks (passed|FAILED, seconds, name, found; tabs between),
    skipped (name, reason; a tab between), runs/ (RUN.json)."""
    results = pathlib.Path(results)
    lines = lambda name: [line for line in (results / name).read_text().splitlines() if line]  # noqa: E731
    checks = [line.split("\t", 3) for line in lines("checks")]
    # A run that failed may leave an empty file.
    runs = [file for file in sorted((results / "runs").glob("*.json")) if file.stat().st_size]
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "hardware": {"gpus": lines("gpus"), "cpu": processor()},
        "program": lines("version")[0],
        "checks": [
            {"name": name, "passed": word == "passed", "seconds": int(took), "found": what}
            for word, took, name, what in checks
        ],
        "skipped": [dict(zip(("name", "reason"), line.split("\t", 1))) for line in lines("skipped")],
        "runs": {file.stem: json.loads(file.read_text()) for file in runs},
    }


def report(path, results):
    pathlib.Path(path).write_text(json.dumps(read_results(results), indent=1) + "\n")
    return True


def table(results):
    content = read_results(results)
    print(f"\n{content['date']}  {'; '.join(content['hardware']['gpus'])}  {content['program']}")
    width = max((len(check["name"]) for check in [*content["checks"], *content["skipped"]]), default=0)
    print(f"{'result':<8} {'s':>4}  {'check':<{width}}  found")
    for check in content["checks"]:
        # Several findings of a check, one below the other.
        first, *others = check["found"].split("; ")
        print(f"{'passed' if check['passed'] else 'failed':<8} {check['seconds']:>4}  {check['name']:<{width}}  {first}")
        for other in others:
            print(f"{'':<{width + 15}}  {other}")
    for check in content["skipped"]:
        print(f"{'skipped':<13}  {check['name']:<{width}}  {check['reason']}")
    return True


if __name__ == "__main__":
    verbs = (falls, same, close, begins, at_most, profiled, predicted, torchtitan, measured, speed, inputs, table, report)
    by_name = {function.__name__: function for function in verbs}
    sys.exit(not by_name[sys.argv[1]](*sys.argv[2:]))
