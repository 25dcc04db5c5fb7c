"""Saves that fail: a disk that is full, a folder that cannot be written, a rank that dies while it writes."""
import os
import re
import signal
import time

from cases_failure import check_reason
from checkpoint_tools import SAVE, check_intact, mounted, needs_mounts, steps_of, train
from fixtures import write_job
from harness import case, check_identical, expect, kill, rows_by_step, start_plain

KEYS = ("loss", "max_loss", "grad_norm", "lr", "tokens_seen")
STEPS = 8
# A full state of SMALL_MODEL is 4.8 MiB: two fit, the third does not.
ROOM_FOR_TWO, ROOM_FOR_ALL = "size=13m", "size=64m"


def words(context, config, mode, on_error):
    save = ["--checkpoint.interval", 2, "--checkpoint.keep_latest_k", 0, "--checkpoint.async_mode", mode]
    return ["--config", config, *SAVE, *save, "--checkpoint.on_save_error", on_error]


def check_kept(checkpoints, steps):
    """These checkpoints and nothing else is in the folder, each of them whole."""
    names = sorted(os.listdir(checkpoints))
    expect(names == [f"step-{step}" for step in steps], f"the folder holds {names}, expected steps {steps}")
    for step in steps:
        check_intact(checkpoints / f"step-{step}")


def undisturbed(context):
    train(context, 2, ["--config", write_job(context, "straight", steps=STEPS)], "straight")
    return rows_by_step(context.dump("straight") / "metrics.jsonl", exact=True)


@case(120, mode=["disabled", "async"])
@needs_mounts
def full_disk_stops(context, mode):
    """on_save_error = "stop": the run ends with the reason, what was saved is whole, and with room it goes on from there."""
    config = write_job(context, "run", steps=STEPS)
    checkpoints = context.dump("run") / "checkpoint"
    with mounted(context.dump("run"), ROOM_FOR_TWO) as mount_again:
        job = train(context, 2, words(context, config, mode, "stop"), "full", exit_code=1)
        check_reason(job.text(), r"step-6.*No space left on device")
        expect("training completed" not in job.text(), "the run went on to its end")
        check_kept(checkpoints, [2, 4])
        mount_again(ROOM_FOR_ALL)
        job = train(context, 2, words(context, config, mode, "stop"), "again")
        expect(f"{checkpoints}/step-4" in job.text(), f"the run did not go on from step 4\n{job.tail()}")
        check_kept(checkpoints, [2, 4, 6, 8])
        rows = rows_by_step(context.dump("run") / "metrics.jsonl", exact=True)
    check_identical(rows, undisturbed(context), KEYS, "after the disk was full")


@case(120, mode=["disabled", "async"])
@needs_mounts
def full_disk_warns(context, mode):
    """on_save_error = "warn": training goes on to its end, each failed save is said, what was saved before is whole."""
    config = write_job(context, "run", steps=STEPS)
    with mounted(context.dump("run"), ROOM_FOR_TWO):
        job = train(context, 2, words(context, config, mode, "warn"), "full")
        for step in (6, 8):
            found = re.findall(rf"step-{step}\b.*No space left on device.*", job.text())
            expect(len(found) == 1, f"{len(found)} lines say that step {step} was not saved, expected 1\n{job.tail(30)}")
        expect(f"training completed: {STEPS} steps" in job.text(), job.tail())
        check_kept(context.dump("run") / "checkpoint", [2, 4])
        rows = rows_by_step(context.dump("run") / "metrics.jsonl", exact=True)
    check_identical(rows, undisturbed(context), KEYS, "on a full disk")


@case(120)
@needs_mounts
def unwritable_folder(context):
    """A read-only disk in place of the checkpoint folder is named with the reason; "warn" trains on without."""
    target = context.folder / "disk"
    with mounted(target, ROOM_FOR_ALL) as mount_again:
        folder = ["--checkpoint.folder", target / "checkpoints"]
        config = write_job(context, "run", steps=STEPS)
        train(context, 2, [*words(context, config, "disabled", "stop"), *folder, "--training.steps", 2, *TOTAL], "first")
        mount_again("ro")
        job = train(context, 2, [*words(context, config, "disabled", "stop"), *folder, *TOTAL], "stop", exit_code=1)
        check_reason(job.text(), rf"{target}/checkpoints.*Read-only file system")
        job = train(context, 2, [*words(context, config, "disabled", "warn"), *folder, *TOTAL], "warn")
        check_reason(job.text(), rf"{target}/checkpoints.*Read-only file system")
        check_kept(target / "checkpoints", [2])
        mount_again("rw")
        train(context, 2, [*words(context, config, "disabled", "stop"), *folder, *TOTAL], "again")
        check_kept(target / "checkpoints", [2, 4, 6, 8])
    rows = rows_by_step(context.dump("run") / "metrics.jsonl", exact=True)
    check_identical(rows, undisturbed(context), KEYS, "after the disk was read-only")


TOTAL = ["--lr_scheduler.total_steps", STEPS]


@case(60)
def file_in_place_of_folder(context):
    """A file where the checkpoint folder should be is refused by name, whoever runs it, and is left as it is."""
    config = write_job(context, "run", steps=STEPS)
    context.dump("run").mkdir()
    path = context.dump("run") / "checkpoint"
    path.write_text("mine")
    job = train(context, 2, words(context, config, "disabled", "stop"), "run", exit_code=1)
    check_reason(job.text(), rf"{path}.*(Not a directory|is not a folder|is no folder)")
    expect(path.read_text() == "mine", "the file was changed")


def wait_for_save(checkpoints, after):
    """Until a save later than step `after` is under way; its step."""

    def newest():
        if not checkpoints.exists():
            return None
        names = [re.fullmatch(r"step-(\d+)\.tmp", name) for name in os.listdir(checkpoints)]
        return max((int(match[1]) for match in names if match and int(match[1]) > after), default=None)

    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if step := newest():
            return step
    return expect(False, "no save within 30 s")


@case(120, mode=["disabled", "async"])
def rank_dies_while_saving(context, mode):
    """A rank that is killed during a save: the other ends within 10 s and names it, older checkpoints are whole, and the
    next run goes on from the newest of them."""
    config = write_job(context, "run", steps=1_000_000)
    checkpoints = context.dump("run") / "checkpoint"
    # The sizes of a model whose save takes some time: a kill must come before it is over.
    command = ["--config", config, *SAVE, "--checkpoint.interval", 1, "--checkpoint.async_mode", mode]
    command += ["--model.args.dim", 256, "--comm.train_timeout_seconds", 60]
    caught = 0
    for attempt in range(6):
        before = max(steps_of(checkpoints), default=0)
        victim = attempt % 2
        jobs = start_plain(context, 2, command)
        step = wait_for_save(checkpoints, before + 2)
        kill(jobs[victim].process.pid, signal.SIGKILL)
        since = time.monotonic()
        code = jobs[1 - victim].wait(10)
        expect(code == 3, f"the other rank exited with {code}, expected 3\n{jobs[1 - victim].tail()}")
        expect(time.monotonic() - since < 10, "the other rank took longer than 10 s")
        check_reason(jobs[1 - victim].text(), rf"(?i)rank {victim}\b")
        jobs[victim].wait(10)
        complete = steps_of(checkpoints)
        # Killed late, the save may be complete; the one before it is in any case.
        expect(complete and complete[-1] in (step - 1, step), f"complete are {complete} after a kill in step {step}")
        for each in complete:
            check_intact(checkpoints / f"step-{each}")
        caught += complete[-1] == step - 1
        if before:
            # Rank 0 says which.
            expect(f"step-{before}" in jobs[0].text(), f"it did not go on from step {before}\n{jobs[0].tail()}")
        if caught >= 2:
            break
    expect(caught >= 2, f"only {caught} kills came before the save was over")
