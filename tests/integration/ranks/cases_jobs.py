"""Tests a job's life: initialization, checkpoints, resuming, stopping on a signal."""
import os
import pathlib
import pty
import re
import signal

from checkpoint_tools import check_intact
from fixtures import write_job
from harness import (
    Gate, at_row, case, check_identical, expect, faults, import_reference, kill, read_rows, rows_by_step, run, start, stop_process,
    wait_until,
)  # fmt: skip

EQUAL_KEYS = ("loss", "max_loss", "grad_norm", "lr", "tokens_seen")
FULL_CHECKPOINTS = ["--checkpoint.enable", "--checkpoint.no-last_save_model_only"]


@case(60, ranks=[1, 2, 4], wide=["4"])
def resume(context, ranks):
    """40 steps in one run, and 20 steps, a new process, 20 more, give the same numbers to the last digit."""
    straight = write_job(context, "straight", steps=40)
    broken = write_job(context, "broken", steps=40)
    run(context, ranks, ["--config", straight], name="straight")
    save = FULL_CHECKPOINTS + ["--checkpoint.interval", "20"]
    # The schedule's length follows training.steps unless it is given.
    first_half = ["--training.steps", "20", "--lr_scheduler.total_steps", "40"]
    run(context, ranks, ["--config", broken, *save, *first_half], name="first_half")
    first = rows_by_step(context.dump("broken") / "metrics.jsonl", exact=True)
    expect(max(first) == 20, f"the first half ended at step {max(first)}")
    run(context, ranks, ["--config", broken, *save, "--lr_scheduler.total_steps", "40"], name="second_half")
    resumed = rows_by_step(context.dump("broken") / "metrics.jsonl", exact=True)
    trained = [int(row["step"]) for row in read_rows(context.dump("broken") / "metrics.jsonl", exact=True)]
    # The rows are appended to the first half's or not; a second half from step 1 on trained 20 steps too many.
    expect(trained[-20:] == list(range(21, 41)) and len(trained) <= 40, f"the rows after resuming are {trained}")
    check_identical(
        {**first, **resumed}, rows_by_step(context.dump("straight") / "metrics.jsonl", exact=True), EQUAL_KEYS, "resume"
    )


STOP_STEPS = 12


class Stopped:
    """A job of 12 steps that a signal stops early, and that is resumed."""

    def __init__(self, context, ranks, launcher=None, save=("--checkpoint.interval", 100000)):
        self.context, self.ranks, self.launcher = context, ranks, launcher
        self.words = ["--config", write_job(context, "stopped", steps=STOP_STEPS), *FULL_CHECKPOINTS, *save]
        self.metrics = context.dump("stopped") / "metrics.jsonl"
        self.gate = Gate(context, "stop")

    def start(self, where, terminal=None):
        env = faults(self.context, self.gate.rule(where))
        self.job = start(self.context, self.ranks, self.words, self.launcher, "stopped", env, terminal)
        self.gate.wait(self.job)

    def check(self, last, kept):
        """Checks that it ended after step `last` with the code that asks for a restart, that the folder holds the
        checkpoints of the steps `kept`, and that the next start gives the rows of a job that was never stopped."""
        code = self.job.wait()
        expect(code == 75, f"exit code {code} after a signal, expected 75\n{self.job.tail()}")
        stopped = rows_by_step(self.metrics, exact=True)
        expect(max(stopped) == last, f"stopped after step {max(stopped)}, expected {last}")
        checkpoints = self.context.dump("stopped") / "checkpoint"
        saved = sorted(path.name for path in checkpoints.iterdir())
        expect(saved == [f"step-{step}" for step in kept], f"after step {last} the checkpoints are {saved}, expected {kept}")
        for step in kept:
            check_intact(checkpoints / f"step-{step}")
        job = run(self.context, self.ranks, self.words, self.launcher, "resumed")
        expect(f"from {checkpoints}/step-{last}\n" in job.text(), f"it did not go on from step {last}\n{job.tail()}")
        run(self.context, self.ranks, ["--config", write_job(self.context, "straight", steps=STOP_STEPS)], name="straight")
        straight = rows_by_step(self.context.dump("straight") / "metrics.jsonl", exact=True)
        check_identical(stopped, {step: straight[step] for step in range(1, last + 1)}, EQUAL_KEYS, "before the signal")
        check_identical(rows_by_step(self.metrics, exact=True), straight, EQUAL_KEYS, "resumed")


@case(60, processors=1, number=["SIGTERM", "SIGINT", "SIGUSR1", "SIGHUP", "SIGXCPU"], quick=["SIGTERM"], wide=["SIGINT", "SIGHUP", "SIGXCPU"])
def resume_after(context, number):
    """A signal is answered at once; the job saves at the next step boundary and exits 75; the resumed job ends like an
    undisturbed one."""
    stopped = Stopped(context, 1)
    stopped.start(at_row(6))
    kill(stopped.job.process.pid, getattr(signal, number))
    answer = f"titan-train: {number}: finishing this step and saving; once more ends at once, without saving\n"
    wait_until(lambda: answer in stopped.job.errors(), 30, "the signal was not answered before the step was over")
    stopped.gate.open()
    # Step 7 saw the signal when it began.
    stopped.check(7, [7])


def is_pending(pid, number):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^ShdPnd:\s*(\w+)$", text, re.MULTILINE)[1], 16) >> (number - 1) & 1


@case(60, launcher=["nproc", "mpirun"], wide=["nproc"])
def resume_after_sigterm_under(context, launcher):
    """SIGTERM to --nproc's launcher, or to mpirun's ranks (mpirun passes on their own exit code), does the same."""
    stopped = Stopped(context, 2, launcher)
    stopped.start(at_row(6))
    if launcher == "mpirun":
        stopped.gate.signal(context, stopped.job)
    else:
        # A stopped process shows the signals sent to it, so no rank continues before the launcher has passed it on.
        pids = list(stopped.job.ranks(context.program).values())
        for pid in pids:
            stop_process(pid)
        kill(stopped.job.process.pid, signal.SIGTERM)
        wait_until(lambda: all(is_pending(pid, signal.SIGTERM) for pid in pids), 30, "the launcher did not pass SIGTERM on")
        for pid in pids:
            kill(pid, signal.SIGCONT)
        # Any thread may take the signal, and the one at the gate could be in step 7 before its handler has run.
        stopped.gate.wait(stopped.job, happened="signalled")
        stopped.gate.open()
    stopped.check(7, [7])


@case(60)
def closed_terminal(context):
    """After the terminal over two ranks is closed, the step is saved, and the same command resumes."""
    stopped = Stopped(context, 2)
    terminal, inside = pty.openpty()
    stopped.start(at_row(6), terminal=inside)
    os.close(inside)
    os.close(terminal)  # the system sends SIGHUP to the launcher and the ranks
    stopped.gate.wait(stopped.job, happened="signalled")
    stopped.gate.open()
    stopped.check(7, [7])


@case(60, mode=["disabled", "async"], wide=["disabled"])
def sigterm_during_a_save(context, mode):
    """SIGTERM during the save of step 6: that save is completed, and another one is made at the end."""
    save = ["--checkpoint.interval", 1, "--checkpoint.keep_latest_k", 2, "--checkpoint.async_mode", mode]
    stopped = Stopped(context, 2, save=save)
    folder = context.dump("stopped") / "checkpoint/step-6.tmp"
    stopped.start(f"rank=0 call=fsync path={folder}/.metadata.tmp")
    last = 7
    if mode == "async":
        # Step 7 is trained during the save, and its own save waits for that one: step 8 is the first to see the signal.
        wait_until(lambda: max(rows_by_step(stopped.metrics)) == 7, 30, "no step was trained beside the save")
        last = 8
    expect(folder.exists(), "the save was over before the signal")
    stopped.gate.signal(context, stopped.job)
    stopped.check(last, [last - 1, last])


@case(30, processors=1)
def stop_asked_twice(context):
    """A second SIGTERM ends the job at once and without saving, as it says."""
    stopped = Stopped(context, 1)
    stopped.start(at_row(6))
    job = stopped.job

    def ended():
        # Signals of the first 0.2 s count as one.
        kill(job.process.pid, signal.SIGTERM)
        return job.process.poll() is not None

    wait_until(ended, 30, "it goes on after several SIGTERM")
    code = job.wait()
    expect(code == 128 + signal.SIGTERM, f"exit code {code}, expected {128 + signal.SIGTERM}\n{job.tail()}")
    expect("exiting now, without saving" in job.text(), job.tail())
    expect(not list(context.dump("stopped").glob("checkpoint/*")), "something was saved")


@case(60, ranks=[1, 2, 4])
def init(context, ranks):
    """The seed checkpoint has, on any number of ranks, the bits of a one-rank TorchTitan initialization."""
    config = write_job(context, "seed")
    run(context, ranks, ["--config", config, "--checkpoint.enable", "--checkpoint.create_seed_checkpoint"])
    init_weights, job_file = import_reference()
    expected = init_weights.initial_weights(job_file.load_job(config))
    found = init_weights.load_weights(expected, context.dump("seed") / "checkpoint/step-0")
    lines = init_weights.differences(expected, found)
    expect(not lines, "weights differ from the reference:\n" + "\n".join(lines))
