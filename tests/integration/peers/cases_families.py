"""Tests models of families that people bring (model.from): transformers' files and losses are in tests/golden."""
import json
import shutil

import golden
import golden_families as families
from cases_convert import command
from cases_transformers import TOLERANCE, check_config, check_losses, check_weights, write_theirs
from checkpoint_tools import train
from harness import case, expect, read_rows, run

def their_folder(context, name):
    """Returns the folder that save_pretrained wrote, with a tokenizer, and transformers' answers about it."""
    folder, answers = write_theirs(context, golden.answers("families")[name])
    for file in golden.TOKENIZER.iterdir():
        shutil.copy(file, folder)
    return folder, answers


def our_losses(context, folder, ranks, *more):
    job = families.write_job(context, folder, "ours", golden.WEIGHT_STEPS)
    words = ["--config", job, *golden.FP32, *golden.STILL, "--checkpoint.load_only", *more]
    train(context, ranks, words, "ours")
    return [row["loss"] for row in read_rows(context.dump("ours") / "metrics.jsonl")]


@case(60, family=list(families.FAMILIES))
def family_from_folder(context, family):
    """A folder of save_pretrained alone says which model it is, and the model has the same loss here as there."""
    folder, answers = their_folder(context, family)
    check_losses(our_losses(context, folder, golden.RANKS), answers["losses"])


@case(60, family=list(families.FAMILIES))
def family_has_the_logits(context, family):
    """The log-probabilities of every token behind a prompt are transformers'."""
    folder, answers = their_folder(context, family)
    prompts = context.folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in families.PROMPTS))
    words = ["--dtype", "float32", "--device", "cpu", "--temperature", "0", "--max-tokens", "1", "--quiet"]
    out, _ = command(context, "generate", "--checkpoint", folder, "--prompts", prompts, "--json", "--logprobs", "64", *words)
    rows = [json.loads(line) for line in out.splitlines()]
    expect(len(rows) == len(answers["prompts"]), f"{len(rows)} answers")
    for row, expected in zip(rows, answers["prompts"]):
        expect(row["prompt_ids"] == expected["ids"], f"other tokens: {row['prompt_ids']}, transformers' {expected['ids']}")
        (scored,) = row["top_logprobs"]
        expect(sorted(id for id, _ in scored) == list(range(64)), f"not every token has a score: {scored}")
        expect([score for _, score in scored] == sorted((score for _, score in scored), reverse=True), "not in order")
        expect(row["logprobs"] == [scored[0][1]] and row["ids"] == [scored[0][0]], "the likeliest was not chosen")
        size = max(map(abs, expected["log_probs"]))
        distance = max(abs(score - expected["log_probs"][id]) for id, score in scored) / size
        expect(distance <= TOLERANCE, f"{row['prompt']!r}: log-probabilities differ by {distance:.1e} of the largest")


@case(60, family=list(families.FAMILIES))
def family_comes_back(context, family):
    """An export has the weights that were read, bit for bit, and the config that from_pretrained has read."""
    folder, answers = their_folder(context, family)
    export = families.export(context, folder, "float32")
    check_weights(export, answers, "float32")
    check_config(export, answers["export"])


@case(60, quick=True)
def from_folder_is_remembered(context):
    """A run of model.from goes on, and its checkpoints can be used, when the folder is gone."""
    folder, _ = their_folder(context, "qwen25")
    job = families.write_job(context, folder, "run", 4)
    words = ["--config", job, *golden.FP32, "--checkpoint.no-last_save_model_only"]
    train(context, 2, [*words, "--training.steps", "2"], "first")
    shutil.move(folder, context.folder / "gone")
    first = context.dump("run")
    generate = ["generate", "--checkpoint", first, "--tokenizer", golden.TOKENIZER, "--prompt", "the", "--max-tokens", "3"]
    run(context, 1, generate, name="generate")
    saved = ["--config", first / "config.toml", "--model.hf_assets_path", golden.TOKENIZER, "--training.steps", "4"]
    train(context, 2, saved, "second")
    steps = [row["step"] for row in read_rows(first / "metrics.jsonl")]
    expect(steps == [1, 2, 3, 4], f"steps {steps}")
