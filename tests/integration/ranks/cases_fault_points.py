"""Tests faults at a collective of one rank: which reason is given, with which codes, and what is left."""
import signal

from cases_failure import check_reason
from checkpoint_tools import SAVE, check_intact
from fixtures import write_job
from harness import Gate, at_row, case, expect, faults, kill, start_plain

HANG_S, NO_LIMIT_S = 4, 100_000  # where nothing hangs, a busy machine must end nothing
SOCKETS = {"TITAN_SHARED_MEMORY": "0"}

# Both ranks find it, each with its own words; the one that hears of it first ends with 3.
EITHER = {(1, 1), (1, 3), (3, 1)}
# Over sockets Gloo's own thread ends a rank that gets more bytes than it waits for.
ANY = {(one, other) for one in (3, -signal.SIGABRT) for other in (3, -signal.SIGABRT)}
SIZES = r"disagrees on no\. |rank \d: an exception that nobody caught: .*Received data size doesn't match expected size"
DIFFERS = r"ranks disagree on their collective number \d+: rank \d .*"
# Maps a fault at a collective of rank 1 to: what starts it, the exit codes of ranks 0 and 1, and what both or rank 1 say.
COLLECTIVES = {
    "kill": ("at=all_gather n=9 do=kill", {}, (3, -9), "rank 1: ended without reporting an error"),
    "hang": ("at=reduce_scatter n=9 do=hang", SOCKETS, (3, 3), "rank 1: has been in step for .* while rank 0 waits for it in reduce_scatter"),
    "order": ("at=all_reduce n=9 do=extra", {}, EITHER, DIFFERS),
    "order_sockets": ("at=all_reduce n=9 do=extra", SOCKETS, ANY, SIZES),
    "shape": ("at=reduce_scatter n=9 do=shape", {}, EITHER, DIFFERS),
    "shape_sockets": ("at=reduce_scatter n=9 do=shape", SOCKETS, ANY, SIZES),
    "dtype": ("at=all_gather n=9 do=dtype", {}, EITHER, DIFFERS),
    "memory": ("at=reduce_scatter n=9 do=bad_alloc", {}, (3, 1), r"rank 1: out of memory in step \d+: .* --dry-run says what takes how much"),
    "device": ("at=all_gather n=9 do=device_error", {}, (3, 1), r"rank 1: CUDA error: an illegal memory access was encountered \(device cpu of \S+\)\. .*Start again from the last checkpoint"),
}


@case(90, fault=list(COLLECTIVES), wide=["order_sockets", "shape_sockets"])
def fault_at_a_collective(context, fault):
    """A fault at a collective of one rank ends both within the run, with the code and the reason that it has, and leaves
    the checkpoint before it whole."""
    rule, variables, codes, reason = COLLECTIVES[fault]
    words = ["--config", write_job(context, "run", steps=30), *SAVE, "--checkpoint.interval", 1]
    words += ["--comm.init_timeout_seconds", NO_LIMIT_S, "--comm.train_timeout_seconds", HANG_S if variables else NO_LIMIT_S]
    point = {**variables, "TITAN_FAULT_POINT": f"rank=1 {rule}"}
    jobs = start_plain(context, 2, words, variables={0: point, 1: point})
    found = tuple(job.wait() for job in jobs)
    text = jobs[0].errors() + jobs[1].errors()
    expect(found in codes if isinstance(codes, set) else found == codes, f"exit codes {found}, expected {codes}\n{text}")
    check_reason(text, reason)
    for path in (context.dump("run") / "checkpoint").glob("step-*[0-9]"):
        check_intact(path)


@case(60)
def calls_of_handlers_match_no_rule(context):
    """A signal may come while its thread is in malloc(): what its handler writes is not looked up among the rules, which
    would allocate, and wait for ever for a lock that the thread itself holds."""
    gate, logged, errors = Gate(context, "row"), context.folder / "logged", context.folder / "logs/rank0.err"
    env = faults(context, gate.rule(at_row(2)), f"call=write path={errors} do=log:{logged}", f"call=write path=*metrics.jsonl do=log:{logged}")
    (job,) = start_plain(context, 1, ["--config", write_job(context, "asked", steps=30), *SAVE], variables={0: env})
    gate.wait(job)
    kill(job.process.pid, signal.SIGTERM)
    gate.wait(job, happened="signalled")
    gate.open()
    code = job.wait()
    expect(code == 75 and "SIGTERM" in errors.read_text(), f"exit code {code}, expected 75\n{job.tail()}")
    calls = set(logged.read_text().splitlines())
    expect(calls == {f"write {context.dump('asked') / 'metrics.jsonl'}"}, f"found {sorted(calls)}")
