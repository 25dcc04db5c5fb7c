"""Tests starts in the folder of earlier runs: a refused start changes nothing, one with nothing to do says so."""
import re
import shutil
import signal

from cases_failure import own_reasons
from fixtures import write_job
from harness import Gate, Job, at_row, case, expect, faults, kill, launcher_words, read_rows, run, start

SAVE = ["--checkpoint.enable", "--checkpoint.interval", 2]
FULL = [*SAVE, "--checkpoint.no-last_save_model_only"]


def contents(folder):
    """Returns {path: bytes} of all files except the lock and its owner's signs of life."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".run.lock"))
    return {path: path.read_bytes() for path in files}


def steps_of(folder):
    return [row["step"] for row in read_rows(folder / "metrics.jsonl")]


def convert(context, source, target, *words, exit_code=0):
    return run(context, 1, ["convert", source, context.folder / target, *words], name=target, exit_code=exit_code)


@case(60)
def refused_start_changes_nothing(context):
    """Refused starts in the folder of a finished run, for five reasons, change no byte; --overwrite starts again."""
    config, folder = write_job(context, "run", steps=4), context.dump("run")
    run(context, 1, ["--config", config, *FULL], name="first")
    before = contents(folder)
    convert(context, folder / "checkpoint/step-4", "hf")
    (context.folder / "empty").mkdir()
    heads = ["--model.args.n_heads", 8, "--model.args.n_kv_heads", 4]
    refusals = {
        "of another shape": ([*FULL, *heads, "--training.steps", 6], 1, "was saved by a run that was not this one"),
        "without data": ([*FULL, "--training.dataset_path", context.folder / "empty", "--training.steps", 6], 2, "empty"),
        "once more": ([], 2, r"a finished run of this configuration \(rows up to step 4\), .*checkpoint.enable is false"),
        "of another rate": (["--optimizer.lr", "1e-2"], 2, r"another run \(rows up to step 4; optimizer.lr was 0.003, is 0.01\)"),
        "with both": ([*FULL, "--overwrite"], 2, r"holds step-2, step-4, .*move that folder away"),
    }
    for name, (words, exit_code, reason) in refusals.items():
        job = run(context, 1, ["--config", config, *words], name=name, exit_code=exit_code)
        expect(re.search(reason, job.text()), f"{name}: expected {reason}\n{job.tail()}")
        expect(contents(folder) == before, f"{name}: the folder of the run before has changed")
    # The error has a place, as for any key.
    expect(f"{config}:2:15: error: job.dump_folder" in run(context, 1, ["--config", config], exit_code=2).text(), "no place")
    run(context, 1, ["--config", config, "--training.steps", 2, "--overwrite"], name="anew")
    expect(steps_of(folder) == [1, 2], f"--overwrite left the rows {steps_of(folder)}")
    expect("steps = 2" in (folder / "config.toml").read_text(), "config.toml is not that of the new run")
    # The checkpoint describes itself, whatever the folder around it says by now.
    convert(context, folder / "checkpoint/step-4", "again")
    names = sorted(path.name for path in (context.folder / "hf").iterdir())
    for name in names:
        same = (context.folder / "hf" / name).read_bytes() == (context.folder / "again" / name).read_bytes()
        expect(same, f"converted again, {name} has other bytes")
    other = write_job(context, "other")
    other.write_text(other.read_text().replace("n_heads = 4\nn_kv_heads = 2", "n_heads = 8\nn_kv_heads = 4"))
    job = convert(context, folder / "checkpoint/step-4", "wrong", "--config", other, exit_code=2)
    expect("describes another model than the one that was saved" in job.text(), job.tail())


@case(60, processors=1)
def convert_reads_the_checkpoint(context):
    """A checkpoint with only weights, moved out of its run, is converted without being told its shape; a changed copy
    of the configuration in it is damage."""
    config, folder = write_job(context, "run", steps=2), context.dump("run")
    run(context, 1, ["--config", config, *SAVE], name="first")
    step = (folder / "checkpoint/step-2").rename(context.folder / "weights")
    convert(context, step, "hf")
    text = (context.folder / "hf/config.json").read_text()
    expect(re.search(r'"num_attention_heads": 4\b', text) and re.search(r'"num_key_value_heads": 2\b', text), text)
    kept = step / "titan.config.toml"
    kept.write_text(kept.read_text().replace("n_heads = 4", "n_heads = 8"))
    job = run(context, 1, ["inspect", step, "--verify"], name="inspect", exit_code=1)
    expect("titan.config.toml" in job.text(), job.tail())


@case(60, processors=1)
def unfinished_run_begins_again(context):
    """A killed run without checkpoints starts again with the same command, and with another rate only if told to."""
    config, folder = write_job(context, "run", steps=6), context.dump("run")
    run(context, 1, ["--config", config], name="killed", exit_code=-signal.SIGKILL, env=faults(context, at_row(4) + " do=kill"))
    before = contents(folder)
    job = run(context, 1, ["--config", config, "--optimizer.lr", "1e-2"], name="other", exit_code=2)
    expect("holds another run (rows up to step" in job.text() and contents(folder) == before, job.tail())
    run(context, 1, ["--config", config], name="again")
    expect(steps_of(folder) == [1, 2, 3, 4, 5, 6], f"the rows are {steps_of(folder)}")


LAST_SAVES = {"full": ["--checkpoint.no-last_save_model_only"], "weights": [], "hf": ["--checkpoint.last_save_in_hf"]}


@case(60, processors=1, last_save=list(LAST_SAVES))
def nothing_to_do(context, last_save):
    """A finished run's command, given again, succeeds, changes nothing and says why; so does one with fewer steps."""
    config, folder = write_job(context, "run", steps=4), context.dump("run")
    words = ["--config", config, *SAVE, *LAST_SAVES[last_save]]
    text = run(context, 1, words, name="first").text()
    expect(f"training steps 1 to 4 of 128 tokens each; results go to {folder}, a checkpoint every 2 steps in {folder}/checkpoint\n" in text, text)
    loss = f"{read_rows(folder / 'metrics.jsonl')[-1]['loss']:.5f}"
    end = rf"training completed: 4 steps, this start took 0:\d\d, loss {loss} at step 4; metrics.jsonl and config.toml are in {folder}, the last checkpoint is {folder}/checkpoint/step-4\n"
    expect(re.search(end, text), f"{end} is not in\n{text}")
    before = contents(folder)
    for steps in (4, 2):
        job = run(context, 1, [*words, "--training.steps", steps], name=f"again-{steps}")
        expect(f"is already at step 4 of {steps}: nothing to do" in job.text(), job.tail())
        expect("training completed" not in job.text() and contents(folder) == before, "it did something")
    job = run(context, 1, [*words, "--training.steps", 6], name="more")
    begins = 3 if last_save != "full" else 5  # step 2 is the newest full state
    expect(steps_of(folder) == [1, 2, 3, 4, 5, 6], f"the rows are {steps_of(folder)}")
    expect(f"from {folder}/checkpoint/step-{begins - 1}\n" in job.text(), job.tail())


@case(30, processors=1, number=["SIGTERM", "SIGINT"])
def stop_without_checkpoints(context, number):
    """A signal that ends a run without a save gives the signal's own exit code, not that of a saved run."""
    signal_number = getattr(signal, number)
    gate = Gate(context, "stop")
    job = start(context, 1, ["--config", write_job(context, "run", steps=8)], env=faults(context, gate.rule(at_row(3))))
    gate.signal(context, job, signal_number)
    code = job.wait()
    expect(code == 128 + signal_number, f"exit code {code}, expected {128 + signal_number}\n{job.tail()}")
    expect(f"{number}: finishing this step; checkpoints are off" in job.text() and "nothing was saved" in job.text(), job.tail())


@case(60)
def one_message_for_all_ranks(context):
    """An error that all ranks find alike, before or after they have met, is reported once."""
    config = write_job(context, "run", steps=4)
    run(context, 2, ["--config", config, *FULL], name="first")
    (context.folder / "empty").mkdir()
    more = ["--config", config, *FULL, "--training.steps", 6]
    mistakes = {
        "dataset": ([*more, "--training.dataset", "parquet"], 2, "parquet"),
        "no_files": ([*more, "--training.dataset_path", context.folder / "empty"], 2, "/empty"),
        "resume": ([*more, "--training.seq_len", 32], 1, "training.seq_len was 64, is 32"),
        "rate": ([*more, "--optimizer.lr", "1e-2"], 0, "optimizer.lr is 0.003 in the checkpoint"),
    }
    for name, (words, exit_code, message) in mistakes.items():
        job = run(context, 2, words, name=name, exit_code=exit_code)
        # A late rank ends with what the first one has told it.
        lines = [line for line in job.text().splitlines() if message in line and " stops: rank " not in line]
        expect(len(lines) == 1, f"{name}: {len(lines)} lines with {message!r}, expected one\n{job.tail(30)}")


@case(30)
def late_rank_0_is_heard(context):
    """torchrun ends all ranks with the first. A rank that leaves the report to rank 0 waits until that has started and
    reported."""
    late = context.folder / "late"
    late.write_text(f'#!/bin/sh\n[ "$RANK" = 0 ] && sleep 1\nexec {context.program} "$@"\n')
    late.chmod(0o755)
    words = [late, "--config", write_job(context, "run", steps=1), *FULL, "--training.dataset", "parquet"]
    job = Job([*launcher_words("torchrun", 2), *words], context.folder / "logs", "late", {})
    expect(job.wait() == 1 and "unknown dataset" in job.text(), job.tail(30))


@case(30, processors=1)
def interrupted_command(context):
    """Ctrl-C ends a command that has nothing to finish, at once."""
    run(context, 1, ["--config", write_job(context, "run", steps=1), *FULL], name="first")
    gate = Gate(context, "write")
    words = ["convert", context.dump("run") / "checkpoint/step-1", context.folder / "model.pt"]
    job = start(context, 1, words, name="convert", env=faults(context, gate.rule("call=write path=*/model.pt*")))
    gate.wait(job)
    kill(job.process.pid, signal.SIGINT)
    code = job.wait()
    expect(code == 128 + signal.SIGINT, f"exit code {code}, expected {128 + signal.SIGINT}\n{job.tail()}")
    expect(not (context.folder / "model.pt").exists(), "half a model has the name of a whole one")


GONE = "removed, moved or replaced while"


def check_stopped(job, code):
    """Checks that a run which has lost its folder says so once, with exit code 1 and without a word of success."""
    expect(code == 1, f"exit code {code}, expected 1\n{job.tail(30)}")
    said = own_reasons(job.text(), GONE)
    expect(len(said) == 1 and "training completed" not in job.text(), f"expected one reason, found {said}\n{job.tail(30)}")


@case(60, how=["removed", "moved"])
def folder_gone(context, how):
    """A run whose dump folder is removed or moved ends with the reason and makes nothing there; a moved one goes on."""
    config, folder, moved = write_job(context, "run", steps=6), context.dump("run"), context.folder / "moved"
    gate = Gate(context, "row")
    words = ["--config", config, *FULL]
    job = start(context, 2, words, name="first", env=faults(context, gate.rule(at_row(3))))
    gate.wait(job)
    if how == "moved":
        folder.rename(moved)
    else:
        shutil.rmtree(folder)
    gate.open()
    check_stopped(job, job.wait())
    expect(not folder.exists(), f"it made {sorted(folder.rglob('*'))}")
    if how == "moved":
        again = run(context, 2, [*words, "--job.dump_folder", moved], name="again")
        expect(f"from {moved}/checkpoint/step-2\n" in again.text() and steps_of(moved) == [1, 2, 3, 4, 5, 6], again.tail())


@case(60, processors=1, where=["row", "save"])
def second_run_in_place_of_the_first(context, where):
    """A second start in the removed folder of a running one is not disturbed: the first stops before it writes there."""
    config, folder = write_job(context, "run", steps=6), context.dump("run")
    words, in_save = ["--config", config, *FULL], "call=write path=*/step-4.tmp/*"
    gate, second_gate = Gate(context, "first"), Gate(context, "second")
    first = start(context, 1, words, name="first", env=faults(context, gate.rule(in_save if where == "save" else at_row(3))))
    gate.wait(first)
    shutil.rmtree(folder)
    second = start(context, 1, words, name="second", env=faults(context, second_gate.rule(in_save)))
    second_gate.wait(second)
    before = contents(folder)
    gate.open()
    check_stopped(first, first.wait())
    expect(contents(folder) == before, f"the first run changed files of the second\n{first.tail()}")
    second_gate.open()
    expect(second.wait() == 0 and steps_of(folder) == [1, 2, 3, 4, 5, 6], second.tail())
    run(context, 1, ["inspect", folder / "checkpoint/step-4", "--verify"], name="inspect")


SAVES = "another run saves in"


@case(60, processors=1, whose=["neither", "first", "second"])
def second_run_in_the_same_checkpoints(context, whose):
    """Two runs never save in one folder at a time, whether it is in the dump folder of neither, the first or the second."""
    shared = context.folder / "shared" if whose == "neither" else context.dump(whose) / "checkpoint"
    elsewhere = ["--checkpoint.folder", shared]
    words = {name: ["--config", write_job(context, name, steps=6), *FULL, *([] if name == whose else elsewhere)] for name in ("first", "second")}
    gate = Gate(context, "row")
    first = start(context, 1, words["first"], name="first", env=faults(context, gate.rule(at_row(3))))
    gate.wait(first)
    before = contents(shared)
    refused = run(context, 2, words["second"], name="refused", exit_code=2)
    expect(f'checkpoint.folder = "' in refused.text() and f"{SAVES} {shared}" in refused.text(), refused.tail())
    expect(contents(shared).keys() == before.keys(), "the refused run changed the checkpoints of the other")
    gate.open()
    expect(first.wait() == 0, first.tail())
    again = run(context, 1, [*words["second"], "--training.steps", 8], name="second")
    expect(f"from {shared}/step-6\n" in again.text() and (shared / "step-8").is_dir(), again.tail())
    expect(all(path.name.startswith("step-") for path in shared.iterdir()), f"a lock is left in {sorted(shared.iterdir())}")


@case(60, processors=1)
def second_run_in_place_of_the_checkpoints(context):
    """A run whose checkpoint.folder is moved away does not save in the folder that another run has made there since."""
    shared, gates = context.folder / "shared", {name: Gate(context, name) for name in ("first", "second")}
    words = {name: ["--config", write_job(context, name, steps=6), *FULL, "--checkpoint.folder", shared] for name in gates}
    jobs = {}
    for name, gate in gates.items():
        jobs[name] = start(context, 1, words[name], name=name, env=faults(context, gate.rule(at_row(3))))
        gate.wait(jobs[name])
        if name == "first":
            shared.rename(context.folder / "moved")
    gates["first"].open()
    expect(jobs["first"].wait() == 1 and len(own_reasons(jobs["first"].text(), SAVES)) == 1, jobs["first"].tail(30))
    gates["second"].open()
    expect(jobs["second"].wait() == 0, jobs["second"].tail())
    run(context, 1, ["inspect", shared / "step-6", "--verify"], name="inspect")


@case(30, processors=1)
def checkpoints_gone(context):
    """Checkpoints that something else removes are named at the next save, which is made; so it is for the next start."""
    config, folder = write_job(context, "run", steps=6), context.dump("run")
    gate = Gate(context, "row")
    job = start(context, 1, ["--config", config, *FULL], env=faults(context, gate.rule(at_row(5))))
    gate.wait(job)
    shutil.rmtree(folder / "checkpoint")
    gate.open()
    expect(job.wait() == 0, job.tail())
    expect(f"step-2, step-4 are gone from {folder}/checkpoint: something other than this run" in job.text(), job.tail())
    run(context, 1, ["inspect", folder / "checkpoint/step-6", "--verify"], name="inspect")
