"""The ways to start ranks: docs/launch.md's lines as they stand, restarts by torchrun, and what --nproc prints."""
import json
import os
import re
import shlex
import signal
import subprocess

from fixtures import write_job
from harness import (
    ROOT, VENV, Job, case, check_identical, environment_of, expect, free_port, kill, processes_marked, read_rows,
    relative_distance, rows_by_step, run, start, start_plain, wait_until,
)  # fmt: skip

FULL = ["--checkpoint.enable", "--checkpoint.no-last_save_model_only"]
KEYS = ("loss", "max_loss", "grad_norm", "lr", "tokens_seen")


def commands_of(path):
    """The indented commands of a Markdown file, continuation lines joined, comments dropped."""
    text = re.sub(r"\\\n\s+", " ", path.read_text())
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    return [line.partition("  #")[0].rstrip() for line in lines]


@case(120)
def launch_lines(context):
    """Every line of docs/launch.md that this machine can run trains; the others are Slurm's or for several hosts."""
    config = write_job(context, "launched", steps=2)
    done = []
    for line in commands_of(ROOT / "docs/launch.md"):
        if not re.match(r"(titan-train|torchrun|mpirun) ", line) or "HOST" in line:
            continue
        words = shlex.split(line.replace("job.toml", str(config)))
        words = [str(context.program) if word == "titan-train" else word for word in words]
        if words[0] == "torchrun":
            words[:1] = [str(VENV / "torchrun"), "--master-port", str(free_port())]
        if words[0] == "mpirun":
            words[1:1] = ["--allow-run-as-root", "--oversubscribe"]
        name = f"line{len(done)}"
        job = Job([*words, "--job.dump_folder", context.dump(name)], context.folder / "logs", name)
        code = job.wait(60)
        expect(code == 0, f"{line}: exit code {code}\n{job.tail()}")
        expect(len(read_rows(context.dump(name) / "metrics.jsonl")) == 2, f"{line}: not two steps")
        done.append(words[0])
    expect(len(done) >= 4 and len(set(done)) == 3, f"too few lines were found: {done}")


@case(30)
def launch_slurm_script(context):
    """scripts/titan.sbatch, with an srun that only writes down how it was called: a task a rank, and a signal in time."""
    folder = context.folder / "bin"
    folder.mkdir()
    for name, text in {"srun": 'printf "%s\\n" "$@" > "$OUT/srun"', "scontrol": 'printf "%s\\n" "$@" > "$OUT/scontrol"'}.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\nexit ${{CODE:-0}}\n")
        (folder / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "OUT": str(context.folder), "SLURM_JOB_ID": "7"}
    script = ROOT / "scripts/titan.sbatch"
    for code, requeued in (("0", False), ("1", False), ("75", True)):
        (context.folder / "scontrol").unlink(missing_ok=True)
        command = ["bash", script, "--config", "job.toml", "--training.steps", "5"]
        done = subprocess.run(command, env={**env, "CODE": code}, capture_output=True, text=True, timeout=20)
        words = (context.folder / "srun").read_text().splitlines()
        expect(words[-4:] == ["--config", "job.toml", "--training.steps", "5"], f"srun got {words}")
        found = context.folder / "scontrol"
        expect(found.exists() == requeued, f"exit code {code}: requeued: {found.exists()}\n{done.stderr}")
        expect(not requeued or found.read_text().split() == ["requeue", "7"], "another job was queued again")
        expect(requeued or done.returncode == int(code), f"exit code {done.returncode}, expected {code}")
    text = script.read_text()
    expect(re.search(r"^#SBATCH --signal=USR1@\d+$", text, re.MULTILINE), "nobody tells the ranks that time is running out")


def ranks_by_pid(context, job):
    return {pid: environment_of(pid) for pid in job.ranks(context.program).values()}


def torchrun(context, words, name, *options):
    command = [VENV / "torchrun", "--no-python", "--max-restarts", "3", *options, context.program, *words]
    return Job(command, context.folder / "logs", name, {"TORCHELASTIC_ERROR_FILE": ""})


@case(120)
def elastic_max_restarts(context):
    """A rank killed twice under torchrun --max-restarts: the job goes on by itself, and its losses are the undisturbed run's."""
    steps = 60
    run(context, 2, ["--config", write_job(context, "straight", steps=steps)], name="straight")
    words = ["--config", write_job(context, "killed", steps=steps), *FULL, "--checkpoint.interval", "5"]
    metrics = context.dump("killed") / "metrics.jsonl"
    job = torchrun(context, words, "elastic", "--nproc-per-node", "2", "--master-port", free_port(), "--monitor-interval", "0.2")
    seen = 0
    for attempt in range(2):
        wait_until(lambda: metrics.exists() and max([0, *rows_by_step(metrics)]) >= seen + 8, 40, f"no step {seen + 8}")
        seen = max(rows_by_step(metrics))
        victims = [pid for pid, env in ranks_by_pid(context, job).items() if env.get("RANK") == str(attempt)]
        expect(len(victims) == 1, f"rank {attempt}: {victims}")
        kill(victims[0], signal.SIGKILL)
    code = job.wait(60)
    expect(code == 0, f"exit code {code}\n{job.tail(30)}")
    starts = job.text().count("Loading the full state from")
    expect(starts == 2, f"{starts} resumes, expected 2\n{job.tail(30)}")
    straight = rows_by_step(context.dump("straight") / "metrics.jsonl", exact=True)
    check_identical(rows_by_step(metrics, exact=True), straight, KEYS, "restarted by torchrun")


@case(120)
def elastic_smaller_world(context):
    """One of two torchrun agents dies; the other goes on alone, at one rank, with the same global batches."""
    steps = 60
    batch = ["--training.dataset", "jsonl", "--training.global_batch_size", "4", "--training.local_batch_size", "1"]
    batch += ["--training.mixed_precision_param", "float32"]
    run(context, 2, ["--config", write_job(context, "straight", steps=steps), *batch], name="straight")
    words = ["--config", write_job(context, "shrunk", steps=steps), *batch, *FULL, "--checkpoint.interval", "5"]
    metrics = context.dump("shrunk") / "metrics.jsonl"
    options = ["--nnodes", "1:2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-id", "shrunk", "--monitor-interval", "0.2"]
    options += ["--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--local-addr", "127.0.0.1"]
    # A short keep-alive: the survivor waits for a lost agent that long before it starts again without it. The one that
    # holds the rendezvous must not be the one that dies.
    conf = "last_call_timeout=8,join_timeout=60,keep_alive_interval=1,keep_alive_max_attempt=2"
    first = torchrun(context, words, "first", *options, "--rdzv-conf", f"{conf},is_host=true")
    second = torchrun(context, words, "second", *options, "--rdzv-conf", f"{conf},is_host=false")
    wait_until(lambda: metrics.exists() and max([0, *rows_by_step(metrics)]) >= 8, 40, "no step 8")
    for pid in processes_marked(second.mark):
        kill(pid, signal.SIGKILL)
    code = first.wait(80)
    expect(code == 0, f"exit code {code}\n{first.tail(30)}")
    text = first.text()
    expect("2 ranks" in text and "1 ranks" in text, f"the world did not shrink\n{first.tail(30)}")
    shrunk, straight = (rows_by_step(context.dump(name) / "metrics.jsonl") for name in ("shrunk", "straight"))
    expect(sorted(shrunk) == list(range(1, steps + 1)), f"steps {sorted(shrunk)}")
    # As in elastic_resize: the same sums in another grouping, over 60 steps instead of 24.
    for step in straight:
        distance = relative_distance(shrunk[step]["loss"], straight[step]["loss"])
        expect(distance < 1e-3, f"step {step}: loss {shrunk[step]['loss']}, undisturbed {straight[step]['loss']}")


@case(30)
def nproc_missing_data(context):
    """A file that no rank has is one message and exit code 2, at once: nobody waits for a rank that is gone."""
    words = ["--config", write_job(context, "missing"), "--training.dataset_path", "/nonexistent/corpus.jsonl"]
    job = run(context, 1, ["--nproc", "3", *words], "none", exit_code=2, timeout_s=10)
    lines = [line for line in job.text().splitlines() if "corpus.jsonl" in line and "error" in line]
    expect(len(lines) == 1 and "SIGKILL" not in job.text(), job.tail())


@case(30)
def ranks_of_different_minds(context):
    """A rank whose variables give it another configuration is refused before the first step, and names the keys."""
    words = ["--config", write_job(context, "minds", steps=3)]
    variables = {1: {"TITAN_TRAINING__STEPS": "4", "TITAN_VALIDATION__FREQ": "7"}}
    jobs = start_plain(context, 2, words, variables=variables)
    codes = [job.wait(20) for job in jobs]
    expect(codes == [3, 2], f"exit codes {codes}, expected 3 and 2\n{jobs[1].tail()}")
    message = (
        "error: rank 1 has another configuration than rank 0: training.steps = 4 (rank 0: training.steps = 3), "
        "validation.freq = 7 (rank 0: validation.freq = 10); start all ranks with the same files, variables and flags"
    )
    expect(jobs[1].errors().strip() == message, jobs[1].errors())
    expect(message in jobs[0].errors(), f"rank 0 does not say why\n{jobs[0].tail()}")
    rows = context.dump("minds") / "metrics.jsonl"
    expect(not rows.exists() or not read_rows(rows), "a step was trained")


@case(60)
def nproc_output(context):
    """What ranks other than 0 say has their name before each line; whole lines, on the stream that they were written to."""
    config = write_job(context, "named", steps=10000)
    job = start(context, 1, ["--nproc", "3", "--config", config], "none")
    metrics = context.dump("named") / "metrics.jsonl"
    wait_until(lambda: metrics.exists() and len(read_rows(metrics)) > 2, 30, "no step")
    victim = next(pid for pid, env in ranks_by_pid(context, job).items() if env.get("RANK") == "2")
    kill(victim, signal.SIGKILL)
    code = job.wait(20)
    expect(code != 0, "a killed rank is no success")
    lines = job.errors().splitlines()
    named = [line for line in lines if line.startswith("[rank1] titan-train: rank 1: stops")]
    expect(len(named) == 1, f"rank 1's reason is not named once:\n{job.tail()}")
    expect(any(line.startswith("titan-train: rank 0: stops") for line in lines), f"rank 0 has the terminal\n{job.tail()}")
    expect(json.dumps("[rank0]") not in job.text() and "[rank0]" not in job.text(), "rank 0's lines are plain")
