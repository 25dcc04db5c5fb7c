"""Tests what a run that resumes from a checkpoint says, refuses and keeps."""
import os
import re
import shutil

from checkpoint_tools import SAVE, check_intact
from fixtures import write_job
from harness import case, check_identical, expect, read_rows, rows_by_step, run


@case(90)
def resume_changed_config(context):
    """Changes are listed; those that make it another run are refused, each by name, before anything is loaded."""
    words = ["--config", write_job(context, "changed", steps=2), *SAVE]
    run(context, 1, words, name="save")

    def resume(*more, steps=3, exit_code=0, name="again"):
        return run(context, 1, [*words, "--training.steps", steps, *more], name=name, exit_code=exit_code).text()

    text = resume("--optimizer.weight_decay", 0.5, "--training.max_norm", 2, "--checkpoint.load_step", 2)
    expect("training.max_norm was 1.0, is 2.0" in text and "optimizer.weight_decay was" in text, text)
    expect("training.steps was 2, is 3" in text, text)
    expect("was" not in resume(name="same", steps=4).split("Changed since")[0], "changes are listed in one place")

    flags = ["--debug.seed", 7, "--training.seq_len", 16]
    text = resume(*flags, exit_code=1, steps=5)
    expect('checkpoint.allow_changed = ["training.seq_len", "debug.seed"]' in text, text)
    expect("debug.seed was 42, is 7" in text, text)
    # The data order, which the seed and the length decide, is not restored: there is no contradiction.
    resume(*flags, "--checkpoint.exclude_from_loading", "dataloader", steps=5)
    words += flags

    # The same tokenizer at another path is the same; another one at the same path is not.
    moved, other = context.folder / "moved", context.folder / "other"
    for folder in (moved, other):
        shutil.copytree(context.fixtures / "tokenizer", folder)
    text = resume("--model.hf_assets_path", moved, steps=6, name="moved")
    expect("model.hf_assets_path was" in text, text)
    with open(next(other.iterdir()), "ab") as file:
        file.write(b"\xc0\x3e\x01")  # a field that SentencePiece does not know, and skips
    text = resume("--model.hf_assets_path", other, steps=7, exit_code=1, name="other")
    expect('checkpoint.allow_changed = ["model.hf_assets_path"]' in text, text)
    resume("--model.hf_assets_path", other, "--checkpoint.allow_changed", "model.hf_assets_path", steps=7, name="allowed")
    text = resume("--checkpoint.allow_changed", "model.flavour", exit_code=2, name="unknown")
    expect('did you mean "model.flavor"' in text, text)


@case(60)
def kernels_are_a_key(context):
    """cpu.kernels takes effect, config.toml and the checkpoint record it, and a resume says that it has changed."""
    rows = {}
    for kernels in ("own", "aten"):
        words = ["--config", write_job(context, kernels, steps=2), *SAVE, "--cpu.kernels", kernels]
        run(context, 1, words, name=kernels)
        rows[kernels] = [(row["loss"], row["grad_norm"]) for row in read_rows(context.dump(kernels) / "metrics.jsonl")]
        expect(f'kernels = "{kernels}"' in (context.dump(kernels) / "config.toml").read_text(), "config.toml is silent")
    # In bfloat16 they round at other places.
    expect(rows["own"] != rows["aten"], f"cpu.kernels changes no number: {rows}")
    text = run(context, 1, [*words, "--training.steps", 3, "--cpu.kernels", "own"], name="resumed").text()
    expect('cpu.kernels was "aten", is "own"' in text, text)


@case(60)
def weights_of_another_model(context):
    """A checkpoint with more than the model is not loaded in part: its other weights are named, as missing ones are."""
    run(context, 1, ["--config", write_job(context, "large", steps=1), *SAVE], name="save")
    words = ["--config", write_job(context, "small", steps=1), *SAVE, "--checkpoint.initial_load_path"]
    words += [context.dump("large") / "checkpoint/step-1", "--model.args.n_layers"]
    text = run(context, 1, [*words, 1], name="fewer", exit_code=1).text()
    expect("unexpected key: layers.1.attention.wq.weight" in text and "9 weights that are not in the model" in text, text)
    text = run(context, 1, [*words, 3], name="more", exit_code=1).text()
    expect("missing key: layers.2.attention.wq.weight" in text, text)


@case(60)
def resume_without_the_model(context):
    """The weights are drawn again only if the checkpoint's are not wanted."""
    words = ["--config", write_job(context, "drawn", steps=1), *SAVE]
    run(context, 2, words, name="save")
    first = read_rows(context.dump("drawn") / "metrics.jsonl")[0]
    # The data starts again too, so that the first batch meets the first weights again.
    exclude = ["--checkpoint.exclude_from_loading", "model,optimizer,lr_scheduler,dataloader"]
    run(context, 2, [*words, "--training.steps", 2, *exclude], name="again")
    second = read_rows(context.dump("drawn") / "metrics.jsonl")[1]
    expect((second["loss"], second["grad_norm"]) == (first["loss"], first["grad_norm"]), f"{first}, then {second}")
    run(context, 2, [*words, "--training.steps", 3, "--checkpoint.exclude_from_loading", "dataloader"], name="loaded")
    third = read_rows(context.dump("drawn") / "metrics.jsonl")[2]
    expect(third["loss"] != first["loss"], f"the weights of step 2 were not taken: {third}")


@case(60)
def resume_torchtitan_order_at_another_size(context):
    """TorchTitan's data order belongs to one number of ranks, and the error says so."""
    words = ["--config", write_job(context, "size", steps=2), *SAVE, "--training.data_order", "torchtitan"]
    run(context, 1, words, name="save")
    text = run(context, 2, [*words, "--training.steps", 3], name="two", exit_code=1).text()
    expect("saved at 1 data-parallel ranks, this run has 2; run at 1, or set checkpoint.exclude_from_loading" in text, text)


@case(60, mode=["disabled", "async"], wide=["disabled"])
def interval_minutes(context, mode):
    """An interval that is over at every step saves after every step; one that never ends saves only after the last."""

    def saved(name, minutes):
        words = ["--config", write_job(context, name, steps=6), *SAVE, "--checkpoint.interval", 100000]
        words += ["--checkpoint.keep_latest_k", 0, "--checkpoint.async_mode", mode, "--checkpoint.interval_minutes", minutes]
        run(context, 2, words, name=name)
        return sorted(os.listdir(context.dump(name) / "checkpoint"))

    names = saved("always", 1e-9)
    expect(names == [f"step-{step}" for step in range(1, 7)], f"with an interval that is always over there are {names}")
    for name in names:
        check_intact(context.dump("always") / "checkpoint" / name)
    names = saved("never", 1e6)
    expect(names == ["step-6"], f"with an interval that is never over there are {names}")


@case(60)
def damaged_checkpoints_are_passed_over(context):
    """A flipped bit in a rank's file, a truncated .metadata: each is named; runs resume from the newest intact one."""
    words = ["--config", write_job(context, "run", steps=8), *SAVE, "--checkpoint.interval", 2, "--checkpoint.keep_latest_k", 0]
    run(context, 2, words, name="whole")
    expected = rows_by_step(context.dump("run") / "metrics.jsonl", exact=True)
    folder = context.dump("run") / "checkpoint"
    data = bytearray((folder / "step-8/__1_0.distcp").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "step-8/__1_0.distcp").write_bytes(data)
    os.truncate(folder / "step-6/.metadata", 1000)
    text = run(context, 2, words, name="again").text()
    expect(re.search(rf"{folder}/step-6 is damaged, looking at older checkpoints", text), text)
    fallen_back = re.search(r"step-8.*__1_0\.distcp.*Falling back to the newest intact checkpoint before step 8", text)
    expect(fallen_back and f"from {folder}/step-4\n" in text, text)
    rows = rows_by_step(context.dump("run") / "metrics.jsonl", exact=True)
    check_identical(rows, expected, ("loss", "max_loss", "grad_norm", "lr", "tokens_seen"), "after the damage")
    for step in (2, 4, 6, 8):
        check_intact(folder / f"step-{step}")
