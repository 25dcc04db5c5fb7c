"""Tests titan-train generate --chat: prompts in the template of the tokenizer's folder, and texts that end early."""
import json
import subprocess

import golden
from cases_convert import command
from cases_families import their_folder
from harness import TIME_SCALE, case, expect

# Words of the golden tokenizer, which has few letters. A message of the user may not shout.
TEMPLATE = """\
{{- bos_token }}
{%- for message in messages %}
    {%- if message.role == 'user' and message.content.endswith('.') %}
        {{- raise_exception('no full stops here') }}
    {%- endif %}
    {{- ' ' + message.role + ': ' + message.content | trim + eos_token }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- ' assistant:' }}
{%- endif %}
"""
SHORT = ["--max-tokens", "6", "--temperature", "0", "--device", "cpu", "--quiet", "--json"]


def chat_folder(context):
    folder, _ = their_folder(context, "qwen25")
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


def rendered(messages):
    """Returns the prompt as Python's Jinja makes it."""
    from jinja2 import Environment

    template = Environment(trim_blocks=True, lstrip_blocks=True).from_string(TEMPLATE)
    return template.render(
        messages=messages, bos_token="<|begin_of_text|>", eos_token="<|end_of_text|>", add_generation_prompt=True
    )


def user(text):
    return {"role": "user", "content": text}


def rows_of(context, *words):
    out, _ = command(context, "generate", *words, *SHORT)
    return [json.loads(line) for line in out.splitlines()]


@case(60, quick=True)
def generate_chat(context):
    """A prompt is the user's message in the folder's template, with its special tokens; each is a chat of its own."""
    from tokenizers import Tokenizer

    folder = chat_folder(context)
    tokenizer = Tokenizer.from_file(str(golden.TOKENIZER / "tokenizer.json"))
    system = {"role": "system", "content": "the water"}
    (context.folder / "prompts.txt").write_text("the mill\nthe rain\n")
    rows = rows_of(context, "--checkpoint", folder, "--chat", "--system", system["content"], "--prompts", context.folder / "prompts.txt")
    expect(len(rows) == 2, f"{len(rows)} answers")
    for row, text in zip(rows, ("the mill", "the rain")):
        expected = rendered([system, user(text)])
        expect(row["prompt"] == expected, f"{row['prompt']!r}, expected {expected!r}")
        ids = tokenizer.encode(expected, add_special_tokens=False).ids
        expect(row["prompt_ids"] == ids, f"{row['prompt_ids']}, expected {ids}")


@case(60)
def generate_chat_interactive(context):
    """A conversation goes on with what was said; a message that the template refuses is forgotten; /new begins another."""
    folder = chat_folder(context)
    words = [context.program, "generate", "--checkpoint", folder, "--chat", "--interactive", *SHORT]
    lines = "the mill\nno.\nthe rain\n/new\nthe mill\n"
    done = subprocess.run([str(word) for word in words], input=lines, capture_output=True, text=True, timeout=60 * TIME_SCALE)
    expect(done.returncode == 0, f"exit code {done.returncode}: {done.stderr}")
    first, second, third = [json.loads(line) for line in done.stdout.splitlines()]
    expected = rendered([user("the mill"), {"role": "assistant", "content": first["text"]}, user("the rain")])
    expect(second["prompt"] == expected, f"{second['prompt']!r}, expected {expected!r}")
    expect(third == first, f"{third}, expected {first}")
    expect("no full stops here" in done.stderr, done.stderr)


@case(60)
def generate_chat_refusals(context):
    """The program says what a chat lacks before the first answer."""
    folder = chat_folder(context)

    def refused(reason, *words):
        _, err = command(context, "generate", "--checkpoint", folder, *words, exit_code=2)
        expect(reason in err, f"{words}: {err}")

    refused("--system goes with --chat", "--prompt", "x", "--system", "y")
    refused("a conversation goes on after one answer", "--chat", "--interactive", "--num", 2)
    refused("--stop: expected a text", "--prompt", "x", "--stop", "")
    (folder / "chat_template.jinja").write_text("{% for m in messages %}\n{{ m | groupby('role') }}{% endfor %}")
    refused("chat_template.jinja:2:8: the filter `groupby` is not supported", "--chat", "--prompt", "x")
    (folder / "chat_template.jinja").unlink()
    refused("chat_template", "--chat", "--prompt", "x")


@case(60)
def generate_stops_at_texts(context):
    """A text ends before the first of the texts of --stop, wherever tokens begin."""
    folder = chat_folder(context)
    words = ["--checkpoint", folder, "--prompt", "the", "--max-tokens", 24, *SHORT[2:]]
    (whole,) = [json.loads(line) for line in command(context, "generate", *words)[0].splitlines()]
    text = whole["text"]
    expect(len(text) > 12, f"a text of {len(text)} characters")
    stop = text[5:9]
    (cut,) = [json.loads(line) for line in command(context, "generate", *words, "--stop", "?!", "--stop", stop)[0].splitlines()]
    expect(cut["text"] == text[: text.find(stop)], f"{cut['text']!r} of {text!r} without {stop!r}")
    expect(cut["end"] == "stop_string", f"ended by {cut['end']}")
    expect(cut["ids"] == whole["ids"][: len(cut["ids"])], "other tokens")


@case(60)
def generate_chat_of_objects(context):
    """A .jsonl file has a user's message, or a conversation to answer, in each object."""
    folder = chat_folder(context)
    spoken = [user("the mill"), {"role": "assistant", "content": "the rain"}, user("the water")]
    path = context.folder / "prompts.jsonl"
    path.write_text(json.dumps({"messages": spoken}) + "\n" + json.dumps({"prompt": "the mill"}) + "\n")
    words = ["--checkpoint", folder, "--chat", "--prompts", path]
    rows = rows_of(context, *words, "--batch", 2)
    expect([row["prompt"] for row in rows] == [rendered(spoken), rendered([user("the mill")])], f"{rows}")
    system = {"role": "system", "content": "the rain"}
    rows = rows_of(context, *words, "--system", system["content"])
    expect(rows[0]["prompt"] == rendered([system, *spoken]), f"{rows}")
    path.write_text(json.dumps({"messages": [{"role": "user"}]}) + "\n")
    _, error = command(context, "generate", *words, exit_code=2)
    expect('a list of objects with "role" and "content"' in error, error)
