"""Tests the loss of a rank while others wait in places that nothing wakes; and signals before the first step."""
import os
import pathlib
import re
import signal

from cases_failure import FOREVER, check_blames, check_reason
from checkpoint_tools import SAVE
from fixtures import write_job
from harness import (
    Gate, at_row, case, environment_of, expect, faults, free_port, kill, run, start, start_plain, stop_process,
    wait_until,
)  # fmt: skip


@case(60)
def peer_lost_while_a_save_stands(context):
    """A rank whose background save hangs still ends when its peer dies: nothing waits for that save."""
    save = Gate(context, "save")
    # One save, which the steps after it do not wait for.
    words = ["--config", write_job(context, "lost", steps=FOREVER), *SAVE, "--checkpoint.async_mode", "async"]
    words += ["--checkpoint.interval", FOREVER, "--checkpoint.enable_first_step_checkpoint"]
    env = faults(context, save.rule("rank=0 call=write path=*/checkpoint/step-1.tmp/*"))
    jobs = start_plain(context, 2, words, variables={0: env})
    save.wait(jobs)
    kill(jobs[1].process.pid, signal.SIGKILL)
    code = jobs[0].wait()
    expect(code == 3, f"rank 0 exited with {code}, expected 3\n{jobs[0].tail()}")
    check_blames(jobs[0].errors(), 0, 1)


@case(60)
def peer_lost_beside_one_that_stands(context):
    """If one rank was killed and another is stopped for a while, the killed one is named."""
    step = Gate(context, "step")
    env = faults(context, step.rule(at_row(3)))
    jobs = start_plain(context, 3, ["--config", write_job(context, "lost", steps=FOREVER)], variables={0: env})
    step.wait(jobs)
    stop_process(jobs[1].process.pid)
    kill(jobs[2].process.pid, signal.SIGKILL)
    step.open()
    code = jobs[0].wait()
    expect(code == 3, f"rank 0 exited with {code}, expected 3\n{jobs[0].tail()}")
    check_blames(jobs[0].errors(), 0, 2)
    kill(jobs[1].process.pid, signal.SIGCONT)
    code = jobs[1].wait()
    expect(code == 3, f"rank 1 exited with {code}, expected 3\n{jobs[1].tail()}")


def wait_for_handlers(job):
    """Waits until the program has its signal handlers; before that SIGTERM ends it like any program."""

    def has_handlers():
        caught = re.search(r"^SigCgt:\s*([0-9a-f]+)", pathlib.Path(f"/proc/{job.process.pid}/status").read_text(), re.MULTILINE)
        return int(caught[1], 16) >> (signal.SIGTERM - 1) & 1

    wait_until(has_handlers, 20, "no signal handlers")


@case(60, number=["SIGTERM", "SIGINT"])
def signal_before_ranks_meet(context, number):
    """A rank that waits for the others ends at once when asked to, and says that nothing was saved."""
    words = ["--config", write_job(context, "alone"), *SAVE]
    for rank in (0, 1):  # rank 0 waits for rank 1 to connect, rank 1 for rank 0 to listen; the other one never comes
        env = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        job = start(context, 1, words, name=f"rank{rank}", env={name: str(value) for name, value in env.items()})
        wait_for_handlers(job)
        kill(job.process.pid, getattr(signal, number))
        code = job.wait()
        expect(code == 128 + getattr(signal, number), f"rank {rank} exited with {code}\n{job.tail()}")
        said = "asked to stop before the first step; nothing was saved" in job.errors()
        expect(said == (rank == 0), f"rank {rank} says so: {said}\n{job.tail()}")
    expect(not context.dump("alone").exists(), "something was written")


@case(60, number=["SIGTERM", "SIGINT"])
def signal_to_nproc_before_the_first_step(context, number):
    """--nproc passes on a signal before the first step: all ranks end, with its code and no message of loss."""
    lock = Gate(context, "lock")
    env = faults(context, lock.rule("rank=0 call=open path=*/.run.lock"))
    job = start(context, 2, ["--config", write_job(context, "early"), *SAVE], env=env)
    lock.wait(job)
    ranks = job.ranks(context.program)
    expect(sorted(ranks) == [0, 1], f"found ranks {sorted(ranks)}")
    kill(job.process.pid, getattr(signal, number))
    code = job.wait()
    expect(code == 128 + getattr(signal, number), f"exit code {code}\n{job.tail()}")
    check_reason(job.errors(), "asked to stop before the first step; nothing was saved")
    expect("was ended by" not in job.errors(), job.tail())
    expect(not list(context.dump("early").glob("*.jsonl")), "a step was trained")


@case(60)
def nproc_beyond_the_machine(context):
    """More ranks than cores and memory allow are refused by name and number; --oversubscribe starts them."""
    words = ["--config", write_job(context, "many", steps=1), "--lr_scheduler.warmup_steps", 1]
    refused = run(context, 1, ["--nproc", 100_000, *words], name="refused", exit_code=2)
    pattern = r"^error: --nproc 100000: this machine has (\d+) cores and [\d.]+ GiB of free memory, enough for \d+ ranks .* or add --oversubscribe$"
    found = re.search(pattern, refused.errors(), re.MULTILINE)
    expect(found, refused.tail())
    one_more = ["--nproc", 4 * int(found[1]) + 1]
    refused = run(context, 1, [*one_more, *words], name="one_more", exit_code=2)
    expect("or add --oversubscribe" in refused.errors(), refused.tail())
    refused = run(context, 1, ["--oversubscribe", *words], name="without", exit_code=2)
    expect("--oversubscribe goes with --nproc N" in refused.errors(), refused.tail())
    # They are started, and refused by what they then find.
    missing = ["--training.dataset_path", "/nonexistent"]
    job = run(context, 1, [*one_more, "--oversubscribe", *words, *missing], name="oversubscribed", exit_code=2)
    expect("/nonexistent" in job.errors() and "--nproc" not in job.errors(), job.tail())


def was_given_a_listening_socket(pid):
    """True if the variable for it is set, and names a socket that listens."""
    number = environment_of(pid).get("TITAN_LISTEN_FD")
    if number is None:
        return False
    inode = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{number}"))
    listening = "0A"  # proc(5), /proc/net/tcp
    sockets = [line.split() for line in pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return inode is not None and any(fields[9] == inode[1] and fields[3] == listening for fields in sockets)


@case(60)
def nproc_listens_before_ranks_start(context):
    """Rank 0 of --nproc gets a socket that listens already, so that nobody can take its port before it is up."""
    step = Gate(context, "step")
    job = start(context, 2, ["--config", write_job(context, "port", steps=3)], env=faults(context, step.rule(at_row(1))))
    step.wait(job)
    pids = job.ranks(context.program)
    expect(sorted(pids) == [0, 1], f"found ranks {sorted(pids)}")
    given = [was_given_a_listening_socket(pids[rank]) for rank in (0, 1)]
    expect(given == [True, False], f"ranks 0 and 1 were given a listening socket: {given}")
    step.open()
    expect(job.wait() == 0, job.tail())
