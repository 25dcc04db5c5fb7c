"""`titan-train sweep`: many runs of one job, killed, stopped, failing, and their report in a browser."""
import csv
import json
import re
import shutil
import signal
import struct
import subprocess
import sys
import zlib

import numpy

from fixtures import write_job
from harness import ROOT, Job, case, expect, kill, processes_marked, read_rows, wait_until

CHECKPOINTS = """
[checkpoint]
enable = true
interval = {interval}
last_save_model_only = false
"""


def write_sweep(context, name, text, steps, interval=10):
    """A job with checkpoints and a sweep over it; the sweep's file and folder."""
    base = write_job(context, f"{name}-job", steps=steps)
    base.write_text(base.read_text() + CHECKPOINTS.format(interval=interval))
    folder = context.folder / name
    path = context.folder / f"{name}-sweep.toml"
    path.write_text(f'[sweep]\nname = "{name}"\nbase = "{base.name}"\nfolder = "{folder}"\n' + text)
    return path, folder


def start_sweep(context, words, name):
    return Job([context.program, "sweep", *words], context.folder / "logs", name)


def run_sweep(context, words, name, exit_code=0, timeout_s=90):
    job = start_sweep(context, words, name)
    code = job.wait(timeout_s)
    expect(code == exit_code, f"exit code {code}, expected {exit_code}: {' '.join(job.command)}\n{job.tail(40)}")
    return job


def trials_of(folder):
    path = folder / "sweep.json"
    return json.loads(path.read_text())["trials"] if path.exists() else []


def log_of(folder, trial):
    return (folder / trial["name"] / "log.txt").read_text()


def steps_trained(log):
    """Every step that any start of a trial has trained, in order, with repetitions."""
    return [int(step) for step in re.findall(r" step: +(\d+) ", log)]


# ---------------------------------------------------------------------------------------------------- the report


def find_browser():
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    return next((path for path in map(shutil.which, names) if path), None)


def read_png(path):
    """An 8-bit RGB or RGBA picture as [height, width, channels]."""
    data = path.read_bytes()
    width, height, depth, kind = struct.unpack(">IIBB", data[16:26])
    expect(depth == 8 and kind in (2, 6), f"{path}: bit depth {depth}, color type {kind}")
    channels = 3 if kind == 2 else 4
    packed, at = b"", 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        if data[at + 4 : at + 8] == b"IDAT":
            packed += data[at + 8 : at + 8 + length]
        at += 12 + length
    rows = numpy.frombuffer(zlib.decompress(packed), numpy.uint8).reshape(height, 1 + width * channels)
    picture = numpy.zeros((height + 1, width + 1, channels), numpy.uint8)  # a border of zeros, as the filters want it
    for y in range(height):
        line = rows[y, 1:].reshape(width, channels)
        above = picture[y, 1:]
        kind = rows[y, 0]
        if kind == 0:
            picture[y + 1, 1:] = line
        elif kind == 2:
            picture[y + 1, 1:] = line + above
        elif kind == 1:
            picture[y + 1, 1:] = numpy.cumsum(line, axis=0, dtype=numpy.uint8)
        else:
            unfilter_row(kind, line, picture[y], picture[y + 1])
    return picture[1:, 1:]


def unfilter_row(kind, line, above, out):
    for x in range(len(line)):
        left, up, corner = out[x].astype(int), above[x + 1].astype(int), above[x].astype(int)
        if kind == 3:
            guess = (left + up) // 2
        else:
            to_left, to_up, to_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
            guess = numpy.where(
                (to_left <= to_up) & (to_left <= to_corner), left, numpy.where(to_up <= to_corner, up, corner)
            )
        out[x + 1] = (line[x] + guess) & 255


def colorful_share(picture):
    """The share of pixels that are far from gray: curves are colored, background, lines and text are not."""
    rgb = picture[..., :3].astype(int)
    return float(((rgb.max(axis=2) - rgb.min(axis=2)) > 60).mean())


def check_report(context, page, num_trials, num_keys):
    """The page, without a network, draws a curve a trial; the curves are in the picture."""
    text = page.read_text(encoding="utf-8")
    addresses = set(re.findall(r"https?://[^\s\"'<>)]+", text)) - {"http://www.w3.org/2000/svg"}
    expect(not addresses, f"the report points at {addresses}")
    browser = find_browser()
    if not browser:
        print("       SKIPPED: no Chromium on this machine; the report was not opened", file=sys.stderr)
        return
    picture = context.folder / "report.png"
    common = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={context.folder}/browser"]
    dom = subprocess.run([*common, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=60, check=True).stdout
    svg = re.search(r'<svg id="curves".*?</svg>', dom, re.DOTALL).group()
    curves = re.findall(r'<path d="(M[^"]*)" class="curve"', svg)
    expect(len(curves) == num_trials, f"{len(curves)} curves, expected {num_trials}")
    expect(all(curve.count("L") >= 20 for curve in curves), "curves have too few points")
    scatters = dom.count('class="name"')
    expect(dom.count('<circle') >= num_trials * num_keys, f"{dom.count('<circle')} dots, {scatters} names")
    subprocess.run(
        [*common, "--window-size=1240,700", f"--screenshot={picture}", page.as_uri()], capture_output=True, timeout=60, check=True
    )
    # Below the headline and above the legend, where the curves are. Twelve lines 1.6 pixels wide across 1,000 of 1,240
    # columns, most of them apart, are 2 % and more of it; the same place without curves has none.
    share = colorful_share(read_png(picture)[290:560, 130:1150])
    expect(share > 0.02, f"only {share:.2%} of the picture's middle is colored; see {picture}")


# ---------------------------------------------------------------------------------------------------- cases

SHARDING = """
nproc = 2
cores = 1
objective = "loss"
reduction = "mean"
window = 5
[sweep.grid]
"optimizer.lr" = [1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2]
[sweep.zip]
"parallelism.data_parallel_shard_degree" = [2, 1]
"parallelism.data_parallel_replicate_degree" = [1, 2]
"""


@case(180)
def sweep_killed_and_resumed(context):
    """Twelve trials over learning rate and sharding; SIGKILL midway; the same command ends it, and repeats nothing."""
    steps, interval = 60, 10
    sweep, folder = write_sweep(context, "sharding", SHARDING, steps, interval)
    job = start_sweep(context, [sweep], "killed")

    def is_midway():
        trials = trials_of(folder)
        running = [folder / t["name"] for t in trials if t["state"] == "running"]
        saved = [f for f in running if (f / "checkpoint/step-20/.metadata").exists()]
        return sum(t["state"] == "done" for t in trials) >= 3 and any(len(read_rows(f / "metrics.jsonl")) < 50 for f in saved)

    wait_until(is_midway, 60, "no moment with 3 trials done and one past its second checkpoint\n" + job.tail())
    kill(job.process.pid, signal.SIGKILL)
    job.process.wait()
    wait_until(lambda: not processes_marked(job.mark), 5, "processes outlive a killed sweep")
    before = trials_of(folder)
    done = {t["name"]: log_of(folder, t) for t in before if t["state"] == "done"}
    interrupted = [t for t in before if t["state"] == "running"]
    expect(interrupted and len(done) >= 3, f"at the kill: {[t['state'] for t in before]}")

    run_sweep(context, [sweep], "resumed")
    trials = trials_of(folder)
    expect([t["state"] for t in trials] == ["done"] * 12, f"{[(t['state'], t['error']) for t in trials]}")
    for trial in trials:
        log = log_of(folder, trial)
        rows = read_rows(folder / trial["name"] / "metrics.jsonl")
        expect([row["step"] for row in rows] == list(range(1, steps + 1)), f"{trial['name']}: rows of metrics are missing or twice")
        expect(log.count("=== ") == trial["starts"], f"{trial['name']}: {trial['starts']} starts")
        # What is trained again is what came after the last checkpoint: fewer steps than lie between two, a start.
        trained = steps_trained(log)
        expect(len(trained) < steps + interval * trial["starts"], f"{trial['name']} trained {len(trained)} steps, {trained}")
        if trial["name"] in done:
            expect(log == done[trial["name"]], f"{trial['name']} was done, and ran again")
    goes_on = [t["name"] for t in interrupted if "Loading the full state from" in log_of(folder, t)]
    expect(goes_on, f"none of {[t['name'] for t in interrupted]} went on from a checkpoint")

    with open(folder / "results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    expect(len(rows) == 12 and [int(r["rank"]) for r in rows] == list(range(1, 13)), f"results.csv: {rows}")
    losses = [float(r["loss"]) for r in rows]
    expect(losses == sorted(losses), f"the ranking is {losses}")
    last = read_rows(folder / rows[0]["name"] / "metrics.jsonl")[-5:]
    expect(abs(losses[0] - sum(r["loss"] for r in last) / 5) < 1e-12, f"best loss {losses[0]}, metrics {last}")

    # A third start has nothing to do, and does nothing.
    logs = [log_of(folder, t) for t in trials]
    run_sweep(context, [sweep], "again")
    expect([log_of(folder, t) for t in trials] == logs, "a finished sweep ran something")
    check_report(context, folder / "report.html", 12, 3)


@case(90)
def sweep_stopped(context):
    """SIGTERM: trials save, exit 75; started again it goes on from there. Rungs: the worse trials stop at 8 steps."""
    text = '[sweep.grid]\n"optimizer.lr" = [1e-5, 3e-3, 1e-2, 3e-5]\n[sweep.asha]\nmin_steps = 200\nreduction_factor = 2\n'
    sweep, folder = write_sweep(context, "halving", "max_parallel = 1\n" + text, 400, 1000)
    job = start_sweep(context, [sweep], "stopped")
    metrics = folder / "trial-000-lr1e-05/metrics.jsonl"
    wait_until(lambda: metrics.exists() and len(read_rows(metrics)) >= 5, 30, "no fifth step")
    second = run_sweep(context, [sweep], "second", exit_code=2)
    expect("another titan-train sweep runs in" in second.errors(), second.tail())
    kill(job.process.pid, signal.SIGTERM)
    code = job.wait(30)
    expect(code == 75, f"exit code {code} after SIGTERM, expected 75\n{job.tail()}")
    (first, *others) = trials_of(folder)
    expect(first["state"] == "pending" and first["starts"] == 1 and not any(t["starts"] for t in others), f"{first} {others}")
    stopped_at = read_rows(metrics)[-1]["step"]
    saved = [path.name for path in (folder / first["name"] / "checkpoint").iterdir()]
    expect(saved == [f"step-{stopped_at}"] and stopped_at < 200, f"stopped at {stopped_at}, saved {saved}")

    text = run_sweep(context, [sweep], "resumed").text()
    expect("stopped early" in text, text)
    trials = trials_of(folder)
    # Of four at the first rung the best two go on.
    expect([t["steps"] for t in trials] == [200, 400, 400, 200], f"{[(t['name'], t['steps']) for t in trials]}")
    for trial in trials:
        trained = steps_trained(log_of(folder, trial))
        expect(trained == list(range(1, trial["steps"] + 1)), f"{trial['name']} trained {trained}")
    # The second rung goes on with the first's schedule: the learning rate falls where 400 steps say, not where 200 do.
    rows = read_rows(folder / trials[1]["name"] / "metrics.jsonl")
    expect(rows[199]["lr"] == 3e-3 and rows[399]["lr"] < 1e-4, f"{rows[199]['lr']}, {rows[399]['lr']}")


@case(90)
def sweep_failures(context):
    """A trial that fails is reported and retried where asked; the others run. The launcher is a real one."""
    text = 'nproc = 2\nmax_parallel = 1\nretries = 1\nlauncher = "mpirun --allow-run-as-root --oversubscribe -n {ranks}"\n'
    text += '[[sweep.list]]\n"training.local_batch_size" = 2\n'
    empty = context.folder / 'no,"checkpoint'
    empty.mkdir()
    text += f"[[sweep.list]]\n'checkpoint.initial_load_path' = '{empty}'\n"
    sweep, folder = write_sweep(context, "failing", text, 3)

    listed = run_sweep(context, [sweep, "--dry-run"], "list").text()
    expect(listed.count("trial-00") == 2 and not folder.exists(), listed)

    text = run_sweep(context, [sweep], "run", exit_code=1).text()
    good, bad = trials_of(folder)
    expect((good["state"], good["starts"], good["steps"]) == ("done", 1, 3), f"{good}")
    expect((bad["state"], bad["starts"]) == ("failed", 2) and "is not a complete checkpoint" in bad["error"], f"{bad}")
    expect(f"{bad['name']} failed: " in text, text)
    with open(folder / "results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    expect(rows[1]["checkpoint.initial_load_path"] == str(empty) and rows[1]["error"] == bad["error"], f"{rows}")

    run_sweep(context, [sweep], "again", exit_code=1)
    expect(trials_of(folder)[1]["starts"] == 2, "a failed trial ran again without being asked to")
    run_sweep(context, [sweep, "--retry-failed"], "retry", exit_code=1)
    good, bad = trials_of(folder)
    expect((good["starts"], bad["starts"]) == (1, 4), f"{good} {bad}")
    run_sweep(context, ["--report", folder], "report")

    # Another sweep in the same folder is refused, and says what differs.
    sweep.write_text(sweep.read_text().replace("local_batch_size\" = 2", 'local_batch_size" = 1'))
    text = run_sweep(context, [sweep], "other", exit_code=2).errors()
    expect("trial 0 was training.local_batch_size = 2, is training.local_batch_size = 1" in text, text)
    # All that is wrong with trials is said before any starts.
    sweep.write_text(sweep.read_text().replace("local_batch_size\" = 1", 'seq_len" = 63'))
    text = run_sweep(context, [sweep], "wrong", exit_code=2).errors()
    expect("in trial 0 (training.seq_len = 63):\nerror: training.seq_len (63) must be a multiple of 2" in text, text)


@case(20)
def sweep_examples(context):
    """The files of configs/sweeps list their trials."""
    files = sorted((ROOT / "configs/sweeps").glob("*.toml"))
    expect(files, "configs/sweeps is empty")
    for path in files:
        job = Job([context.program, "sweep", path, "--dry-run", "--launcher", "srun", "--max-parallel", "2"], context.folder / "logs", path.stem, cwd=ROOT)
        code = job.wait(10)
        expect(code == 0 and "trial-000" in job.text(), f"{path}: exit code {code}\n{job.tail()}")
