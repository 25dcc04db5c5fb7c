"""Tests `titan-train sweep`: many runs of one job, killed, stopped, failing, and their report in a browser."""
import csv
import errno
import json
import re
import shutil
import signal
import struct
import subprocess
import zlib

from fixtures import write_job
from harness import (
    ROOT, TIME_SCALE, Gate, Job, at_row, case, expect, faults, kill, processes_marked, read_rows, skip, wait_until,
)  # fmt: skip

CHECKPOINTS = """
[checkpoint]
enable = true
interval = {interval}
last_save_model_only = false
"""


def write_sweep(context, name, text, steps, interval=10):
    """Writes a job with checkpoints and a sweep over it. Returns the sweep's file and folder."""
    base = write_job(context, f"{name}-job", steps=steps)
    base.write_text(base.read_text() + CHECKPOINTS.format(interval=interval))
    folder = context.folder / name
    path = context.folder / f"{name}-sweep.toml"
    path.write_text(f'[sweep]\nname = "{name}"\nbase = "{base.name}"\nfolder = "{folder}"\n' + text)
    return path, folder


def start_sweep(context, words, name, env=None):
    return Job([context.program, "sweep", *words], context.folder / "logs", name, env)


def run_sweep(context, words, name, exit_code=0, timeout_s=90, env=None):
    job = start_sweep(context, words, name, env)
    code = job.wait(timeout_s)
    expect(code == exit_code, f"exit code {code}, expected {exit_code}: {' '.join(job.command)}\n{job.tail(40)}")
    return job


def trials_of(folder):
    path = folder / "sweep.json"
    return json.loads(path.read_text())["trials"] if path.exists() else []


def log_of(folder, trial):
    return (folder / trial["name"] / "log.txt").read_text()


def steps_trained(log):
    """Returns every step that any start of a trial has trained, in order, with repetitions."""
    return [int(step) for step in re.findall(r" step: +(\d+) ", log)]


# ---------------------------------------------------------------------------------------------------- the report


def find_browser():
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    return next((path for path in map(shutil.which, names) if path), None)


def read_png(path):
    """Reads an 8-bit RGB or RGBA picture as [height, width, channels]."""
    import numpy

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
    picture = numpy.zeros((height + 1, width + 1, channels), numpy.uint8)  # a border of zeros, as the filters need it
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
    import numpy

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
    """Returns the share of pixels that are far from gray: curves are colored, background, lines and text are not."""
    rgb = picture[..., :3].astype(int)
    return float(((rgb.max(axis=2) - rgb.min(axis=2)) > 60).mean())


def check_labels(dom):
    """Checks that labels below an axis do not overlap; a character is 6 pixels wide and more."""
    for chart in re.findall(r"<svg viewBox.*?</svg>", re.search(r'<div[^>]*id="scatter".*', dom, re.DOTALL).group(), re.DOTALL):
        labels = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="middle">([^<]*)<', chart)
        ends = sorted((float(x) - 3 * len(text), float(x) + 3 * len(text), text) for x, y, text in labels)
        for (_, end, one), (begin, _, other) in zip(ends, ends[1:]):
            expect(end < begin, f"{one} and {other} overlap: {labels}")
        expect(labels, f"no labels in {chart[:500]}")


def check_report(context, browser, page, num_trials, num_keys):
    """Checks that the page, without a network, draws one curve per trial, and that the curves are in the picture."""
    picture = context.folder / "report.png"
    common = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={context.folder}/browser"]

    def browse(*words):
        return subprocess.run([*common, *words, page.as_uri()], capture_output=True, text=True, timeout=60 * TIME_SCALE, check=True).stdout

    dom = browse("--dump-dom")
    svg = re.search(r'<svg id="curves".*?</svg>', dom, re.DOTALL).group()
    curves = re.findall(r'<path d="(M[^"]*)" class="curve"', svg)
    expect(len(curves) == num_trials, f"{len(curves)} curves, expected {num_trials}")
    expect(all(curve.count("L") >= 20 for curve in curves), "curves have too few points")
    scatters = dom.count('class="name"')
    expect(dom.count("<circle") >= num_trials * num_keys, f"{dom.count('<circle')} dots, {scatters} names")
    check_labels(dom)
    browse("--window-size=1240,700", f"--screenshot={picture}")
    # The area below the headline and above the legend has the curves. Six lines 1.6 pixels wide across 1,000 of 1,240
    # columns, most of them apart, are 1 % and more of it; the same area without curves has none.
    share = colorful_share(read_png(picture)[290:560, 130:1150])
    expect(share > 0.01, f"only {share:.2%} of the picture's middle is colored; see {picture}")


# ---------------------------------------------------------------------------------------------------- cases

SHARDING = """
nproc = 2
cores = 1
max_parallel = 2
objective = "loss"
reduction = "mean"
window = 5
[sweep.grid]
"optimizer.lr" = [1e-4, 1e-3, 1e-2]
[sweep.zip]
"parallelism.data_parallel_shard_degree" = [2, 1]
"parallelism.data_parallel_replicate_degree" = [1, 2]
"""


@case(120)
def sweep_killed_and_resumed(context):
    """Six trials over learning rate and sharding; SIGKILL midway; the same command finishes it, and repeats nothing."""
    steps, interval, last_row = 24, 10, 15
    sweep, folder = write_sweep(context, "sharding", SHARDING, steps, interval)
    # Two trials run at once and both wait between their first checkpoint and the second: by then three are done.
    gates = {trial: Gate(context, f"trial-{trial}") for trial in (3, 4)}
    rules = [gate.rule(at_row(last_row, name=f"*/trial-{trial:03d}*/")) for trial, gate in gates.items()]
    job = start_sweep(context, [sweep], "killed", faults(context, *rules))
    for gate in gates.values():
        gate.wait(job)
    kill(job.process.pid, signal.SIGKILL)
    job.process.wait()
    wait_until(lambda: not processes_marked(job.mark), 30, "processes outlive a killed sweep")
    before = trials_of(folder)
    states = ["done"] * 3 + ["running"] * 2 + ["pending"]
    expect([t["state"] for t in before] == states, f"at the kill: {[t['state'] for t in before]}")
    done = [log_of(folder, t) for t in before[:3]]

    run_sweep(context, [sweep], "resumed")
    trials = trials_of(folder)
    expect([t["state"] for t in trials] == ["done"] * 6, f"{[(t['state'], t['error']) for t in trials]}")
    expect([log_of(folder, t) for t in trials[:3]] == done, "a trial that was done ran again")
    # Step 15 was in the metrics and not yet on the console when the trial was killed.
    straight, resumed = list(range(1, steps + 1)), [*range(1, last_row), *range(interval + 1, steps + 1)]
    for index, trial in enumerate(trials):
        log = log_of(folder, trial)
        rows = read_rows(folder / trial["name"] / "metrics.jsonl")
        expect([row["step"] for row in rows] == straight, f"{trial['name']}: rows of metrics are missing or twice")
        starts = 2 if index in gates else 1
        expect((log.count("=== "), trial["starts"]) == (starts, starts), f"{trial['name']}: {trial['starts']} starts\n{log}")
        expected = resumed if index in gates else straight
        expect(steps_trained(log) == expected, f"{trial['name']} trained {steps_trained(log)}, expected {expected}")

    with open(folder / "results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    expect(len(rows) == 6 and [int(r["rank"]) for r in rows] == list(range(1, 7)), f"results.csv: {rows}")
    losses = [float(r["loss"]) for r in rows]
    expect(losses == sorted(losses), f"the ranking is {losses}")
    last = read_rows(folder / rows[0]["name"] / "metrics.jsonl")[-5:]
    expect(abs(losses[0] - sum(r["loss"] for r in last) / 5) < 1e-12, f"best loss {losses[0]}, metrics {last}")

    # A third start has nothing to do.
    logs = [log_of(folder, t) for t in trials]
    run_sweep(context, [sweep], "again")
    expect([log_of(folder, t) for t in trials] == logs, "a finished sweep ran something")


MANY = """
max_parallel = 2
cores = 1
[sweep.grid]
"optimizer.lr" = [1e-4, 1e-3, 1e-2]
"optimizer.weight_decay" = [0.0, 0.1]
"""


@case(120)
def sweep_report(context):
    """The report of six trials needs no network, and a browser shows the curves of all."""
    sweep, folder = write_sweep(context, "many", MANY, 22)
    browser = find_browser()
    if not browser:
        skip("Chromium")
    run_sweep(context, [sweep], "run")
    page = folder / "report.html"
    addresses = set(re.findall(r"https?://[^\s\"'<>)]+", page.read_text(encoding="utf-8"))) - {"http://www.w3.org/2000/svg"}
    expect(not addresses, f"the report points at {addresses}")
    check_report(context, browser, page, 6, 2)


@case(90, processors=1)
def sweep_stopped(context):
    """SIGTERM: trials save, exit 75; a restart resumes there. Rungs: the worse trials stop at 8 steps."""
    text = '[sweep.grid]\n"optimizer.lr" = [1e-5, 3e-3, 1e-2, 3e-5]\n[sweep.asha]\nmin_steps = 8\nreduction_factor = 2\n'
    sweep, folder = write_sweep(context, "halving", "max_parallel = 1\n" + text, 16, 1000)
    gate = Gate(context, "fifth-row")
    job = start_sweep(context, [sweep], "stopped", faults(context, gate.rule(at_row(5, name="*/trial-000-*/"))))
    gate.wait(job)
    second = run_sweep(context, [sweep], "second", exit_code=2)
    expect("another titan-train sweep runs in" in second.errors(), second.tail())
    kill(job.process.pid, signal.SIGTERM)
    gate.wait(job, happened="signalled")
    gate.open()
    code = job.wait()
    expect(code == 75, f"exit code {code} after SIGTERM, expected 75\n{job.tail()}")
    (first, *others) = trials_of(folder)
    expect(first["state"] == "pending" and first["starts"] == 1 and not any(t["starts"] for t in others), f"{first} {others}")
    saved = [path.name for path in (folder / first["name"] / "checkpoint").iterdir()]
    last = read_rows(folder / first["name"] / "metrics.jsonl")[-1]["step"]
    expect((last, saved) == (6, ["step-6"]), f"stopped at {last}, saved {saved}")

    text = run_sweep(context, [sweep], "resumed").text()
    expect("stopped early" in text, text)
    trials = trials_of(folder)
    # The best two of four at the first rung continue.
    expect([t["steps"] for t in trials] == [8, 16, 16, 8], f"{[(t['name'], t['steps']) for t in trials]}")
    for trial in trials:
        trained = steps_trained(log_of(folder, trial))
        expect(trained == list(range(1, trial["steps"] + 1)), f"{trial['name']} trained {trained}")
    # The second rung continues the first's schedule: the learning rate falls as for 16 steps, not as for 8.
    rows = read_rows(folder / trials[1]["name"] / "metrics.jsonl")
    expect(rows[7]["lr"] == 3e-3 and rows[15]["lr"] < 1e-3, f"{rows[7]['lr']}, {rows[15]['lr']}")


HELD_OUT = """
[validation]
enable = true
dataset = "jsonl"
dataset_path = "{path}"
local_batch_size = 2
seq_len = 64
freq = 5
steps = 2
"""


@case(120)
def sweep_by_validation(context):
    """Rungs are judged by the validation of their own step, and a trial that paused has the losses of one that did not."""
    text = 'objective = "validation.loss"\nmax_parallel = 2\ncores = 1\n'
    text += '[sweep.grid]\n"optimizer.lr" = [1e-5, 3e-3, 1e-2]\n[sweep.asha]\nmin_steps = 3\nmax_steps = 9\n'
    sweep, folder = write_sweep(context, "held-out", text, 9, 1000)
    base = sweep.parent / "held-out-job.toml"
    base.write_text(base.read_text() + HELD_OUT.format(path=context.fixtures / "corpus.jsonl"))
    run_sweep(context, [sweep], "run")
    trials = trials_of(folder)
    expect(sorted(t["steps"] for t in trials) == [3, 3, 9], f"{[(t['name'], t['steps']) for t in trials]}")
    for trial in trials:
        rows = {row["step"]: row["loss"] for row in read_rows(folder / trial["name"] / "validation.jsonl")}
        rungs = [3, 9][: len(trial["rung_objectives"])]
        expect(trial["rung_objectives"] == [rows.get(rung) for rung in rungs], f"{trial}: rows {rows}")
        expect(trial["objective_step"] == trial["steps"], f"{trial}")
    at_first = [t["rung_objectives"][0] for t in trials]
    best = next(t for t in trials if t["steps"] == 9)
    expect(best["rung_objectives"][0] == min(at_first), f"{at_first}: {best['name']} went on")
    # The same trial without a pause.
    straight = [context.program, "--config", folder / best["name"] / "config.toml", "--job.dump_folder", context.folder / "straight"]
    job = Job(straight, context.folder / "logs", "straight", env={"OMP_NUM_THREADS": "1"})
    expect(job.wait() == 0, job.tail())
    paused = {r["step"]: r["loss"] for r in read_rows(folder / best["name"] / "validation.jsonl")}
    unpaused = {r["step"]: r["loss"] for r in read_rows(context.folder / "straight/validation.jsonl")}
    expect(sorted(paused) == [1, 3, 5, 9] and sorted(unpaused) == [1, 5, 9], f"{sorted(paused)}, {sorted(unpaused)}")
    expect(all(paused[step] == loss for step, loss in unpaused.items()), f"paused {paused}, straight {unpaused}")
    # Another held-out set in the same folder would be compared with this one.
    base.write_text(base.read_text().replace("steps = 2\n", "steps = 3\n"))
    text = run_sweep(context, [sweep], "other", exit_code=2).errors()
    expect("validation.steps of the job was 2, is 3" in text, text)


@case(90)
def sweep_failures(context):
    """A trial that fails is reported and retried if asked; the others run. The launcher is a real one."""
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
    expect("trial 0 was training.local_batch_size = 2, which no trial is any more" in text, text)
    # All problems of trials are reported before any starts.
    sweep.write_text(sweep.read_text().replace("local_batch_size\" = 1", 'seq_len" = 63'))
    text = run_sweep(context, [sweep], "wrong", exit_code=2).errors()
    expect("in trial 0 (training.seq_len = 63):\nerror: training.seq_len (63) must be a multiple of 2" in text, text)


@case(60, quick=True, processors=1)
def sweep_examples(context):
    """The files of configs/sweeps list their trials."""
    files = sorted((ROOT / "configs/sweeps").glob("*.toml"))
    expect(files, "configs/sweeps is empty")
    for path in files:
        job = Job([context.program, "sweep", path, "--dry-run", "--launcher", "srun", "--max-parallel", "2"], context.folder / "logs", path.stem, cwd=ROOT)
        code = job.wait()
        expect(code == 0 and "trial-000" in job.text(), f"{path}: exit code {code}\n{job.tail()}")


@case(120)
def sweep_of_a_grid_on_the_command_line(context):
    """--grid needs no file: it writes one to the sweep's folder; the command resumes; another grid is refused."""
    base = write_job(context, "gridded", steps=2)
    folder = context.folder / "grid"
    words = ["--grid", "optimizer.lr=1e-3,1e-2", "--config", base, "--folder", folder]
    listed = run_sweep(context, [*words, "--dry-run"], "listed").out_path.read_text()
    expect("2 trials" in listed and not folder.exists(), listed)
    # On a file system without locks, too.
    run_sweep(context, words, "first", env=faults(context, f"call=flock do=errno:{errno.ENOSYS}"))
    before = [log_of(folder, trial) for trial in trials_of(folder)]
    expect([steps_trained(log) for log in before] == [[1, 2], [1, 2]], f"{before}")
    run_sweep(context, words, "again")
    run_sweep(context, [folder / "sweep.toml"], "by-file")
    expect([log_of(folder, trial) for trial in trials_of(folder)] == before, "finished trials were run again")
    # Ranks by another column, and checks other messages about the folder.
    run_sweep(context, ["--report", folder, "--objective", "tokens_per_second"], "by-speed")
    rates = {t["name"]: read_rows(folder / t["name"] / "metrics.jsonl")[-1]["tokens_per_second"] for t in trials_of(folder)}
    header, best = (folder / "results.csv").read_text().splitlines()[:2]
    expect(best.split(",")[2] == max(rates, key=rates.get), f"{header}\n{best}\n{rates}")
    text = run_sweep(context, ["--report", folder, "--objective", "los"], "no-such", exit_code=2).errors()
    expect("--objective los: no such column; did you mean loss?" in text, text)
    job = Job([context.program, "inspect", folder], context.folder / "logs", "inspect")
    expect(job.wait() == 2 and f"titan-train sweep --report {folder} prints its ranking" in job.errors(), job.tail())
    text = (folder / "sweep.toml").read_text()
    words[1] = "optimizer.lr=5e-3,1e-2"
    run_sweep(context, words, "other", exit_code=2)
    expect((folder / "sweep.toml").read_text() == text, "a sweep that was refused left its file")


@case(120)
def sweep_with_more_steps(context):
    """With more training.steps, finished trials train further, no step twice, with the losses of straight ones."""
    words = ["--grid", "optimizer.lr=1e-3,1e-2", "--objective", "max_loss", "--config"]
    base = write_job(context, "longer", steps=3)
    base.write_text(base.read_text().replace("warmup_steps = 4\n", "warmup_steps = 4\ntotal_steps = 20\n") + CHECKPOINTS.format(interval=100))
    folder = context.folder / "more"
    run_sweep(context, [*words, base, "--folder", folder], "short")
    base.write_text(base.read_text().replace("steps = 3\n", "steps = 5\n"))
    run_sweep(context, [*words, base, "--folder", folder], "long")
    trials = trials_of(folder)
    expect([steps_trained(log_of(folder, trial)) for trial in trials] == [[1, 2, 3, 4, 5]] * 2, f"{trials}")
    straight = context.folder / "straight"
    run_sweep(context, [*words, base, "--folder", straight], "straight")
    for trial, other in zip(trials, trials_of(straight)):
        expect(trial["state"] == "done" and trial["objective"] == other["objective"], f"{trial}\n{other}")
    base.write_text(base.read_text().replace("total_steps = 20\n", "").replace("steps = 5\n", "steps = 6\n"))
    text = run_sweep(context, [*words, base, "--folder", folder], "refused", exit_code=2).errors()
    expect("lr_scheduler.total_steps" in text, text)
