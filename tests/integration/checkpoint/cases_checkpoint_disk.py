"""Tests saves that fail: a full disk, a folder that cannot be written."""
import errno
import os
import re

from cases_failure import check_reason
from checkpoint_tools import SAVE, check_intact, train
from fixtures import write_job
from harness import case, check_identical, expect, faults, rows_by_step

KEYS = ("loss", "max_loss", "grad_norm", "lr", "tokens_seen")
STEPS = 6
TOTAL = ["--lr_scheduler.total_steps", STEPS]
# Files that have no room in the folder of step 4: rank 1's data, which rank 0 must hear of, or rank 0's last file.
WITHOUT_ROOM = {"disabled": "rank=1 call=write path={}/step-4.tmp/*", "async": "rank=0 call=write path={}/step-4.tmp/.metadata*"}


def words(config, mode, on_error):
    save = ["--checkpoint.interval", 2, "--checkpoint.keep_latest_k", 0, "--checkpoint.async_mode", mode]
    return ["--config", config, *SAVE, *save, "--checkpoint.on_save_error", on_error]


def full_disk(context, checkpoints, mode):
    return faults(context, f"{WITHOUT_ROOM[mode].format(checkpoints)} do=errno:{errno.ENOSPC}")


def check_kept(checkpoints, steps):
    """Checks that the folder holds these checkpoints and nothing else, each of them intact."""
    names = sorted(os.listdir(checkpoints))
    expect(names == [f"step-{step}" for step in steps], f"the folder holds {names}, expected steps {steps}")
    for step in steps:
        check_intact(checkpoints / f"step-{step}")


def check_rows(context, what):
    """Checks that the rows of "run" equal those of a run that saves nothing."""
    train(context, 2, ["--config", write_job(context, "straight", steps=STEPS)], "straight")
    found, expected = (rows_by_step(context.dump(name) / "metrics.jsonl", exact=True) for name in ("run", "straight"))
    check_identical(found, expected, KEYS, what)


@case(60, mode=["disabled", "async"], wide=["disabled"])
def full_disk_stops(context, mode):
    """on_save_error = "stop": the run ends with the reason, earlier saves are intact and resume with room."""
    config = write_job(context, "run", steps=STEPS)
    checkpoints = context.dump("run") / "checkpoint"
    env = full_disk(context, checkpoints, mode)
    job = train(context, 2, words(config, mode, "stop"), "full", exit_code=1, env=env)
    check_reason(job.text(), r"step-4.*No space left on device")
    expect("training completed" not in job.text(), "the run went on to its end")
    check_kept(checkpoints, [2])
    job = train(context, 2, words(config, mode, "stop"), "again")
    expect(f"from {checkpoints}/step-2\n" in job.text(), f"the run did not go on from step 2\n{job.tail()}")
    check_kept(checkpoints, [2, 4, 6])
    check_rows(context, "after the disk was full")


@case(60, mode=["disabled", "async"])
def rows_are_on_disk_before_their_checkpoint(context, mode):
    """Power that fails never leaves a checkpoint without the rows of its steps: they are written through before it."""
    log = context.folder / "calls"
    rule = f"rank=0 call=write+fsync+rename path={context.dump('run')}/* do=log:{log}"
    train(context, 2, words(write_job(context, "run", steps=STEPS), mode, "stop"), env=faults(context, rule))
    calls = [line.split(" ", 1) for line in log.read_text().splitlines()]
    rows = synced = 0
    for call, path in calls:
        if path.endswith("/metrics.jsonl"):
            rows += call == "write"
            synced = rows if call == "fsync" else synced
        step = re.search(r"/step-(\d+)\.tmp$", path)
        if call == "rename" and step:
            expect(synced >= int(step[1]), f"step {step[1]} was complete when {synced} of {rows} rows were on disk")
    expect(rows == STEPS and synced == STEPS, f"{synced} of {rows} rows were written through")


@case(60, mode=["disabled", "async"], wide=["disabled"])
def full_disk_warns(context, mode):
    """on_save_error = "warn": training goes to its end, the failed save is reported once, the others are intact."""
    config = write_job(context, "run", steps=STEPS)
    checkpoints = context.dump("run") / "checkpoint"
    job = train(context, 2, words(config, mode, "warn"), "full", env=full_disk(context, checkpoints, mode))
    found = re.findall(r"step-\d+.*No space left on device.*", job.text())
    expect(len(found) == 1 and "step-4" in found[0], f"expected one line on step 4, found {found}\n{job.tail(30)}")
    expect(f"training completed: {STEPS} steps" in job.text(), job.tail())
    check_kept(checkpoints, [2, 6])
    check_rows(context, "on a full disk")


@case(60)
def unwritable_folder(context):
    """A read-only disk in place of the checkpoint folder is named with the reason; "warn" trains on without it."""
    config = write_job(context, "run", steps=STEPS)
    target = context.folder / "disk/checkpoints"
    read_only = faults(context, f"call=write+open+mkdir+rename+unlink path={target}* do=errno:{errno.EROFS}")

    def attempt(on_error, name, exit_code=0, env=None, steps=STEPS):
        more = ["--checkpoint.folder", target, "--training.steps", steps, *TOTAL]
        return train(context, 2, [*words(config, "disabled", on_error), *more], name, exit_code=exit_code, env=env).text()

    attempt("stop", "first", steps=2)
    check_reason(attempt("stop", "stop", exit_code=1, env=read_only), rf"{target}.*Read-only file system")
    # Training continues without the save of step 4, but fails in the end: the save of the last step must succeed.
    text = attempt("warn", "warn", exit_code=1, env=read_only)
    check_reason(text, rf"{target}/step-6.*Read-only file system")
    expect(re.search(r"step-4.*Training goes on", text) and "training completed" not in text, text)
    check_kept(target, [2])
    attempt("stop", "again")
    check_kept(target, [2, 4, 6])
    check_rows(context, "after the disk was read-only")


@case(60)
def file_in_place_of_folder(context):
    """A file in place of the checkpoint folder is refused by name, whoever runs it, and stays unchanged."""
    config = write_job(context, "run", steps=STEPS)
    context.dump("run").mkdir()
    path = context.dump("run") / "checkpoint"
    path.write_text("mine")
    job = train(context, 2, words(config, "disabled", "stop"), "run", exit_code=1)
    check_reason(job.text(), rf"{path}.*(Not a directory|is not a folder)")
    expect(path.read_text() == "mine", "the file was changed")


def names_in(folder):
    return sorted(os.listdir(folder))


@case(90, mode=["disabled", "async"], wide=["disabled"])
def old_checkpoint_that_cannot_be_removed(context, mode):
    """Cleanup is not part of a save: one warning, later saves succeed, also after a restart, and later it is gone."""
    config = write_job(context, "run", steps=12)
    checkpoints = context.dump("run") / "checkpoint"
    # As on NFS, if one of its files is open elsewhere; and leftovers of an earlier run in the place of a later save.
    (checkpoints / "step-6.tmp").mkdir(parents=True)
    (checkpoints / "step-6.tmp" / "stuck").touch()
    (checkpoints / "step-1.tmp").mkdir()
    words = ["--config", config, *SAVE, "--checkpoint.interval", 2, "--checkpoint.keep_latest_k", 2, "--lr_scheduler.total_steps", 20]
    words += ["--checkpoint.async_mode", mode]
    env = faults(context, *(f"call=unlink path={path} do=errno:{errno.EBUSY}" for path in ("*/step-2.tmp/*", "*/stuck")))
    job = train(context, 2, words, "stuck", env=env)
    expect(job.text().count("cannot remove all of") == 3, f"expected a warning for each of three folders, once\n{job.text()}")
    expected = ["step-10", "step-12", "step-2.tmp", "step-6.tmp.remains-1", "step-8"]  # the last save removes nothing
    expect(names_in(checkpoints) == expected, f"{names_in(checkpoints)}")
    for step in ("step-10", "step-12"):
        check_intact(checkpoints / step)
    train(context, 2, [*words, "--training.steps", 16], "again", env=env)
    check_intact(checkpoints / "step-16")
    expect({"step-2.tmp", "step-6.tmp.remains-1"} < set(names_in(checkpoints)), f"{names_in(checkpoints)}")
    train(context, 2, [*words, "--training.steps", 20], "free")
    left = [name for name in names_in(checkpoints) if "." in name]
    expect(not left, f"{left} are still there, though nothing holds them any more")


@case(60, processors=1)
def old_checkpoint_that_cannot_be_renamed(context):
    """A checkpoint in an overlay's lower layer (EXDEV) is removed in place, the file that makes it complete first."""
    config = write_job(context, "run", steps=8)
    checkpoints = context.dump("run") / "checkpoint"
    words = ["--config", config, *SAVE, "--checkpoint.interval", 2, "--checkpoint.keep_latest_k", 2]
    log = context.folder / "unlinked"
    env = faults(context, f"call=rename path=*/step-2 do=errno:{errno.EXDEV}", f"call=unlink path=*/step-2/* do=log:{log}")
    job = train(context, 1, words, "run", env=env)
    expect("could not be removed" not in job.text(), job.text())
    check_kept(checkpoints, [4, 6, 8])  # the last save removes nothing
    expect(log.read_text().startswith(f"unlink {checkpoints}/step-2/.metadata\n"), log.read_text())
