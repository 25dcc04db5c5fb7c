"""Tests what a run says and does at limits of the system: threads, open files, a network that does not answer."""
import re
import resource
import signal
import socket

from cases_failure import FOREVER, check_blames, check_reason
from cases_peer_lost import wait_for_handlers
from checkpoint_tools import SAVE, steps_of
from fixtures import ONE_THREAD, write_job
from harness import Gate, Job, at_row, case, expect, faults, kill, read_rows, run, start, start_plain

EAGAIN = 11  # what the system says if it refuses a thread
NO_THREAD = r"Resource temporarily unavailable: no further thread or process can be started here; .*OMP_NUM_THREADS"


def silent_listener():
    """Returns a socket that listens at a port of its own and never answers."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(16)
    return listener


def variables_of_rank_1(port):
    return {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


@case(60, processors=1)
def port_of_a_silent_program(context):
    """A rank whose MASTER_PORT accepts connections and says nothing ends after comm.init_timeout_seconds, and says why."""
    with silent_listener() as listener:
        port = listener.getsockname()[1]
        words = ["--config", write_job(context, "silent"), "--comm.init_timeout_seconds", 1]
        job = start(context, 1, words, env=variables_of_rank_1(port))
        code = job.wait()
    expect(code == 1, f"exit code {code}, expected 1\n{job.tail()}")
    pattern = rf"^titan-train: rank 1: something answers at 127\.0\.0\.1:{port}, but it is not the rendezvous of this run .* Set MASTER_PORT "
    check_reason(job.errors(), "(?m)" + pattern)


@case(60, processors=1)
def signal_at_a_silent_port(context):
    """A rank that waits for the answer of a silent program ends at once when asked to."""
    with silent_listener() as listener:
        job = start(context, 1, ["--config", write_job(context, "silent")], env=variables_of_rank_1(listener.getsockname()[1]))
        wait_for_handlers(job)
        greeted = False
        while not greeted:  # the rank first looks whether somebody listens, and closes that connection
            connection, _ = listener.accept()
            greeted = len(connection.recv(1)) == 1
        kill(job.process.pid, signal.SIGTERM)
        code = job.wait()
        connection.close()
    expect(code == 128 + signal.SIGTERM, f"exit code {code}\n{job.tail()}")


@case(60, processors=1)
def interface_that_is_not_there(context):
    """GLOO_SOCKET_IFNAME with an interface that this machine lacks is refused, with those that it has."""
    job = run(context, 2, ["--config", write_job(context, "interface")], env={"GLOO_SOCKET_IFNAME": "nosuch0"}, exit_code=2)
    check_reason(job.errors(), r"(?m)^environment: GLOO_SOCKET_IFNAME=nosuch0: expected one interface .*, of .*\blo \(127\.0\.0\.1\).*unset it$")
    expect(job.errors().count("nosuch0") == 1, f"it is said more than once\n{job.tail()}")


@case(60, processors=1)
def no_thread_at_the_start(context):
    """A run for which the system has no more threads says which thread it could not start, and which limits there are."""
    words = ["--config", write_job(context, "threads")]
    job = run(context, 1, words, env=faults(context, f"call=thread do=errno:{EAGAIN}"), exit_code=1)
    check_reason(job.errors(), r"(?m)^titan-train: cannot start the thread that watches for slow phases: " + NO_THREAD)
    job = run(context, 2, words, name="ranks", env=faults(context, f"rank=1 call=thread do=errno:{EAGAIN}"), exit_code=1)
    check_reason(job.errors(), r"(?m)^\[rank1\] titan-train: rank 1: cannot start the thread that watches for slow phases: " + NO_THREAD)


@case(60, processors=1)
def no_thread_for_a_save(context):
    """A save in the background, and the load of a checkpoint, make do without threads that the system refuses."""
    now = context.folder / "now"
    words = [*SAVE, "--checkpoint.async_mode", "async", "--checkpoint.interval", 3]
    words += ["--model.args.dim", 128]  # a file of several blocks, which are written on another thread if there is one
    refused = f"call=thread after={now} do=errno:{EAGAIN}"
    env = faults(context, f"{at_row(2)} do=log:{now}", refused)
    job = run(context, 1, ["--config", write_job(context, "save", steps=4), *words], name="save", env=env)
    check_reason(job.text(), r"cannot start the thread that saves in the background: " + NO_THREAD + r".*Training waits for this save")
    expect(steps_of(context.dump("save") / "checkpoint") == [3, 4], job.tail())
    now.unlink()
    loaded = context.folder / "loaded"  # made when the log file is opened, after the load
    rules = [f"call=read path=*/checkpoint/step-4/* do=log:{now}", f"call=open path=*/rank_0.log do=log:{loaded}"]
    env = faults(context, *rules, f"{refused} until={loaded}")
    job = run(context, 1, ["--config", write_job(context, "save", steps=5), *words], name="load", env=env)
    expect([row["step"] for row in read_rows(context.dump("save") / "metrics.jsonl")] == [1, 2, 3, 4, 5], job.tail())


@case(60, processors=1)
def no_memory_for_a_plan(context):
    """A dry run whose memory the system refuses says so in one line; the stack of torch's error comes on demand alone."""
    words = ["--config", write_job(context, "plan"), "--dry-run", "--training.local_batch_size", 1, "--training.seq_len", 1 << 27]
    lines = {}
    for stacks in ("0", "1"):
        command = ["bash", "-c", 'ulimit -v 8000000; exec "$@"', "bash", context.program, *words]
        job = Job(command, context.folder / "logs", f"stacks{stacks}", {**ONE_THREAD, "TORCH_SHOW_CPP_STACKTRACES": stacks})
        code = job.wait()
        expect(code == 1, f"exit code {code}, expected 1\n{job.tail()}")
        lines[stacks] = [line for line in job.errors().splitlines() if "warning: " not in line]
    check_reason("\n".join(lines["0"]), r"titan-train: .*can't allocate memory.*: out of memory; the limits .* of addresses \(ulimit -v\)")
    expect(len(lines["0"]) == 1 and len(lines["1"]) > 5, f"lines of an error: {lines}")


@case(60)
def no_more_open_files(context):
    """A rank that may open no more files says so; it does not take the others for dead, whom it cannot look at."""
    gate = Gate(context, "row")
    words = ["--config", write_job(context, "files", steps=FOREVER), *SAVE, "--checkpoint.interval", 30]
    job = start(context, 2, words, env=faults(context, gate.rule(at_row(3))))
    gate.wait(job)
    pid = job.ranks(context.program)[1]
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]))
    gate.open()
    # Both ranks fail with the same error; one that hears of it from the other one first ends with 3, and the job with 1.
    code = job.wait()
    expect(code == 1 and "ended without reporting" not in job.errors(), f"exit code {code}\n{job.tail()}")
    check_reason(job.errors(), r"rank 1: .*Too many open files: this process may have no more than 3 open at a time; raise ulimit -Hn")


# Maps what ends a rank in the middle of a run to its exit code, and to what the launcher and the other rank say.
EARLY_ENDS = {
    "exit:7": (7, r"^\[rank1\] titan-train: rank 1: ended by exit\(7\) in step \d+, ", r"ended by exit\(7\) in step \d+, called by a library"),
    "exit:0": (1, r"^\[rank1\] titan-train: rank 1: ended by exit\(0\) in step \d+, ", r"ended by exit\(0\) in step \d+, called by a library"),
    "_exit:7": (7, r"^titan-train: rank 1 ended with exit code 7, which is not one of titan-train$", "ended without reporting an error"),
    "_exit:0": (3, r"^titan-train: rank 1 ended with exit code 0 before the run was over$", "ended without reporting an error"),
}


@case(60, end=list(EARLY_ENDS))
def rank_that_ends_by_itself(context, end):
    """A library that calls exit() in one rank ends the run with that code, and all are told who called what."""
    code, of_launcher, of_other = EARLY_ENDS[end]
    env = faults(context, f"rank=1 call=write path=*/logs/rank_1.log n=12 do={end}")
    job = run(context, 2, ["--config", write_job(context, "ends", steps=FOREVER)], env=env, exit_code=code)
    check_reason(job.errors(), "(?m)" + of_launcher)
    check_reason(job.errors(), r"(?m)^titan-train: rank 0: stops: rank 1: " + of_other)


@case(60, victim=[0, 1])
def one_rank_is_asked_to_stop_at_the_start(context, victim):
    """SIGTERM to one rank before the first step: it ends at once, and the other one says so instead of guessing."""
    lock = Gate(context, "lock")
    env = faults(context, lock.rule("rank=0 call=open path=*/.run.lock"))
    jobs = start_plain(context, 2, ["--config", write_job(context, "asked"), *SAVE], variables={0: env})
    lock.wait(jobs)
    kill(jobs[victim].process.pid, signal.SIGTERM)
    codes = [job.wait() for job in jobs]
    expect(codes[victim] == 128 + signal.SIGTERM and codes[1 - victim] == 3, f"exit codes {codes}\n{jobs[0].tail()}\n{jobs[1].tail()}")
    check_blames(jobs[1 - victim].errors(), 1 - victim, victim)
    check_reason(jobs[1 - victim].errors(), rf"stops: rank {victim}: was asked to stop \(SIGTERM\) and ended at once$")
