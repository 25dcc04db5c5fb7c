"""Tests checkpoints that cannot be read for now, which are not damaged, and entries that are not checkpoints."""
import errno
import re

from cases_failure import check_blames, check_reason, own_reasons
from cases_convert import command
from checkpoint_tools import SAVE, check_intact
from fixtures import write_job
from harness import case, expect, faults, run, start_plain

EVERY_TWO = ["--checkpoint.interval", 2, "--checkpoint.keep_latest_k", 0, "--lr_scheduler.total_steps", 10]


def train(context, name, steps, exit_code=0, env=None):
    words = ["--config", write_job(context, "run", steps=steps), *SAVE, *EVERY_TWO]
    return run(context, 2, words, name=name, exit_code=exit_code, env=env).text()


def bytes_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@case(90)
def read_error_is_not_damage(context):
    """A checkpoint that cannot be read ends the run with the reason, and stays; an error that passes is retried."""
    train(context, "whole", 4)
    newest = context.dump("run") / "checkpoint/step-4"
    saved = bytes_of(newest)
    lasting = {
        f"rank=1 call=read path={newest}/__1_0.distcp do=errno:{errno.EIO}": r"__1_0\.distcp: Input/output error",
        f"rank=1 call=open_read path={newest}/__1_0.distcp do=errno:{errno.EMFILE}": r"__1_0\.distcp: Too many open files",
        f"rank=0 call=read path={newest}/.metadata do=errno:{errno.EINTR}": r"\.metadata: Interrupted system call",
        f"rank=1 call=read path={newest}/titan.checksums.json do=errno:{errno.ESTALE}": r"checksums\.json: Stale file handle",
        f"rank=0 call=look path={newest}/.metadata do=errno:{errno.EACCES}": r"\.metadata: Permission denied",
    }
    for number, (rule, reason) in enumerate(lasting.items()):
        text = train(context, f"lasting{number}", 5, exit_code=1, env=faults(context, rule))
        check_reason(text, rf"failed: .*{reason}.*the checkpoint may be whole")
        expect("Falling back" not in text and "looking at older" not in text, text)
        said = own_reasons(text, r"titan-train: rank \d+: ")
        expect(len(said) == 1, f"the ranks give {len(said)} reasons, expected one: {said}")
        expect(bytes_of(newest) == saved, f"{rule} changed the checkpoint")
    passing = faults(context, f"rank=1 call=read path={newest}/__1_0.distcp do=errno:{errno.ESTALE} times=2")
    text = train(context, "passing", 5, env=passing)
    for attempt in (1, 2):
        again = rf"__1_0\.distcp: Stale file handle; trying again \({attempt} of 3\)"
        expect(len(re.findall(again, text)) == 1, f"expected attempt {attempt} once\n{text}")
    expect(f"from {newest}\n" in text, f"it did not go on from step 4\n{text}")


@case(90)
def odd_entries_are_passed_over(context):
    """An entry that is not a checkpoint is passed over with the reason, in a line; a save says what it replaces."""
    train(context, "whole", 4)
    checkpoints = context.dump("run") / "checkpoint"
    (checkpoints / "step-5").mkdir()
    (checkpoints / "step-7").mkdir()
    (checkpoints / "step-7/__0_0.distcp").touch()
    (checkpoints / "step-8/.metadata").mkdir(parents=True)
    (checkpoints / "step-13").symlink_to("step-13")
    (checkpoints / "step-15").touch()
    text = train(context, "odd", 5)
    for line in (
        r"step-5 is incomplete \(an empty folder\); step-7 is incomplete \(no \.metadata\); "
        r"step-8 is incomplete \(its \.metadata is not a file\)",
        r"step-13 is not a folder, and is passed over",
        r"step-15 is not a folder, and is passed over",
        r"step-5 was incomplete \(an empty folder\) when this run looked .*; this save has replaced it",
    ):
        expect(len(re.findall(line, text)) >= 1, f"no line says '{line}'\n{text}")
    expect(f"from {checkpoints}/step-4\n" in text, text)
    check_intact(checkpoints / "step-5")
    for path in (context.dump("run"), checkpoints):
        listed = run(context, 1, ["inspect", path], name="inspect").text()
        check_reason(listed, r"step-5 +complete +full")
        check_reason(listed, r"step-7 +incomplete")


@case(60)
def rank_0_fails_while_choosing(context):
    """An error of the system that rank 0 alone meets before the ranks do is the reason that the other one gives, too."""
    train(context, "whole", 2)
    folder = context.dump("run") / "checkpoint/step-2"
    words = ["--config", write_job(context, "run", steps=4), *SAVE, *EVERY_TWO]
    fault = faults(context, f"call=look path={folder} do=errno:{errno.EIO}")
    jobs = start_plain(context, 2, words, variables={0: fault})
    codes = [job.wait() for job in jobs]
    expect(codes == [1, 3], f"exit codes {codes}, expected [1, 3]\n{jobs[0].tail()}\n{jobs[1].tail()}")
    check_reason(jobs[0].errors(), rf"{folder}: Input/output error")
    check_blames(jobs[1].errors(), 1, 0)
    check_reason(jobs[1].errors(), rf"{folder}: Input/output error")


@case(60, processors=1)
def changed_configuration_of_a_step(context):
    """A step's own configuration is compared with its checksum before any command believes it; without one, it is taken."""
    run(context, 1, ["--config", write_job(context, "run", steps=1), *SAVE, "--model.args.rope_theta", 500000])
    step, out = context.dump("run") / "checkpoint/step-1", context.folder / "out"
    file = step / "titan.config.toml"
    changed = file.read_bytes().replace(b"rope_theta = 5", b"rope_theta = 7")
    expect(changed != file.read_bytes(), file.read_text())
    file.write_bytes(changed)
    prompt = ["--prompt", "import", "--max-tokens", 1]
    task = context.folder / "task.jsonl"
    task.write_text('{"text": "import os"}\n')
    for each in (
        ["convert", step, out],
        ["generate", "--checkpoint", step, *prompt],
        ["eval", step, "--task", f"jsonl {task}", "--device", "cpu"],
        ["inspect", step],
    ):
        _, error = command(context, *each, exit_code=1)
        check_reason(error, r"step-1 is damaged: titan\.config\.toml has the checksum .*, titan\.checksums\.json says")
        expect(not out.exists(), f"{each} wrote something")
    (step / "titan.checksums.json").unlink()
    command(context, "convert", step, out)
    # In an export, whose small files people edit, a change is only said.
    described = out / "config.json"
    text = described.read_text()
    expect("700000" in text, text)
    described.write_text(text.replace("700000", "900000"))
    _, error = command(context, "generate", "--checkpoint", out, *prompt)
    check_reason(error, r"config\.json has the checksum .*, titan\.checksums\.json says")
