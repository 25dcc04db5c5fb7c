"""Tests that a model that learned answers gives and ends them in transformers as it does here."""
import json
import subprocess

import chat_runs as chats
from cases_convert import command
from harness import ROOT, TIME_SCALE, case, expect, peer_python, read_rows, run


def our_answers(context, checkpoint, *more, render=lambda question: question):
    prompts = context.folder / "questions.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": render(question)}) + "\n" for question in chats.ANSWERS))
    words = ["--checkpoint", checkpoint, *more, "--prompts", prompts, "--temperature", "0", "--max-tokens", "60"]
    out, _ = command(context, "generate", *words, "--json", "--quiet", "--device", "cpu", "--dtype", "float32")
    return [{key: row[key] for key in ("prompt_ids", "ids", "text")} for row in map(json.loads, out.splitlines())]


def their_answers(folder):
    script = ROOT / "tests/integration/peers/chat_peer.py"
    words = [peer_python("transformers"), script, folder, *chats.ANSWERS]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100 * TIME_SCALE)
    expect(done.returncode == 0, done.stderr[-3000:])
    return json.loads(done.stdout)


@case(180, tuned=["whole", "lora"])
def chat_ends_in_transformers(context, tuned):
    """transformers' generate() on an export gives the learned answers and ends there, with no word about stop tokens."""
    tokenizer = chats.write_tokenizer(context.folder / "tokenizer", chat_template=None)
    template = context.folder / "template.jinja"
    template.write_text(chats.TEMPLATE)
    words = [*chats.words_of(context, tokenizer, 120), "--chat.chat_template", template]
    if tuned == "lora":
        base = [*words, *chats.EXPORT, "--job.dump_folder", context.dump("base"), "--training.steps", "20"]
        run(context, 1, base, name="base")
        start = ["--checkpoint.initial_load_path", context.dump("base") / "checkpoint/step-20", "--checkpoint.initial_load_in_hf"]
        run(context, 1, [*words, *start, "--lora.rank", "16", "--lora.alpha", "32"])
        source, export = context.dump("run"), context.folder / "merged"
        command(context, "convert", source, export, "--to", "hf", "--merge")
    else:
        run(context, 1, [*words, "--checkpoint.export_dtype", "float32"])
        source, export = context.dump("run"), context.folder / "export"
        command(context, "convert", source, export, "--to", "hf")
    loss = read_rows(context.dump("run") / "metrics.jsonl")[-1]["loss"]
    expect(loss < 0.05, f"the loss fell to {loss} only")  # no token of the answers is in doubt, on whatever processor
    theirs = their_answers(export)
    expect([row["text"] for row in theirs] == list(chats.ANSWERS.values()), f"transformers' answers: {theirs}")
    expect(all(row["ids"][-1] == chats.END_ID for row in theirs), f"transformers goes on behind the answers: {theirs}")
    for checkpoint in (source, export):
        found = our_answers(context, checkpoint, "--chat")
        expect(found == theirs, f"answers of {checkpoint}: {found}, transformers': {theirs}")
        # A text ends there, too, if the prompt is rendered by hand.
        found = our_answers(context, checkpoint, render=chats.prompt_for)
        expect(found == theirs, f"texts of {checkpoint}: {found}, transformers': {theirs}")
