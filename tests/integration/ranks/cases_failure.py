"""Tests what happens if something is wrong: a rank dies or hangs, a file is missing, memory does not suffice."""
import re
import signal

from fixtures import write_job
from harness import (
    ROOT, Gate, at_row, case, expect, faults, is_alive, kill, run, start, start_plain, stop_process, wait_until,
)  # fmt: skip

# Text that only an uncaught exception, or a crash, prints.
CRASH = re.compile(r"terminate called|core dumped|AddressSanitizer|Segmentation fault")
# More steps than any test waits for: no run ends by itself before its rank is killed.
FOREVER = 1_000_000


def check_reason(text, pattern):
    """Checks that one line says why, and that nothing crashed on the way."""
    expect(not CRASH.search(text), f"a rank crashed:\n{text[-2000:]}")
    expect(re.search(pattern, text), f"no line says '{pattern}':\n{text[-2000:]}")


def own_reasons(text, pattern):
    """Returns the lines with `pattern` but for those of ranks that stop because of another one, and repeat its reason.

    Of ranks that fail with the same error together, the first says it; a later one either is silent or repeats it.
    """
    return [line for line in text.splitlines() if re.search(pattern, line) and " stops: rank " not in line]


def check_blames(errors, rank, guilty):
    """Checks that `rank` says once on standard error why it stops, and names rank `guilty` and no other."""
    form = f"titan-train: rank {rank}: stops: "
    check_reason(errors, form)
    said = [line for line in errors.splitlines() if re.match(rf"titan-train: rank {rank}\b.* stops", line)]
    expect(len(said) == 1, f"rank {rank} gives {len(said)} reasons, expected one:\n{errors[-2000:]}")
    named = set(re.findall(r"(?i)\brank (\d+)", said[0].removeprefix(form)))
    expect(named == {str(guilty)}, f"rank {rank} names ranks {sorted(named)}, expected {guilty}: {said[0]}")


@case(60, launcher=["torchrun", "mpirun"])
def killed_rank(context, launcher):
    """SIGKILL on one of two ranks under a launcher ends the whole job, with a code that is not zero."""
    gate = Gate(context, "third-row")
    words = ["--config", write_job(context, "killed", steps=FOREVER)]
    job = start(context, 2, words, launcher, env=faults(context, gate.rule(at_row(3))))
    gate.wait(job)
    pids = job.ranks(context.program)
    expect(sorted(pids) == [0, 1], f"found ranks {sorted(pids)}")
    kill(pids[1], signal.SIGKILL)
    gate.open()
    code = job.wait()
    for rank, pid in pids.items():
        wait_until(lambda pid=pid: not is_alive(pid), 20, f"rank {rank} outlived the killed one")
    expect(code != 0, "the launcher reports success after a rank was killed")
    expect(not CRASH.search(job.text()), f"a rank crashed:\n{job.tail()}")


@case(60, quick=[1], victim=[0, 1, 2])
def killed_rank_plain(context, victim):
    """Without a launcher the other ranks notice by themselves: exit code 3, and one line that names the rank.

    Rank 0 is a case of its own: it holds the store over which ranks meet.
    """
    gate = Gate(context, "third-row")
    fault = faults(context, gate.rule(at_row(3)))
    words = ["--config", write_job(context, "killed", steps=FOREVER)]
    jobs = start_plain(context, 3, words, variables={0: fault})
    gate.wait(jobs[0])
    kill(jobs[victim].process.pid, signal.SIGKILL)
    gate.open()
    for rank, job in enumerate(jobs):
        code = job.wait()
        if rank != victim:
            expect(code == 3, f"rank {rank} exited with {code}, expected 3\n{job.tail()}")
            check_blames(job.errors(), rank, victim)


@case(90)
def stopped_rank(context):
    """In a resumed run, too, a rank that hangs ends the others after comm.train_timeout_seconds, and they name it."""
    # The limit for the start is longer than this case waits for the end.
    words = ["--checkpoint.enable", "--checkpoint.interval", "3", "--comm.init_timeout_seconds", "300"]
    run(context, 2, ["--config", write_job(context, "hung", steps=3), *words, "--checkpoint.last_save_model_only=false"])
    gate = Gate(context, "sixth-row")
    words += ["--config", write_job(context, "hung", steps=FOREVER), "--comm.train_timeout_seconds", "4"]
    jobs = start_plain(context, 2, words, variables={0: faults(context, gate.rule(at_row(3)))})  # its own third
    gate.wait(jobs[0])
    stop_process(jobs[1].process.pid)
    gate.open()
    try:
        code = jobs[0].wait(20)
        expect(code == 3, f"rank 0 exited with {code}, expected 3\n{jobs[0].tail()}")
        check_blames(jobs[0].errors(), 0, 1)
    finally:
        kill(jobs[1].process.pid, signal.SIGKILL)


@case(60)
def failing_rank(context):
    """A rank that cannot read its data exits 2 with the path; the others exit 3 instead of waiting for it."""
    for rank in (0, 1):
        (context.folder / f"cwd{rank}").mkdir()
    (context.folder / "cwd0/corpus.jsonl").symlink_to(context.fixtures / "corpus.jsonl")
    words = ["--config", write_job(context, "failing"), "--training.dataset_path", "corpus.jsonl"]
    folders = {rank: context.folder / f"cwd{rank}" for rank in (0, 1)}
    jobs = start_plain(context, 2, words, cwd=folders)
    codes = [job.wait() for job in jobs]
    expect(codes == [3, 2], f"exit codes {codes}, expected [3, 2]\n{jobs[0].tail()}\n{jobs[1].tail()}")
    check_reason(jobs[1].text(), r"corpus\.jsonl")
    check_blames(jobs[0].errors(), 0, 1)
