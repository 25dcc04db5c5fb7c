"""Tests that a run keeps its chat template, and that its exports say how an answer ends."""
import json

import chat_runs as chats
from cases_convert import command
from harness import case, expect, run

SAVE = ["--checkpoint.no-last_save_model_only"]
KEPT = "titan.chat_template.jinja"


def generation_config(folder):
    return json.loads((folder / "generation_config.json").read_text())


def expect_stops(folder, bos, *eos, **more):
    expected = {"bos_token_id": bos, "eos_token_id": eos[0] if len(eos) == 1 else list(eos), **more}
    found = generation_config(folder)
    expect(found == expected, f"{folder}: generation_config.json is {found}, expected {expected}")
    config = json.loads((folder / "config.json").read_text())
    expect(config["eos_token_id"] == chats.EOS_ID, f"config.json of {folder}: eos_token_id {config['eos_token_id']}")


def exported(context, source, name, *more):
    target = context.folder / name
    _, err = command(context, "convert", source, target, "--to", "hf", *more)
    return target, err


def their_model(context, words):
    """Returns the folder of a model in Hugging Face's format, whose other stop tokens and sampling exports keep."""
    run(context, 1, [*words, *chats.EXPORT, "--job.dump_folder", context.dump("theirs"), "--training.steps", 1], name="theirs")
    folder = context.dump("theirs") / "checkpoint/step-1"
    expect_stops(folder, None, chats.EOS_ID, chats.END_ID)
    (folder / "generation_config.json").write_text(json.dumps(chats.DEFAULTS))
    return folder


@case(120, quick=True)
def chat_export_ends_turns(context):
    """An export of a run on chats lists EOS, the end of a turn and the stop tokens of the model that it began with."""
    words = chats.words_of(context, chats.write_tokenizer(context.folder / "tokenizer"), 2)
    theirs = their_model(context, words)
    kept = {key: chats.DEFAULTS[key] for key in ("do_sample", "temperature", "top_p")}
    stops = (chats.START_ID, chats.EOS_ID, chats.END_ID, 259)
    start = ["--checkpoint.initial_load_path", theirs, "--checkpoint.initial_load_in_hf"]
    last = ["--training.steps", 3]
    run(context, 1, [*words, *start, *SAVE], name="run")
    step = context.dump("run") / "checkpoint/step-2"
    expect_stops(exported(context, step, "converted")[0], *stops, **kept)
    run(context, 1, [*words, *start, *last, *chats.EXPORT, "--checkpoint.last_save_model_only"], name="last")
    expect_stops(context.dump("run") / "checkpoint/step-3", *stops, **kept)
    # Adapters have no such file; what is merged has.
    lora = [*words, *start, "--job.dump_folder", context.dump("lora"), "--lora.rank", 2]
    run(context, 1, [*lora, *SAVE], name="lora")
    adapters, _ = exported(context, context.dump("lora"), "adapters")
    expect(not (adapters / "generation_config.json").exists(), "adapters say how to generate")
    expect_stops(exported(context, context.dump("lora"), "merged", "--merge")[0], *stops, **kept)
    # Without conversations, a text ends as it did in the first model.
    text = ["--training.dataset", "jsonl", "--training.dataset_path", context.fixtures / "corpus.jsonl"]
    run(context, 1, [*words, *start, *SAVE, *text, "--job.dump_folder", context.dump("text")], name="text")
    expect_stops(exported(context, context.dump("text"), "of_text")[0], chats.START_ID, chats.EOS_ID, chats.END_ID, 259, **kept)
    # By way of our format the file stays as it is; when the folder is gone, the export says what it lacks.
    dcp = context.folder / "dcp"
    command(context, "convert", theirs, dcp)
    expect_stops(exported(context, dcp, "back")[0], chats.START_ID, chats.EOS_ID, chats.END_ID, 259, **kept)
    theirs.rename(context.folder / "gone")
    target, err = exported(context, step, "later")
    expect(f"generation_config.json has nothing of {theirs}: training started from there, and it is gone" in err, err)
    expect_stops(target, None, chats.EOS_ID, chats.END_ID)


def prompt_of(context, checkpoint, *more):
    words = ["--checkpoint", checkpoint, "--chat", "--prompt", "Who?", "--max-tokens", 1, "--json", "--quiet", "--device", "cpu"]
    out, _ = command(context, "generate", *words, *more)
    return json.loads(out)["prompt"]


@case(120, quick=True)
def chat_template_is_kept(context):
    """A run's commands and exports have its template when the file is gone; a resume says where its copy is."""
    tokenizer = chats.write_tokenizer(context.folder / "tokenizer", chat_template=None)
    file = context.folder / "template.jinja"
    file.write_text(chats.TEMPLATE)
    words = [*chats.words_of(context, tokenizer, 2), *SAVE]
    with_file = [*words, "--chat.chat_template", file]
    run(context, 1, with_file, name="first")
    dump = context.dump("run")
    step, copy = dump / "checkpoint/step-2", dump / KEPT
    for place in (copy, step / KEPT):
        expect(place.read_text() == chats.TEMPLATE, f"{place} has another text")
    file.unlink()
    expected = chats.prompt_for("Who?")
    for place in (dump, step):
        found = prompt_of(context, place)
        expect(found == expected, f"prompt {found!r} of {place}")
    moved = tokenizer.rename(context.folder / "moved")
    for name, more, has_tokenizer in (("bare", [], False), ("whole", ["--tokenizer", moved], True)):
        target, _ = exported(context, step, name, *more)
        expect((target / "chat_template.jinja").read_text() == chats.TEMPLATE, f"{name} has another template")
        expect((target / "tokenizer.json").exists() == has_tokenizer, f"files of {name}: {sorted(target.iterdir())}")
    expect_stops(context.folder / "whole", None, chats.EOS_ID, chats.END_ID)
    found = prompt_of(context, context.folder / "whole")
    expect(found == expected, f"prompt {found!r} of the export")
    moved.rename(tokenizer)
    more = ["--training.steps", 3]
    job = run(context, 1, [*with_file, *more], name="gone", exit_code=2)
    expect("chat.chat_template: " in job.text() and f"set chat.chat_template to {copy}" in job.text(), job.tail())
    run(context, 1, [*words, *more, "--chat.chat_template", copy], name="goes_on")
    expect(copy.read_text() == chats.TEMPLATE, "the copy has changed")
    # A run without conversations leaves no template of the run before it.
    text = ["--training.dataset", "jsonl", "--training.dataset_path", context.fixtures / "corpus.jsonl", "--checkpoint.no-enable"]
    run(context, 1, [*words, *text, "--overwrite"], name="text")
    expect(not copy.exists(), f"{copy} is there after a run on text")


@case(120, quick=True)
def chat_template_makes_the_run(context):
    """A run does not go on with another template or other special tokens, unless it is told to."""
    tokenizer = chats.write_tokenizer(context.folder / "tokenizer")
    words = [*chats.words_of(context, tokenizer, 1), *SAVE]
    steps = iter(range(2, 10))

    def resume(name, *more, exit_code=0):
        goal = next(steps) if exit_code == 0 else 9
        return run(context, 1, [*words, "--training.steps", goal, *more], name=name, exit_code=exit_code).text()

    run(context, 1, words, name="first")
    # The same text in a file of its own.
    same, other = context.folder / "same.jinja", context.folder / "other.jinja"
    same.write_text(chats.TEMPLATE)
    other.write_text(chats.TEMPLATE.replace("{{ m.role }}", "{{ m.role | upper }}"))
    text = resume("same", "--chat.chat_template", same)
    expect("Changed since the checkpoint was saved" in text and "chat.chat_template was None" in text, text)
    text = resume("other", "--chat.chat_template", other, exit_code=1)
    expect('chat.chat_template was "' in text and 'set checkpoint.allow_changed = ["chat.chat_template"]' in text, text)
    # Another text in the tokenizer's folder, whose other files stay the same.
    words += ["--chat.chat_template", "None"]
    resume("back")
    (tokenizer / "chat_template.jinja").write_text(other.read_text())
    text = resume("changed", exit_code=1)
    place = f'is that of the tokenizer in "{tokenizer}"'
    expect(f"chat.chat_template was another template, which the checkpoint keeps as {KEPT}, {place}" in text, text)
    resume("allowed", "--checkpoint.allow_changed", "chat.chat_template")
    text = resume("known")
    expect("another template" not in text, text)
    (tokenizer / "special_tokens_map.json").write_text('{"pad_token": "<|call|>"}')
    text = resume("tokens", exit_code=1)
    expect(f"chat.chat_template was one with other special tokens, {place}" in text, text)
    resume("anew", "--checkpoint.exclude_from_loading", "dataloader")
    # How much a conversation counts changes results from here on, and no row; what is cut changes rows.
    text = resume("weight", "--chat.loss_weight", "sample")
    expect('chat.loss_weight was "token", is "sample"' in text, text)
    words += ["--chat.loss_weight", "sample"]
    text = resume("long", "--chat.too_long", "cut", exit_code=1)
    expect('checkpoint.allow_changed = ["chat.too_long"]' in text, text)
