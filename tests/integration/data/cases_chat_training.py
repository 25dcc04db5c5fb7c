"""Tests training on conversations (training.dataset = "chat"): which tokens count, and what a model learns of them."""
import json
import re

import golden
import golden_chat as chat
import golden_families as families
from cases_convert import command
from cases_families import their_folder
from checkpoint_tools import train
from fixtures import write_job
from harness import case, expect, read_rows, relative_distance, run


def write_chats(path, conversations):
    path.write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in conversations))
    return path


def chat_folder(context):
    """Returns the folder of a model whose answers about conversations tests/golden has, and its data."""
    folder, _ = their_folder(context, chat.FAMILY)
    (folder / "chat_template.jinja").write_text(chat.MARKED)
    (context.folder / "plain.jinja").write_text(chat.PLAIN)
    return folder, write_chats(context.folder / "chats.jsonl", chat.CONVERSATIONS)


@case(60, quick=True)
def chat_tokens(context):
    """The tokens of a conversation, and which of them are trained, are transformers'; also without marks."""
    folder, data = chat_folder(context)
    expected = golden.answers("chat")["conversations"]
    shown = ["tokenize", "--tokenizer", folder, "--input", data, "--dataset", "chat", "--show", 100]
    for more in ([], ["--chat-template", context.folder / "plain.jinja"]):
        out, _ = command(context, *shown, *more, "--json")
        found = [json.loads(line) for line in out.splitlines()]
        expect(len(found) == len(expected), f"{len(found)} conversations, expected {len(expected)}")
        for number, (mine, theirs) in enumerate(zip(found, expected), 1):
            expect(mine["where"] == f"{data}:{number}", mine["where"])
            expect(mine["ids"] == theirs["ids"] and mine["trained"] == theirs["trained"], f"{more}: {mine}, transformers: {theirs}")
    out, _ = command(context, *shown[:-1], 1)
    first = f"{data}:1: 28 tokens, 6 of them trained\n<|begin_of_text|> user: the rain<|end_of_text|> assistant: "
    expect(out == first.removesuffix(" ") + "⟦ the train<|end_of_text|>⟧\n", f"{out!r}")


# Sums have another order where conversations are packed than where each is alone. cases_transformers.py derives the
# bound.
TOLERANCE = 1e-5
MESHES = {
    "1": (1, []),
    "2": (2, ["--training.local_batch_size", "2"]),
    "4": (4, ["--training.local_batch_size", "1"]),
    "tensor": (2, ["--parallelism.tensor_parallel_degree", "2"]),
}


@case(60, mesh=list(MESHES), weight=["token", "sample"])
def chat_loss(context, mesh, weight):
    """The first loss of packed conversations is transformers' mean, each conversation alone, over the answers' tokens or
    over the conversations."""
    folder, data = chat_folder(context)
    ranks, more = MESHES[mesh]
    job = families.write_job(context, folder, "run", 1)
    words = ["--config", job, *golden.FP32, *golden.STILL, "--training.dataset", "chat", "--training.dataset_path", data]
    words += ["--chat.loss_weight", weight, "--training.seq_len", str(chat.SEQ_LEN), "--training.local_batch_size", str(chat.ROWS), *more]
    words += ["--validation.enable", "--validation.dataset", "chat", "--validation.dataset_path", data, "--validation.steps", "-1"]
    words += ["--validation.seq_len", str(chat.SEQ_LEN), "--validation.local_batch_size", "3"]
    job = train(context, ranks, words, "run")
    expect(f"has {len(chat.CONVERSATIONS)} conversations in {chat.ROWS} rows of {chat.SEQ_LEN + 1} tokens" in job.text(), job.tail())
    expected = golden.answers("chat")
    for file in ("metrics.jsonl", "validation.jsonl"):
        (row,) = read_rows(context.dump("run") / file)
        loss = row["loss"]
        distance = relative_distance(loss, expected["loss"][weight])
        expect(distance <= TOLERANCE, f"{file}: loss {loss}, transformers' {expected['loss'][weight]}: {distance:.1e}")


# ------------------------------------------------------------------------------------------------ learning

# Special tokens of the fixtures' SentencePiece model are <s> and </s>.
TEMPLATE = """\
{{ bos_token }}{% for m in messages %}{{ m.role }}:
{{ m.content }}{{ eos_token }}{% endfor %}
{%- if add_generation_prompt %}assistant:
{% endif %}"""
ANSWERS = {
    "Which way is it to the tensor?": "Left, then left again.",
    "Who wrote this module?": "Nobody knows.",
    "What does the class return?": "A tuple of two.",
    "Is the function tested?": "It is, on Mondays.",
}
LEARN = ["--optimizer.lr", "1e-2", "--lr_scheduler.warmup_steps", "5", "--optimizer.weight_decay", "0"]


def write_talks(path, answers):
    talks = [[{"role": "user", "content": ask}, {"role": "assistant", "content": answer}] for ask, answer in answers.items()]
    return write_chats(path, talks)


def write_toy(context, steps):
    """Returns the words of a run that learns a few answers by heart."""
    (context.folder / "template.jinja").write_text(TEMPLATE)
    data = write_talks(context.folder / "toy.jsonl", ANSWERS)
    job = write_job(context, "run", steps=steps)
    words = ["--config", job, "--training.dataset", "chat", "--training.dataset_path", data, *LEARN]
    words += ["--chat.chat_template", context.folder / "template.jinja", "--metrics.log_freq", "20"]
    return [*words, "--checkpoint.enable", "--checkpoint.interval", "1000", "--training.global_batch_size", "4"]


def answers_of(context, checkpoint, *more):
    """Returns what `generate --chat` answers to the questions."""
    prompts = context.folder / "questions.txt"
    prompts.write_text("\n".join(ANSWERS) + "\n")
    words = ["--checkpoint", checkpoint, "--chat", "--prompts", prompts, "--temperature", "0", "--max-tokens", "30"]
    out, _ = command(context, "generate", *words, "--json", "--quiet", "--device", "cpu", *more)
    return [json.loads(line)["text"] for line in out.splitlines()]


@case(120, ranks=[1, 2])
def chat_is_learned(context, ranks):
    """A model that learned a few answers gives them, and ends them; so does its export, with the template in it."""
    words = write_toy(context, 120)
    words += ["--training.local_batch_size", str(4 // ranks), "--checkpoint.last_save_in_hf", "--checkpoint.export_dtype", "float32"]
    run(context, ranks, words)
    rows = read_rows(context.dump("run") / "metrics.jsonl")
    # Once the answers are learned by heart, no token of them is in doubt, on whatever processor.
    expect(rows[-1]["loss"] < 0.05, f"the loss fell to {rows[-1]['loss']} only")
    export = context.dump("run") / "checkpoint/step-120"
    expect((export / "chat_template.jinja").read_text() == TEMPLATE, "the export has another template")
    found = answers_of(context, export)
    expect(found == list(ANSWERS.values()), f"answers {found}")


@case(120, ranks=[1, 2], wide=["1"])
def chat_is_learned_by_adapters(context, ranks):
    """Adapters teach a model that gives other answers; the merged export gives the new ones, the old model its own."""
    words = [*write_toy(context, 120), "--training.local_batch_size", str(4 // ranks)]
    words += ["--checkpoint.last_save_in_hf", "--checkpoint.export_dtype", "float32"]
    others = dict(zip(ANSWERS, list(ANSWERS.values())[1:] + list(ANSWERS.values())[:1]))
    data = write_talks(context.folder / "others.jsonl", others)
    run(context, ranks, [*words, "--training.dataset_path", data, "--job.dump_folder", context.dump("base")], name="base")
    base = context.dump("base") / "checkpoint/step-120"
    lora = ["--checkpoint.initial_load_path", base, "--checkpoint.initial_load_in_hf", "--lora.rank", "16", "--lora.alpha", "32", "--checkpoint.no-last_save_in_hf"]
    run(context, ranks, [*words, *lora])
    rows = read_rows(context.dump("run") / "metrics.jsonl")
    expect(rows[-1]["loss"] < 0.05, f"the loss fell to {rows[-1]['loss']} only")
    merged = context.folder / "merged"
    command(context, "convert", context.dump("run") / "checkpoint/step-120", merged, "--to", "hf", "--merge")
    for checkpoint, expected in ((context.dump("run"), ANSWERS), (merged, ANSWERS), (base, others)):
        found = answers_of(context, checkpoint)
        expect(found == list(expected.values()), f"answers of {checkpoint}: {found}")


@case(60)
def chat_goes_on(context):
    """A run on conversations goes on at another number of ranks with the rows that an undisturbed one has."""
    words = [*write_toy(context, 8), "--training.mixed_precision_param", "float32", "--metrics.log_freq", "1", "--lr_scheduler.total_steps", "8"]
    full = [*words, "--job.dump_folder", context.dump("full"), "--training.local_batch_size", "4"]
    run(context, 1, full, name="full")
    part = [*words, "--checkpoint.no-last_save_model_only", "--checkpoint.interval", "4"]
    run(context, 1, [*part, "--training.local_batch_size", "4", "--training.steps", "4"], name="first")
    run(context, 2, [*part, "--training.local_batch_size", "2"], name="second")
    expected, found = (read_rows(context.dump(name) / "metrics.jsonl") for name in ("full", "run"))
    expect([row["step"] for row in found] == list(range(1, 9)), f"steps of {found}")
    for mine, theirs in zip(found, expected):
        # The order of sums differs after the change of ranks, in fp32 over 8 steps of Adam from random weights.
        distance = relative_distance(mine["loss"], theirs["loss"])
        expect(distance <= 1e-4, f"step {mine['step']}: {mine['loss']}, {theirs['loss']}: {distance:.1e}")


# ------------------------------------------------------------------------------------------------ refusals


@case(60, quick=True)
def chat_refusals(context):
    """The program says what is wrong with a conversation, a template or a key before it trains."""
    words = write_toy(context, 2)
    toy = context.folder / "toy.jsonl"
    good = toy.read_text()

    def refused(reason, *more, text=good, code=2):
        toy.write_text(text)
        job = run(context, 1, [*words, *more], exit_code=code)
        expect(re.search(reason, job.text()), f"expected {reason!r}:\n{job.tail()}")

    refused(r"toy.jsonl:5: expected \"messages\", \"conversations\", or \"prompt\" and \"completion\"; the keys are \"text\"", text=good + '{"text": "a"}\n')
    refused(r"toy.jsonl:1: the conversation has \d+ tokens, and a row of seq_len \+ 1 has 17; set chat.too_long", "--training.seq_len", "16")
    refused(r"chat.chat_template: .*nowhere", "--chat.chat_template", context.folder / "nowhere")
    (context.folder / "wrong.jinja").write_text("{% for m in messages %}")
    refused(r"chat.chat_template: .*wrong.jinja:1", "--chat.chat_template", context.folder / "wrong.jinja")
    refused(r"has no chat template; add .*Or set chat.chat_template to a file with a template", "--chat.chat_template", "None")
    text = context.fixtures / "corpus"
    mixed = ["--training.dataset_mix", f"1 chat {toy},1 text {text}"]
    refused(r"chat.loss_weight = \"sample\" makes conversations count alike, and text", "--chat.loss_weight", "sample", *mixed)
    on_text = ["--training.dataset", "text", "--training.dataset_path", text, "--chat.loss_weight", "sample"]
    refused(r"chat.loss_weight = \"sample\" is about conversations, and no dataset is of kind chat \(text\)", *on_text)
    refused(r"chat.too_long: expected a string, one of error, cut, drop", "--chat.too_long", "never")
    toy.write_text(good)
    for reason, *more in [
        ("--show: expected --dataset chat, found --dataset jsonl", "--dataset", "jsonl", "--show", "1"),
        ("conversations are made into rows when a run opens them", "--dataset", "chat", "--output", context.folder / "out"),
        ("--output is required", "--dataset", "jsonl"),
    ]:
        _, err = command(context, "tokenize", "--tokenizer", context.fixtures / "tokenizer", "--input", toy, *more, exit_code=2)
        expect(reason in err, f"expected {reason!r}: {err}")
