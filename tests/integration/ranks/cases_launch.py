"""Tests the ways to start ranks: docs/launch.md's lines, restarts by torchrun, and what --nproc prints."""
import pathlib
import re
import shlex
import shutil
import signal
import subprocess

from cases_failure import check_blames
from fixtures import write_job
from harness import (
    ROOT, VENV, Gate, Job, at_row, case, check_identical, expect, faults, free_port, kill, processes_marked,
    read_rows, relative_distance, rows_by_step, run, start, start_plain, wait_until,
)  # fmt: skip

FULL = ["--checkpoint.enable", "--checkpoint.no-last_save_model_only"]
KEYS = ("loss", "max_loss", "grad_norm", "lr", "tokens_seen")


def commands_of(path):
    """Returns the indented commands of a Markdown file, continuation lines joined, comments dropped."""
    text = re.sub(r"\\\n\s+", " ", path.read_text())
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    return [line.partition("  #")[0].rstrip() for line in lines]


@case(120)
def launch_lines(context):
    """Every line of docs/launch.md that this machine can run trains; the others are Slurm's or for several hosts."""
    config = write_job(context, "launched", steps=2)
    done = []
    for line in commands_of(ROOT / "docs/launch.md"):
        if not re.match(r"(titan-train|torchrun|mpirun) ", line) or "HOST" in line or "srun" in line:
            continue
        words = shlex.split(line.replace("job.toml", str(config)))
        words = [str(context.program) if word == "titan-train" else word for word in words]
        if words[0] == "torchrun":
            words[:1] = [str(VENV / "torchrun"), "--master-port", str(free_port())]
        if "mpirun" in words:
            after = words.index("mpirun") + 1
            words[after:after] = ["--allow-run-as-root", "--oversubscribe"]
        name = f"line{len(done)}"
        job = Job([*words, "--job.dump_folder", context.dump(name)], context.folder / "logs", name)
        code = job.wait()
        expect(code == 0, f"{line}: exit code {code}\n{job.tail()}")
        expect(len(read_rows(context.dump(name) / "metrics.jsonl")) == 2, f"{line}: not two steps")
        done.append(words[0])
    expect(len(done) >= 4 and len(set(done)) == 3, f"too few lines were found: {done}")


def torchrun(context, words, name, *options, faults=None):
    command = [VENV / "torchrun", "--no-python", "--max-restarts", "3", *options, context.program, *words]
    return Job(command, context.folder / "logs", name, {"TORCHELASTIC_ERROR_FILE": "", **(faults or {})})


def resumed_from(job):
    """Returns the steps whose checkpoints a job's rank 0 has started from, one after another."""
    return [int(step) for step in re.findall(r"Loading the full state from \S*step-(\d+)", job.text())]


@case(120)
def elastic_max_restarts(context):
    """Ranks are killed twice under torchrun --max-restarts: the job restarts, with an undisturbed run's losses."""
    steps = 24
    run(context, 2, ["--config", write_job(context, "straight", steps=steps)], name="straight")
    words = ["--config", write_job(context, "killed", steps=steps), *FULL, "--checkpoint.interval", "5"]
    # Rank 0 waits at step 8 in its first life, and at step 16 in its second, which begins with step 6.
    gates = [Gate(context, "first-life"), Gate(context, "second-life")]
    rules = [gate.rule(at_row(row)) for gate, row in zip(gates, (8, 11))]
    options = ["--nproc-per-node", "2", "--master-port", free_port(), "--monitor-interval", "0.2"]
    job = torchrun(context, words, "elastic", *options, faults=faults(context, *rules))
    for victim, gate in enumerate(gates):
        gate.wait(job)
        kill(job.ranks(context.program)[victim], signal.SIGKILL)
        gate.open()
    code = job.wait()
    expect(code == 0, f"exit code {code}\n{job.tail(30)}")
    expect(resumed_from(job) == [5, 15], f"resumed from {resumed_from(job)}, expected 5 and 15\n{job.tail(30)}")
    found, straight = (rows_by_step(context.dump(name) / "metrics.jsonl", exact=True) for name in ("killed", "straight"))
    check_identical(found, straight, KEYS, "restarted by torchrun")


# In the long tier: torchrun's survivor waits for last_call_timeout before it restarts without the lost agent, and the
# same limit must be long enough for two agents to meet at the beginning, however busy the machine is.
@case(240, tier="long")
def elastic_smaller_world(context):
    """One of two torchrun agents dies; the other continues alone, at one rank, with the same global batches."""
    steps = 24
    batch = ["--training.dataset", "jsonl", "--training.global_batch_size", "4", "--training.local_batch_size", "1"]
    batch += ["--training.mixed_precision_param", "float32"]
    run(context, 2, ["--config", write_job(context, "straight", steps=steps), *batch], name="straight")
    words = ["--config", write_job(context, "shrunk", steps=steps), *batch, *FULL, "--checkpoint.interval", "5"]
    gate = Gate(context, "both")
    fault = faults(context, gate.rule(at_row(8)))
    options = ["--nnodes", "1:2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-id", "shrunk", "--monitor-interval", "0.2"]
    options += ["--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--local-addr", "127.0.0.1"]
    # The one that holds the rendezvous must not be the one that dies.
    conf = "last_call_timeout=60,join_timeout=600,keep_alive_interval=5,keep_alive_max_attempt=3"
    first = torchrun(context, words, "first", *options, "--rdzv-conf", f"{conf},is_host=true", faults=fault)
    second = torchrun(context, words, "second", *options, "--rdzv-conf", f"{conf},is_host=false", faults=fault)
    gate.wait(first)
    # Kills the agent before its rank, which the agent would restart.
    for pid in (second.process.pid, *processes_marked(second.mark)):
        kill(pid, signal.SIGKILL)
    gate.open()
    code = first.wait(180)
    expect(code == 0, f"exit code {code}\n{first.tail(30)}")
    expect(resumed_from(first) == [5], f"resumed from {resumed_from(first)}, expected 5\n{first.tail(30)}")
    text = first.text() + second.text()  # rank 0 was at either
    expect("2 ranks" in text and "1 ranks" in text, f"the world did not shrink\n{first.tail(30)}")
    shrunk, straight = (rows_by_step(context.dump(name) / "metrics.jsonl") for name in ("shrunk", "straight"))
    expect(sorted(shrunk) == list(range(1, steps + 1)), f"steps {sorted(shrunk)}")
    # As in elastic_resize: the same sums in another grouping.
    for step in straight:
        distance = relative_distance(shrunk[step]["loss"], straight[step]["loss"])
        expect(distance < 1e-4, f"step {step}: loss {shrunk[step]['loss']}, undisturbed {straight[step]['loss']}")


@case(30)
def nproc_missing_data(context):
    """A file that no rank has gives one message and exit code 2: no rank waits for one that is gone."""
    words = ["--config", write_job(context, "missing"), "--training.dataset_path", "/nonexistent/corpus.jsonl"]
    job = run(context, 3, words, exit_code=2)
    lines = [line for line in job.text().splitlines() if "corpus.jsonl" in line and "error" in line]
    expect(len(lines) == 1 and "SIGKILL" not in job.text(), job.tail())


@case(60)
def launcher_loads_no_torch(context):
    """--help, and the launcher of training ranks, run without torch, which takes a third of a second to load."""
    config = write_job(context, "running", steps=10000)
    job = start(context, 1, ["--nproc", "2", "--config", config], "none")
    metrics = context.dump("running") / "metrics.jsonl"
    wait_until(lambda: metrics.exists() and read_rows(metrics), 30, "no step")
    with_torch = {pid: "libtorch_cpu" in pathlib.Path(f"/proc/{pid}/maps").read_text() for pid in processes_marked(job.mark)}
    expect(with_torch.pop(job.process.pid) is False, "the launcher has torch's libraries")
    expect(len(with_torch) == 2 and all(with_torch.values()), f"ranks and whether they have torch: {with_torch}")
    job.process.terminate()
    job.wait(20)
    # If torch cannot be found, a training run says so in one line.
    alone = context.folder / "alone"
    alone.mkdir()
    shutil.copy(context.program, alone)
    help_of = subprocess.run([alone / "titan-train", "--help"], capture_output=True, text=True)
    expect(help_of.returncode == 0 and "--training.steps" in help_of.stdout + help_of.stderr, f"--help: {help_of}")
    refused = subprocess.run([alone / "titan-train", "--config", config], capture_output=True, text=True)
    line = f"titan-train: there is no {alone}/libtitan_engine.so"
    expect(refused.returncode == 1 and refused.stderr.startswith(line) and refused.stderr.count("\n") == 1, f"{refused}")


@case(30)
def mpirun_output_is_plain(context):
    """mpirun gives ranks a terminal of its own; output in a file still has no colors, bar or carriage returns."""
    config = write_job(context, "plain", steps=3)
    job = start(context, 2, ["--config", config], "mpirun", env={"TERM": "xterm-256color"})
    expect(job.wait() == 0, job.tail())
    found = [byte for byte in (b"\x1b", b"\r\x1b", b"|#") if byte in job.out_path.read_bytes()]
    expect("step:  3" in job.text() and not found, f"{found} in the output\n{job.tail()}")


@case(30)
def ranks_of_different_minds(context):
    """A rank whose variables give it another configuration is refused before the first step, and names the keys."""
    words = ["--config", write_job(context, "minds", steps=3)]
    variables = {1: {"TITAN_TRAINING__STEPS": "4", "TITAN_VALIDATION__FREQ": "7"}}
    jobs = start_plain(context, 2, words, variables=variables)
    codes = [job.wait() for job in jobs]
    expect(codes == [3, 2], f"exit codes {codes}, expected 3 and 2\n{jobs[1].tail()}")
    message = (
        "error: rank 1 has another configuration than rank 0: training.steps = 4 (rank 0: training.steps = 3), "
        "validation.freq = 7 (rank 0: validation.freq = 10); start all ranks with the same files, variables and flags"
    )
    expect(jobs[1].errors().strip() == message, jobs[1].errors())
    expect(message in jobs[0].errors(), f"rank 0 does not say why\n{jobs[0].tail()}")
    rows = context.dump("minds") / "metrics.jsonl"
    expect(not rows.exists() or not read_rows(rows), "a step was trained")


@case(30)
def log_rank(context):
    """The terminal shows the ranks that --log-rank names; the files of all ranks have their output in any case."""
    job = run(context, 2, ["--config", write_job(context, "shown", steps=3), "--log-rank", "1"])
    lines = [line for line in job.text().splitlines() if " step: " in line]
    expect(len(lines) == 3 and all(line.startswith("[rank1] ") for line in lines), job.text())
    for rank in (0, 1):
        text = (context.dump("shown") / f"logs/rank_{rank}.log").read_text()
        expect(text.count(" step: ") == 3, text)
    job = start(context, 2, ["--config", write_job(context, "refused", steps=3), "--log-rank", "0-2"])
    expect(job.wait() == 2 and "--log-rank names rank 2; this run has ranks 0 to 1" in job.errors(), job.tail())


@case(60, quick=True)
def nproc_output(context):
    """Lines of ranks other than 0 begin with their name; they stay complete, on their own stream.

    So each survivor says once why it stops. The launcher's code is that of the rank that was killed.
    """
    gate = Gate(context, "third-row")
    fault = faults(context, gate.rule(at_row(3)))
    job = start(context, 3, ["--config", write_job(context, "named", steps=10000)], env=fault)
    gate.wait(job)
    kill(job.ranks(context.program)[2], signal.SIGKILL)
    ended = "titan-train: rank 2 was ended by SIGKILL"
    wait_until(lambda: ended in job.errors().splitlines(), 20, "the launcher does not say who died")
    gate.open()
    code = job.wait()
    expect(code == 128 + signal.SIGKILL, f"exit code {code}\n{job.tail()}")
    check_blames(job.errors(), 0, 2)
    of_rank_1 = [line.removeprefix("[rank1] ") for line in job.errors().splitlines() if line.startswith("[rank1] ")]
    check_blames("\n".join(of_rank_1), 1, 2)
    expect("[rank0]" not in job.text(), "rank 0's lines are plain")
