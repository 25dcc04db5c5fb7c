"""Tests copies of the state in memory: a crash loses the steps since the newest copy, and not those since a save."""
import contextlib
import errno
import os
import pathlib
import shutil
import signal
import stat
import tempfile

from cases_drift import EQUAL, KEPT, MESHES, flips, named
from checkpoint_tools import FP32, SAVE, check_intact, read_state, steps_of, train
from fixtures import write_job
from harness import (
    Gate, at_row, case, check_identical, expect, faults, kill, read_rows, relative_distance, rows_by_step, start_plain,
    wait_until,
)  # fmt: skip

KEYS = ("loss", "max_loss", "grad_norm", "lr", "tokens_seen")
STEPS = 10


@contextlib.contextmanager
def folder_in_memory():
    """Makes a folder of this case's own in memory, and removes it."""
    folder = pathlib.Path(tempfile.mkdtemp(dir="/dev/shm", prefix="titan-test-copies-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def words_of(context, name, memory, *more, interval=100, every=2, steps=STEPS):
    save = ["--checkpoint.interval", interval, "--checkpoint.keep_latest_k", 0]
    copies = ["--checkpoint.memory_interval", every, "--checkpoint.memory_folder", memory]
    return ["--config", write_job(context, name, steps=steps), *SAVE, *save, *copies, *more]


def run_folder(memory):
    """Returns the folder of the one run that has copies."""
    folders = list(memory.iterdir())
    expect(len(folders) == 1, f"{memory} holds {[folder.name for folder in folders]}, expected one folder of a run")
    return folders[0]


def crash(context, ranks, words, memory, copy, env=None):
    """Kills all ranks while the row after step `copy` is being written and the copy of that step is complete."""
    gate = Gate(context, "crash")
    fault = faults(context, *([env] if env else []), gate.rule(at_row(copy + 1)))
    jobs = start_plain(context, ranks, words, variables={rank: fault for rank in range(ranks)})
    gate.wait(jobs)
    wait_until(lambda: list(memory.glob(f"*/step-{copy}/.metadata")), 60, f"no copy of step {copy}\n{jobs[0].tail()}")
    for job in jobs:
        kill(job.process.pid, signal.SIGKILL)
    for job in jobs:
        job.wait()
    return jobs


def flip_byte(file):
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def check_rows(context, name, ranks, what):
    """Checks that the rows of run `name` are those of a run that was never disturbed, and has no copies."""
    train(context, ranks, ["--config", write_job(context, "straight", steps=STEPS)], "straight")
    found, expected = (rows_by_step(context.dump(each) / "metrics.jsonl", exact=True) for each in (name, "straight"))
    check_identical(found, expected, KEYS, what)


def check_empty(memory):
    left = [path.name for path in memory.iterdir()]
    expect(not left, f"the run has ended and leaves {left} in {memory}")


@case(60, quick=True)
def copy_after_a_crash(context):
    """Two ranks are killed in step 7 of 10: the next start goes on from step 6, of which there is no checkpoint, with the
    rows of an undisturbed run. There are at most two copies, for the user alone, and none once the run has ended."""
    with folder_in_memory() as memory:
        words = words_of(context, "run", memory)
        crash(context, 2, words, memory, copy=6)
        copies = run_folder(memory)
        expect(steps_of(copies) == [4, 6], f"copies of steps {steps_of(copies)}")
        expect(stat.S_IMODE(copies.stat().st_mode) == 0o700, f"others may enter {copies}: {copies.stat().st_mode:o}")
        for step in (4, 6):
            check_intact(copies / f"step-{step}")
        checkpoints = context.dump("run") / "checkpoint"
        expect(str(checkpoints) in (copies / "checkpoints_of_run.txt").read_text(), "the folder does not say whose it is")
        job = train(context, 2, words, "again")
        expect(f"from the copy in memory of step 6, {copies}/step-6\n" in job.text(), job.tail(30))
        check_empty(memory)
        expect(steps_of(checkpoints) == [STEPS], f"checkpoints of steps {steps_of(checkpoints)}")
    rows = read_rows(context.dump("run") / "events.jsonl")
    events = [(row["event"], row["step"]) for row in rows if row["event"] in ("memory_copy", "save")]
    expect(events == [*(("memory_copy", step) for step in (2, 4, 6, 8)), ("save", STEPS)], f"{events}")
    check_rows(context, "run", 2, "after the crash")


@case(60, ranks=[1, 3], wide=["1"])
def copy_at_another_size(context, ranks):
    """The copy of two ranks resumes at another number of ranks: the same samples, and losses equal but for rounding."""
    with folder_in_memory() as memory:
        more = [*FP32, "--training.dataset", "jsonl", "--training.local_batch_size", 1, "--training.global_batch_size", 6]
        words = words_of(context, "run", memory, *more, steps=6)
        crash(context, 2, words, memory, copy=4)
        job = train(context, ranks, words, "again")
        expect("from the copy in memory of step 4" in job.text(), job.tail(30))
        check_empty(memory)
    train(context, 2, ["--config", write_job(context, "straight", steps=6), *more], "straight")
    one, other = (rows_by_step(context.dump(name) / "metrics.jsonl") for name in ("run", "straight"))
    for step in range(1, 7):
        # As in elastic_resize: far above what fp32's rounding becomes, and far below the effect of one other sample.
        distance = relative_distance(one[step]["loss"], other[step]["loss"])
        expect(distance < 1e-4, f"step {step}: loss {one[step]['loss']}, undisturbed {other[step]['loss']}")
        expect(one[step]["tokens_seen"] == other[step]["tokens_seen"], f"step {step}: {one[step]} and {other[step]}")


@case(60, older=["copy", "checkpoint"])
def damaged_copy(context, older):
    """A copy with a wrong byte is reported and passed over, for an older copy or a newer checkpoint, and removed."""
    with folder_in_memory() as memory:
        words = words_of(context, "run", memory, interval=100 if older == "copy" else 3)
        crash(context, 1, words, memory, copy=8)
        copies = run_folder(memory)
        # With the interval 3, step 6 is saved on disk and not copied.
        expect(steps_of(copies) == ([6, 8] if older == "copy" else [4, 8]), f"copies of steps {steps_of(copies)}")
        flip_byte(copies / "step-8" / "__0_0.distcp")
        job = train(context, 1, words, "again")
        expect("from the copy in memory of step 8" in job.text(), job.tail(30))
        expect("Falling back to the newest intact copy or checkpoint up to step 8" in job.text(), job.tail(30))
        from_disk = f"Loading the full state from {context.dump('run')}/checkpoint/step-6\n"
        expected = "from the copy in memory of step 6" if older == "copy" else from_disk
        expect(expected in job.text(), f"'{expected}' is missing\n{job.tail(30)}")
        check_empty(memory)
    check_rows(context, "run", 1, "after a damaged copy")


@case(60)
def copy_without_room(context):
    """A full file system in memory is one warning: training goes on, nothing of that copy is left, and later copies
    are made."""
    with folder_in_memory() as memory:
        words = words_of(context, "run", memory)
        full = f"call=write path={memory}/*/step-4.tmp/* do=errno:{errno.ENOSPC}"
        [job] = crash(context, 1, words, memory, copy=6, env=full)
        lines = [line for line in job.text().splitlines() if "could not be copied to memory" in line]
        expect(len(lines) == 1 and "step 4 " in lines[0] and "No space left on device" in lines[0], f"{lines}\n{job.tail()}")
        expect("Copied the state of step 6 to memory" in job.text() and "made again" in job.text(), job.tail())
        names = sorted(os.listdir(run_folder(memory)))
        expect(names == ["checkpoints_of_run.txt", "step-2", "step-6"], f"the folder holds {names}")
        train(context, 1, words, "again")
        check_empty(memory)
    check_rows(context, "run", 1, "with a full file system")


@case(60)
def copies_belong_to_one_run(context):
    """Another run, and a copy of the run's folder, do not find them; checkpoint.load_step passes over them and removes
    those of later steps; --overwrite is refused."""
    with folder_in_memory() as memory:
        words = words_of(context, "run", memory, interval=3)
        crash(context, 1, words, memory, copy=8)
        copies = run_folder(memory)
        shutil.copytree(context.dump("run"), context.dump("twin"))
        short = ["--training.steps", 1, "--lr_scheduler.total_steps", STEPS]
        text = train(context, 1, [*words_of(context, "other", memory), *short], "other").text()
        expect("starting from initialized weights" in text, text)
        text = train(context, 1, words_of(context, "twin", memory, interval=3), "twin").text()
        expect(f"Loading the full state from {context.dump('twin')}/checkpoint/step-6\n" in text, text)
        expect(steps_of(copies) == [4, 8], f"another run has changed the copies: {steps_of(copies)}")

        text = train(context, 1, [*words, "--overwrite"], "overwrite", exit_code=2).text()
        expect("--overwrite begins a run anew" in text, text)

        gate = Gate(context, "loaded")
        env = faults(context, gate.rule("call=rename path=*/config.toml.tmp"))
        words = words_of(context, "run", memory, "--checkpoint.load_step", 3, interval=3, every=100)
        [job] = start_plain(context, 1, words, variables={0: env})
        gate.wait(job)
        expect(steps_of(copies) == [], f"training goes on from step 3, and there are copies of {steps_of(copies)}")
        gate.open()
        expect(job.wait() == 0 and f"Loading the full state from {context.dump('run')}/checkpoint/step-3\n" in job.text(), job.tail())
        check_empty(memory)
    check_rows(context, "run", 1, "with checkpoint.load_step")


@case(60)
def copies_and_a_new_beginning(context):
    """Copies alone refuse --overwrite as checkpoints do. Without the folder of checkpoints, which has the run's id, a
    start begins anew beside the old copies; ended by a signal after a save, it removes its own."""
    with folder_in_memory() as memory:
        words = words_of(context, "run", memory)
        crash(context, 1, words, memory, copy=2)
        copies = run_folder(memory)
        text = train(context, 1, [*words, "--overwrite"], "overwrite", exit_code=2).text()
        expect("there are copies of this run in memory (step-2)" in text, text)
        (context.dump("run") / "checkpoint").rename(context.folder / "moved")
        gate = Gate(context, "signal")
        [job] = start_plain(context, 1, words, variables={0: faults(context, gate.rule(at_row(3)))})
        gate.wait(job)
        wait_until(lambda: len(list(memory.glob("*/step-2/.metadata"))) == 2, 60, "the new run has no copy of its own")
        gate.signal(context, job)
        expect(job.wait() == 75 and "starting from initialized weights" in job.text(), job.tail(30))
        expect(run_folder(memory) == copies, f"left is {run_folder(memory)}")
        expect(len(steps_of(context.dump("run") / "checkpoint")) == 1, job.tail())


@case(60)
def copies_are_compared_first(context):
    """A state whose copies on the ranks differ is not copied to memory: the run ends, and resumes from the copy before."""
    ranks, mesh, key, said = MESHES["tensor"]
    save = ["--config", write_job(context, "straight", steps=4), *mesh, *SAVE, "--checkpoint.interval", 1]
    train(context, ranks, save, "straight")
    pattern = context.folder / "pattern"
    pattern.write_bytes(read_state(context.dump("straight") / "checkpoint/step-3")[key].numpy().tobytes()[:KEPT])
    with folder_in_memory() as memory:
        words = words_of(context, "run", memory, *mesh, steps=4, every=1)
        job = train(context, ranks, words, "flipped", exit_code=3, env=flips(context, 3, pattern))
        newest = run_folder(memory) / "step-2"
        expect("step 3: ranks hold different copies" in job.text() and f"{named(key)} ({said}" in job.text(), job.tail())
        expect(f"The same command resumes from {newest}, " in job.text(), job.tail())
        expect(steps_of(newest.parent) == [1, 2], f"copies of steps {steps_of(newest.parent)}")
        job = train(context, ranks, words, "again")
        expect("from the copy in memory of step 2" in job.text(), job.tail(30))
        check_empty(memory)
    rows = [rows_by_step(context.dump(name) / "metrics.jsonl", exact=True) for name in ("run", "straight")]
    check_identical(*rows, EQUAL, "resumed from a copy")


@case(30)
def copies_are_refused(context):
    """A folder that is not in memory, a job of several machines, and a run without checkpoints, each with what to set."""

    def refused(name, words, *texts):
        text = train(context, 1, words, name, exit_code=2).text()
        for each in texts:
            expect(each in text, f"'{each}' is missing\n{text}")

    refused("disk", words_of(context, "run", "/proc/copies"), 'checkpoint.memory_folder = "/proc/copies"', "/dev/shm/titan-train")
    with folder_in_memory() as memory:
        words = words_of(context, "run", memory)
        off = [word for word in words if word != "--checkpoint.enable"]
        refused("off", off, "checkpoint.memory_interval", "needs checkpoint.enable = true")
        refused("load", [*words, "--checkpoint.load_only"], "checkpoint.load_only forbids them")
        alone = {"LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0"}
        jobs = start_plain(context, 2, words, variables={0: alone, 1: alone})
        expect([job.wait() for job in jobs] == [2, 2], jobs[0].tail())
        expect("no machine would hold a full copy" in jobs[0].text(), jobs[0].tail())
        check_empty(memory)
