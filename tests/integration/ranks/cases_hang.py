"""Tests a rank that hangs, or crashes: which rank is named, what is said about it, and what is written to files.

A rank hangs by waiting at a gate that is never opened, so the others' time limit passes however fast the machine is.
"""
import re
import signal

from cases_failure import FOREVER, check_blames, check_reason
from checkpoint_tools import SAVE
from fixtures import write_job
from harness import Gate, at_row, case, expect, faults, kill, read_rows, start, start_plain, stop_process, wait_until

LIMIT = ["--comm.train_timeout_seconds", 8, "--comm.init_timeout_seconds", 300]
AWAY = r"rank 1: has been in {phase} for [0-9.]+ s at step \d+, while ranks 0, 2 wait for it in all_\w+ of \d+.* elements of \w+"

# A phase may reach its own limit a moment before or after the others reach theirs; either one writes the file.
FILE_START = r"^# (rank 1, asked by rank [02], for which a collective failed|this rank has been in data for .*)\n"


def check_hang(context, jobs, name, reason):
    """Checks that all ranks end with code 3 and the same reason, one reports on all, and each has written its file."""
    for rank, job in enumerate(jobs):
        code = job.wait(60)
        expect(code == 3, f"rank {rank} exited with {code}, expected 3\n{job.tail()}")
        check_reason(job.errors(), rf"(?m)^titan-train: rank {rank}: stops: {reason}")
    errors = "".join(job.errors() for job in jobs)
    expect(errors.count("What the ranks do:") == 1, f"the summary is not there once:\n{errors}")
    files = sorted(path.name for path in (context.dump(name) / "comm_traces").iterdir())
    expect(files == ["rank_0", "rank_1", "rank_2"], f"found {files}")


def wait_for_row(context, name, step, jobs):
    """Waits until a step is logged: from the second on, the time limit is that of training."""

    def is_there():
        ended = [job for job in jobs if job.process.poll() is not None]
        expect(not ended, f"ended before step {step}\n{jobs[0].tail()}")
        path = context.dump(name) / "metrics.jsonl"
        return path.exists() and any(row["step"] >= step for row in read_rows(path))

    wait_until(is_there, 60, f"step {step} was not logged")


@case(120)
def hang_in_data(context):
    """A rank without data is named, with its phase and the collective others wait in; its file has the stacks."""
    gate, now = Gate(context, "read"), context.folder / "now"
    env = faults(context, gate.rule(f"rank=1 call=read path=*/corpus.jsonl after={now}"))
    jobs = start_plain(context, 3, ["--config", write_job(context, "data", steps=FOREVER), *LIMIT], variables={1: env})
    wait_for_row(context, "data", 2, jobs)
    now.touch()
    gate.wait(jobs)
    check_hang(context, jobs, "data", AWAY.format(phase="data") + r", no\. \d+ of 'world'$")
    text = (context.dump("data") / "comm_traces/rank_1").read_text()
    check_reason(text, FILE_START + r"# step \d+, in data for ")
    check_reason(text, r"\nworld \d+ all_gather \d+ \d+ bfloat16 \[layers\.1\] step \d+ \(step\) finished ")
    check_reason(text, r"titan::train::Trainer::fetch\(\) \+ 0x\w+ \(libtitan_engine\.so \+ 0x\w+\)")
    others = (context.dump("data") / "comm_traces/rank_0").read_text() + (context.dump("data") / "comm_traces/rank_2").read_text()
    check_reason(others, r"# Where the collective that failed was waited for")


@case(120)
def stop_beside_a_hang(context):
    """Ranks that were asked to stop while one of them hangs say that they could not, and name the one that hangs."""
    gate = Gate(context, "row")
    words = ["--config", write_job(context, "asked", steps=FOREVER), *SAVE, "--comm.train_timeout_seconds", 4, "--comm.init_timeout_seconds", 300]
    jobs = start_plain(context, 2, words, variables={0: faults(context, gate.rule(at_row(3)))})
    gate.wait(jobs)
    for job in jobs:
        kill(job.process.pid, signal.SIGTERM)
    for rank, job in enumerate(jobs):
        code = job.wait(60)
        expect(code == 3, f"rank {rank} exited with {code}, expected 3\n{job.tail()}")
        check_reason(job.errors(), rf"(?m)^titan-train: rank {rank}: stops: rank 0: has been in log ")
        check_reason(job.errors(), rf"(?m)^titan-train: rank {rank}: SIGTERM asked to stop, but step \d+ did not end, .*: this stop saved nothing$")


@case(120, transport=["memory", "sockets"], wide=["sockets"])
def hang_in_a_save(context, transport):
    """The same for a rank that hangs in a save, with ranks that share memory and with Gloo's sockets."""
    gate = Gate(context, "save")
    words = ["--config", write_job(context, "save", steps=FOREVER), *LIMIT, *SAVE, "--checkpoint.interval", 3]
    env = {"TITAN_SHARED_MEMORY": "0"} if transport == "sockets" else {}
    fault = faults(context, gate.rule("rank=1 call=write path=*/checkpoint/step-3.tmp/*"))
    jobs = start_plain(context, 3, words, variables={0: env, 1: {**env, **fault}, 2: env})
    gate.wait(jobs)
    check_hang(context, jobs, "save", AWAY.format(phase="checkpoint"))


@case(180)
def hang_in_a_background_save(context):
    """A rank that hangs in a save in the background is named after the limit of the start, while all wait for that save."""
    for limit_s in (8, 60):  # on a busy machine the start itself may take longer than the first
        name = f"background{limit_s}"
        gate = Gate(context, name)
        is_there = gate.path.with_name(gate.path.name + ".reached").exists
        words = ["--config", write_job(context, name, steps=FOREVER), *SAVE, "--checkpoint.async_mode", "async", "--checkpoint.interval", 2]
        words += ["--comm.init_timeout_seconds", limit_s, "--comm.train_timeout_seconds", 100_000]
        fault = faults(context, gate.rule("rank=1 call=write path=*/checkpoint/step-2.tmp/*"))
        jobs = start_plain(context, 2, words, variables={1: fault})
        wait_until(lambda: is_there() or jobs[0].process.poll() is not None, 90, "no rank came to its save")
        if is_there():
            break
    for rank, job in enumerate(jobs):
        code = job.wait(90)
        expect(code == 3, f"rank {rank} exited with {code}, expected 3\n{job.tail()}")
        check_reason(job.errors(), rf"(?m)^titan-train: rank {rank}: stops: rank 1: has not come to a collective in the background, while rank 0 waits for it in .* of 'checkpoint'; its own step is ")


@case(120)
def hang_without_files(context):
    """With comm.trace_buf_size = 0 a hang is reported as well, and nothing is written."""
    gate = Gate(context, "row")
    words = ["--config", write_job(context, "bare", steps=FOREVER), *LIMIT, "--comm.trace_buf_size", 0]
    jobs = start_plain(context, 2, words, variables={0: faults(context, gate.rule(at_row(3)))})
    gate.wait(jobs)
    for rank, job in enumerate(jobs):
        code = job.wait(60)
        expect(code == 3, f"rank {rank} exited with {code}, expected 3\n{job.tail()}")
        check_reason(job.errors(), rf"titan-train: rank {rank}: stops: rank 0: has been in log for [0-9.]+ s at step \d+, while rank 1 waits")
    expect(not (context.dump("bare") / "comm_traces").exists(), "a file was written")


@case(120, victim=[0, 1], wide=["1"])
def hang_of_a_stopped_process(context, victim):
    """A rank stopped by SIGSTOP is named, with what the others do and their files, which say what they were in."""
    name = f"stopped{victim}"
    jobs = start_plain(context, 3, ["--config", write_job(context, name, steps=FOREVER), *LIMIT])
    wait_for_row(context, name, 2, jobs)
    stop_process(jobs[victim].process.pid)
    others = [job for rank, job in enumerate(jobs) if rank != victim]
    for job in others:
        code = job.wait(60)
        expect(code == 3, f"exit code {code}, expected 3\n{job.tail()}")
        check_reason(job.errors(), rf"stops: rank {victim}: was stopped: something suspended its process")
    errors = "".join(job.errors() for job in others)
    # Rank 0 serves the store: while it is stopped nobody can be asked.
    expect(errors.count("What the ranks do:") == victim, f"the summary is not there as expected:\n{errors}")
    expect("its collectives and the stacks of its threads are in " in errors, errors)
    files = sorted(path.name for path in (context.dump(name) / "comm_traces").iterdir())
    expect(files == [f"rank_{rank}" for rank in range(3) if rank != victim], f"found {files}")
    for file in files:
        text = (context.dump(name) / "comm_traces" / file).read_text()
        check_reason(text, r"(?m)^# step \d+, in (data|step|optimizer|log|idle) for [0-9.]+ s$")
    kill(jobs[victim].process.pid, signal.SIGKILL)


@case(60)
def slow_save_of_one_rank(context):
    """A phase that takes longer than comm.train_timeout_seconds is reported once, with the stacks, and ends nothing."""
    gate = Gate(context, "save")
    words = ["--config", write_job(context, "slow", steps=4), *SAVE, "--checkpoint.interval", 3, "--comm.train_timeout_seconds", 1]
    job = start(context, 1, words, env=faults(context, gate.rule("call=write path=*/checkpoint/step-3.tmp/*")))
    gate.wait(job)
    file = context.dump("slow") / "comm_traces/rank_0"
    form = rf"this rank has been in checkpoint for \d+ s at step 3, and in no collective; where its threads stand is written to {re.escape(str(file))}\n"
    wait_until(lambda: re.search(form, job.text()), 60, f"nothing is said of it\n{job.tail()}")
    wait_until(file.exists, 60, "no file of stacks")
    gate.open()
    expect(job.wait() == 0, job.tail())
    expect(len(re.findall(form, job.text())) == 1, job.tail())
    check_reason(file.read_text(), r"titan::checkpoint::Checkpointer::\w+")


@case(60, victim=[0, 1])
def crashed_rank(context, victim):
    """A rank that a fatal signal ends says where it was; the others name it and the signal."""
    gate = Gate(context, "third-row")
    words = ["--config", write_job(context, "crash", steps=FOREVER)]
    jobs = start_plain(context, 2, words, variables={0: faults(context, gate.rule(at_row(3)))})
    gate.wait(jobs[0])
    kill(jobs[victim].process.pid, signal.SIGSEGV)
    codes = [job.wait() for job in jobs]
    expect(codes[victim] == -signal.SIGSEGV and codes[1 - victim] == 3, f"exit codes {codes}\n{jobs[victim].tail()}")
    check_blames(jobs[1 - victim].errors(), 1 - victim, victim)
    check_reason(jobs[1 - victim].errors(), rf"stops: rank {victim}: ended by SIGSEGV in step \d+; its standard error has the stack")
    said = jobs[victim].errors()
    check_reason(said, rf"(?m)^titan-train: rank {victim}: ended by SIGSEGV in step \d+ \(\w+\); the stack of its thread \d+")
    check_reason(said, r"(?m)^  #\d+ _ZN5titan\w+ \(/\S+/libtitan_engine\.so 0x[0-9a-f]+\)$")
