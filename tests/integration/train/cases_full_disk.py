"""Tests files of metrics that cannot be written: those that a run can do without, and metrics.jsonl, which it cannot."""
import errno
import re

from cases_failure import own_reasons
from fixtures import write_job
from harness import Gate, at_row, case, expect, faults, read_rows, run, start

SAVE = ["--checkpoint.enable", "--checkpoint.interval", 3, "--checkpoint.no-last_save_model_only"]
NO_ROOM = f"do=errno:{errno.ENOSPC}"


def steps_of(folder):
    return [row["step"] for row in read_rows(folder / "metrics.jsonl")]


def check_said_once(job, reason):
    """Checks that one rank gives this reason, once, and that no rank speaks of success."""
    said = own_reasons(job.text(), reason)
    expect(len(said) == 1 and "training completed" not in job.text(), f"expected {reason} once\n{job.tail(30)}")


@case(60, processors=1)
def no_room_for_tables(context):
    """Events, checksums, tables and TensorBoard's files end with a warning each; training and its rows go on."""
    config, folder = write_job(context, "run", steps=6), context.dump("run")
    words = ["--config", config, *SAVE, "--metrics.enable_csv", "--metrics.enable_tensorboard", "--debug.checksum_freq", 1]
    files = {"events.jsonl": 3, "checksums.jsonl": 3, "metrics.csv": 3, "tb/events.out.*": 5}  # the n-th write fails
    env = faults(context, *(f"call=write path=*/{name} n={n} {NO_ROOM}" for name, n in files.items()))
    job = run(context, 1, words, name="full", env=env)
    warnings = re.findall(r"WARNING - .*/(\S+): No space left on device\. Training goes on without (.*) until", job.text())
    named = sorted(re.sub(r"events\.out.*", "tb", name) for name, _ in warnings)
    expect(named == ["checksums.jsonl", "events.jsonl", "metrics.csv", "tb"], f"{warnings}\n{job.text()}")
    expect("training completed: 6 steps" in job.text() and steps_of(folder) == [1, 2, 3, 4, 5, 6], job.tail())
    run(context, 1, ["inspect", folder / "checkpoint/step-6", "--verify"], name="inspect")
    # A start with room again goes on with all of them.
    run(context, 1, [*words, "--training.steps", 8], name="again")
    last = (folder / "metrics.csv").read_text().splitlines()[-1]
    expect(last.startswith("8,") and read_rows(folder / "events.jsonl")[-1]["event"] == "end", last)


@case(60, fault=["full", "removed"])
def no_room_for_rows(context, fault):
    """A run whose rows cannot be written saves its state, and ends with the reason; the same command goes on from there."""
    config, folder = write_job(context, "run", steps=6), context.dump("run")
    words, gate = ["--config", config, *SAVE], Gate(context, "row")
    rule = f"rank=0 call=write path=*/metrics.jsonl n=3 {NO_ROOM}" if fault == "full" else gate.rule(at_row(2))
    job = start(context, 2, words, name="first", env=faults(context, rule))
    if fault == "removed":
        gate.wait(job)
        (folder / "metrics.jsonl").unlink()
        gate.open()
    code = job.wait()
    expect(code == 1, f"exit code {code}, expected 1\n{job.tail(30)}")
    what = "No space left on device" if fault == "full" else "metrics.jsonl is gone"
    check_said_once(job, rf"ends after step 4, because its rows cannot be written: .*{what}.*after step 4 is saved")
    again = run(context, 2, words, name="again")
    expect(f"from {folder}/checkpoint/step-4\n" in again.text(), again.tail())
    expect(steps_of(folder) == ([1, 2, 5, 6] if fault == "full" else [5, 6]), f"{steps_of(folder)}")


@case(60)
def no_room_at_all(context):
    """If the state cannot be saved either, both reasons are said, and the checkpoint before is whole."""
    config, folder = write_job(context, "run", steps=6), context.dump("run")
    words = ["--config", config, *SAVE, "--checkpoint.on_save_error", "warn"]
    rules = [f"call=write path=*/{name} {NO_ROOM}" for name in ("metrics.jsonl n=3", "step-4.tmp/*")]
    job = run(context, 2, words, name="full", exit_code=1, env=faults(context, *rules))
    check_said_once(job, r"rows cannot be written: .*metrics.jsonl: No space.*nor could the state.*step-4.*No space left")
    again = run(context, 2, words, name="again")
    expect(f"from {folder}/checkpoint/step-3\n" in again.text() and steps_of(folder) == [1, 2, 4, 5, 6], again.tail())


@case(60, processors=1)
def no_room_for_the_last_row(context):
    """A run that lacks only its last rows is saved, and not a success."""
    config = write_job(context, "run", steps=3)
    rule = f"call=write path=*/metrics.jsonl n=3 {NO_ROOM}"
    job = run(context, 1, ["--config", config, *SAVE], name="full", exit_code=1, env=faults(context, rule))
    check_said_once(job, "No space left on device: the rows of the last steps are missing. Training itself is complete, at step 3, and saved")
    expect("nothing to do" in run(context, 1, ["--config", config, *SAVE], name="again").text(), "it trained again")


@case(30, processors=1)
def no_room_for_the_save_of_a_stop(context):
    """A run that was asked to stop, and cannot save, is not reported as saved, though on_save_error is "warn"."""
    words = ["--config", write_job(context, "run", steps=6), *SAVE, "--checkpoint.interval", 4, "--checkpoint.on_save_error", "warn"]
    gate = Gate(context, "row")
    env = faults(context, gate.rule(at_row(3)), f"call=write path=*/step-4.tmp/* {NO_ROOM}")
    job = start(context, 1, words, env=env)
    gate.signal(context, job)
    code = job.wait()
    expect(code == 1 and "stopped after step" not in job.text(), f"exit code {code}, expected 1\n{job.tail()}")
    check_said_once(job, r"step-4.*No space left on device")
