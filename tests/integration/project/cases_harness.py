"""Tests the runner's own parts: a check that cannot fail or a child that outlives its case spoils every case."""
import contextlib
import fcntl
import io
import os
import select
import signal
import subprocess
import sys

import cases_parity as parity
import harness
from fixtures import once
from harness import ROOT, VENV, Failure, Gate, Job, case, check_close, check_identical, expect, is_alive, processes_marked
from oracle import VARIANTS, answer, ask, run_reference

SLEEP = [sys.executable, "-c", "import time; time.sleep(100000)"]
# A reference whose rank 1 ends badly, as its first argument says, as many times as its second argument says. "late":
# it crashes, and is seen to end after rank 0, which raised.
BAD_REFERENCE = f"""\
import os, pathlib, signal, sys
sys.path.insert(0, {str(harness.REFERENCE)!r})
import torch.distributed as dist
from forked import run_ranks, wait_for

def end_badly(how, times):
    ends = pathlib.Path(__file__ + ".ends")
    before = len(ends.read_text()) if ends.exists() else 0
    if dist.get_rank() == 0 or before == times:
        return dist.barrier()
    ends.write_text("x" * (before + 1))
    if how == "raises":
        raise ValueError("an answer")
    os.kill(os.getpid(), signal.Signals[how])

if sys.argv[1] == "late":
    pids = [os.fork() or os._exit(1), os.fork() or os.abort()]
    for pid in pids:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    wait_for(pids)
run_ranks(2, end_badly, sys.argv[1], int(sys.argv[2]))
"""


def fails(function, *arguments):
    try:
        function(*arguments)
    except Failure:
        return True
    return False


@case(30, processors=1)
def harness_comparisons(_context):
    """check_close and check_identical accept what they should, and nothing else."""
    rows = [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}]
    near = [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.000009}]
    far = [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.00002}]
    nan = [{"step": 1, "loss": 2.0}, {"step": 2, "loss": float("nan")}]
    check_close(near, rows, ["loss"], 1e-5, "near")
    for other in (far, nan, rows[:1], []):
        expect(fails(check_close, other, rows, ["loss"], 1e-5, "other"), f"accepted {other}")
    table, other_text = {1: {"loss": "2.0"}}, {1: {"loss": "2.00"}}
    check_identical(table, table, ["loss"], "same")
    for other in (other_text, {2: {"loss": "2.0"}}, {}, {1: {}}):
        expect(fails(check_identical, other, table, ["loss"], "other"), f"accepted {other}")


@case(30, processors=1)
def harness_ends_orphans(context):
    """A grandchild in a session of its own, whose parent is gone, is found and ended."""
    parent = f"import subprocess; subprocess.Popen({SLEEP!r}, start_new_session=True)"
    job = Job([sys.executable, "-c", parent], context.folder, "orphan")
    expect(job.process.wait(10) == 0, "the parent failed")
    pids = processes_marked(job.mark)
    expect(len(pids) == 1, f"found {pids}")
    job.end()
    harness.wait_until(lambda: not is_alive(pids[0]), 5, "the orphan is still alive")


@case(30, processors=1)
def harness_time_limit(context):
    """A job that does not end is ended at the limit of its wait, and the case fails."""
    job = Job(SLEEP, context.folder, "sleeper")
    expect(fails(job.wait, 0.1), "waiting for a job without end did not fail")
    expect(not processes_marked(job.mark), "the job is still alive")


@case(30, processors=1)
def harness_late_cases(context):
    """A case's jobs are ended at its limit, and it fails only if that makes it fail. A late pass is a pass."""
    from run import time_limit  # here, because run imports this file

    job = Job(SLEEP, context.folder, "sleeper")

    def late(then):
        limit = time_limit(0)
        with limit:
            limit.timer.join()
            then()

    late(lambda: None)
    expect(not processes_marked(job.mark), "the job is still alive")
    try:
        late(lambda: expect(job.wait() == 0, "the job was ended"))
    except Failure as failure:
        expect(str(failure) == "took longer than 0 s: the job was ended", f"the failure says: {failure}")
    else:
        expect(False, "a late case that failed has passed")


@case(30, processors=1)
def harness_gates(context):
    """A gate that is never reached is a failure: at once if the job has ended, else at the limit."""
    for command, text in ((["true"], "ended before gate-never was reached"), (SLEEP, "gate-never was not reached")):
        job = Job(command, context.folder, "job")
        try:
            Gate(context, "never").wait(job, 0.1)
        except Failure as failure:
            expect(text in str(failure), f"the failure says: {failure}")
        else:
            expect(False, f"{command} reached a gate")


@case(30, processors=1)
def harness_once(context):
    """A folder is made once for each key; a new key replaces the old one's folder, and no other."""
    made = []

    def ask_for(name, key):
        folder = once(context.folder, name, key, lambda new: made.append((name, key)) or (new / "file").touch())
        expect((folder / "file").exists(), f"{folder} is not complete")

    for name, key in (("small", "1"), ("small-wide", "1"), ("small", "1"), ("small", "2"), ("small-wide", "1"), ("small", "2")):
        ask_for(name, key)
    expect(made == [("small", "1"), ("small-wide", "1"), ("small", "2")], f"made were {made}")
    left = sorted(path.name for path in context.folder.glob("small*"))
    expect(left == ["small-2", "small-wide-1"], f"left are {left}")


@case(60, tier="wide")
def harness_reference_crashes(context):
    """A crash of PyTorch is reported and retried; a second one fails, as does a rank that raises or is killed."""
    script = context.folder / "bad_reference.py"
    ends = context.folder / "bad_reference.py.ends"
    script.write_text(BAD_REFERENCE)

    def run(how, times):
        ends.unlink(missing_ok=True)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            failed = fails(run_reference, context, "oracle", [script, how, times])
        return failed, len(ends.read_text()), said.getvalue()

    failed, times, said = run("SIGABRT", 1)
    expect(not failed and times == 1, f"one crash: failed {failed}, {times} crashes")
    expect(said.startswith("FLAKY oracle: PyTorch itself died of SIGABRT, computed again"), f"one crash says: {said}")
    expect("bad_reference.py" in said and "rank 1 ended with -6" in said, f"where it crashed is not said: {said}")
    job = Job([VENV / "python", script, "late"], context.folder, "late")
    expect(job.wait() == 128 + signal.SIGABRT, f"a crash that was seen late: {job.tail()}")
    expect("rank 1 ended with -6" in job.text(), f"the rank that crashed is not named: {job.tail()}")
    for how, tries in (("SIGSEGV", 2), ("SIGKILL", 1), ("raises", 1)):
        failed, times, said = run(how, 5)
        expect(failed and times == tries, f"{how}: failed {failed}, tried {times} times: {said}")


@case(60, processors=1)
def harness_forks(_context):
    """A case in a fork of the server has its caller's outputs and exit code, and is killed when its caller is."""
    runner, server = (ROOT / "tests/integration" / name for name in ("run.py", "case_server.py"))
    plain, forked = (subprocess.run([sys.executable, each, "--list"], capture_output=True, text=True) for each in (runner, server))
    expect(forked.returncode == 0 and forked.stdout == plain.stdout, f"{forked.returncode}: {forked.stdout}\n{forked.stderr}")
    unknown = subprocess.run([sys.executable, server, "no_such_case"], capture_output=True, text=True)
    expect(unknown.returncode == 1 and "no case is called 'no_such_case'" in unknown.stderr, f"{unknown.returncode}: {unknown.stderr}")
    reads, writes = os.pipe()
    fcntl.fcntl(writes, fcntl.F_SETPIPE_SZ, 4096)  # less than the list: the fork waits for a reader
    caller = subprocess.Popen([sys.executable, server, "--list"], stdout=writes)
    os.close(writes)
    os.read(reads, 1)
    caller.kill()
    caller.wait()
    ends = select.poll()
    ends.register(reads, select.POLLHUP)
    expect(ends.poll(1000 * 30 * harness.TIME_SCALE), "the fork outlives its caller")


ask(2, "fp32, plain attention", parity.FP32, parity.STEPS, arithmetic=VARIANTS["plain attention"])
ask(2, "fp32, decay 0.11", [*parity.FP32, "--optimizer.weight_decay", "0.11"], parity.STEPS)


@case(60)
def reference_rounding(context):
    """The parity bounds are fair: another attention kernel stays inside them, another weight decay does not."""
    base, other, wrong = (answer(context, 2, name).rows for name in ("fp32", "fp32, plain attention", "fp32, decay 0.11"))
    check_close(other, base, parity.KEYS, parity.FP32_TOLERANCE / 2, "fp32, plain attention")
    expect(fails(check_close, wrong, base, parity.KEYS, parity.FP32_TOLERANCE, "decay"), "another weight decay passed")


@case(60, processors=1)
def reference_rounding_bf16(context):
    """The bound of the bf16 parity case tells a run that ignored mixed_precision_param from one that did not."""
    base, tolerance = parity.bf16_tolerance(context, 1)
    wrong = answer(context, 1, "fp32").rows
    expect(fails(check_close, wrong, base, parity.KEYS, tolerance, "fp32"), "an fp32 run passed as a bf16 run")
