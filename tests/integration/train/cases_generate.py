"""Tests titan-train generate: its greedy tokens are the argmax of a plain forward, from every source of weights."""
import json
import shutil
import signal
import subprocess

import golden
from cases_convert import command
from cases_transformers import write_theirs
from cases_validation import model_of
from checkpoint_tools import FP32, SAVE
from fixtures import once, write_job
from harness import TIME_SCALE, case, expect, run

STEPS = 20
PROMPTS = ["def forward(self", "import torch", "The quick brown fox", "\u00e4\u20ac\U0001f600 bytes"]
GREEDY = ["--temperature", "0", "--device", "cpu"]
# The program and the reference sum in fp32 in other orders, about 1e-5 of logits of some 10. Either of two tokens
# that are so near may be taken; a wrong key or position moves logits by 1e-1 and more.
NEAR = 1e-3


def trained(context):
    """Returns a job file and the folder of its finished run, which several cases of one run of the tests share."""
    config = write_job(context, "run", steps=STEPS)

    def make(folder):
        words = ["--config", config, *FP32, *SAVE, "--checkpoint.interval", STEPS // 2, "--job.dump_folder", folder / "run"]
        run(context, 2, words, name="train")

    folder = once(context.folder.parent, "generate", golden_key(context), make)
    shutil.copytree(folder / "run", context.dump("run"))
    return config, context.dump("run")


def golden_key(context):
    """Returns a key of the program: another program may train other weights."""
    engine = context.program.parent / "libtitan_engine.so"
    return str((engine if engine.exists() else context.program).stat().st_mtime_ns)


def samples(context, checkpoint, *words):
    """Returns the rows of --json."""
    out, _ = command(context, "generate", "--checkpoint", checkpoint, "--json", "--quiet", *words)
    return [json.loads(line) for line in out.splitlines()]


def sentencepieces(context):
    import sentencepiece

    return sentencepiece.SentencePieceProcessor(model_file=str(context.fixtures / "tokenizer/tokenizer.model"))


def check_argmax(model, row, what):
    """Checks that every token is the likeliest of a forward over all tokens before it."""
    import torch

    ids = row["prompt_ids"] + row["ids"]
    with torch.no_grad():
        logits = model(torch.tensor([ids]))[0]
    for index, token in enumerate(row["ids"]):
        here = logits[len(row["prompt_ids"]) + index - 1]
        short = here.max() - here[token]
        expect(short <= NEAR, f"{what}: token {index} is {token}, {short} below the likeliest, {here.argmax()}")


@case(120, quick=True)
def generate_greedy(context):
    """A run, its checkpoints, a step, an export and another program's checkpoint all give the argmax."""
    config, dump = trained(context)
    (context.folder / "prompts.txt").write_text("\n".join(PROMPTS) + "\n\n", encoding="utf-8")
    step, words = dump / f"checkpoint/step-{STEPS}", [*GREEDY, "--prompts", context.folder / "prompts.txt", "--max-tokens", 24]
    rows = samples(context, dump, *words)
    model, pieces = model_of(context, config, STEPS, "run"), sentencepieces(context)
    expect([row["prompt"] for row in rows] == PROMPTS, f"other prompts: {rows}")
    for row in rows:
        expect(row["prompt_ids"] == [pieces.bos_id(), *pieces.encode(row["prompt"])], f"the prompt is encoded as {row['prompt_ids']}")
        stopped = row["ids"][-1] == pieces.eos_id()
        expect(row["end"] == ("stop_token" if stopped else "max_tokens"), f"ended by {row['end']}")
        expect(len(row["ids"]) == 24 or stopped, f"{len(row['ids'])} tokens")
        check_argmax(model, row, row["prompt"])
    expect(samples(context, dump / "checkpoint", *words) == rows, "the folder of checkpoints gives something else")
    expect(samples(context, step, *words) == rows, "the step gives something else")

    command(context, "convert", step, context.folder / "hf")
    expect(samples(context, context.folder / "hf", *words) == rows, "the export gives something else")
    named = ["--tokenizer", context.fixtures / "tokenizer"]
    expect(samples(context, context.folder / "hf", *words, *named) == rows, "a tokenizer that is named gives something else")
    for name in ("titan.config.toml", "titan.checksums.json"):
        (step / name).unlink()
    shutil.move(step, context.folder / "theirs")
    found = samples(context, context.folder / "theirs", *words, "--config", config)
    expect(found == rows, "a checkpoint that --config describes gives something else")
    older = samples(context, dump, *words)
    expect(older != rows, "the newest step was not that of the run's end, or both are alike")
    check_argmax(model_of(context, config, STEPS // 2, "run"), older[0], "the older step")


@case(60)
def generate_prints_the_text(context):
    """Standard output is the text and nothing else: whole characters of UTF-8, those of the tokens."""
    _, dump = trained(context)
    words = ["--prompt", PROMPTS[3], "--max-tokens", 40, "--seed", 5, "--temperature", 3, "--device", "cpu"]
    (row,) = samples(context, dump, *words)
    out, err = command(context, "generate", "--checkpoint", dump, *words)
    expect(out == row["text"] + "\n", f"{out!r} is not the text {row['text']!r}")
    expect("tokens/s" in err and "warning" not in err, err)
    # At this temperature single bytes are drawn, and most of them are not characters.
    expect("\ufffd" in row["text"], f"no incomplete character in {row['text']!r}")
    pieces = sentencepieces(context)
    prompt, both = pieces.decode(row["prompt_ids"]), pieces.decode(row["prompt_ids"] + row["ids"])
    expect(prompt + row["text"] == both, f"{prompt + row['text']!r} is not {both!r}")
    # Several texts are printed with their prompts.
    out, _ = command(context, "generate", "--checkpoint", dump, *words, "--num", 2, "--quiet")
    expect(out.startswith(f"> {PROMPTS[3]}\n{row['text']}\n> {PROMPTS[3]}\n"), out)


@case(60)
def generate_repeats_a_seed(context):
    """One seed, one text; the second sample of a seed is the first of the next."""
    _, dump = trained(context)

    def texts(*words):
        return [row["ids"] for row in samples(context, dump, "--prompt", "import", "--max-tokens", 16, "--device", "cpu", *words)]

    three = texts("--seed", 7, "--num", 3)
    expect(three[0] != three[1] != three[2], f"samples are alike: {three}")
    expect(texts("--seed", 7) == three[:1] and texts("--seed", 8, "--num", 2) == three[1:], "seeds do not repeat")
    expect(texts("--seed", 7, "--top-k", 1) == texts("--temperature", 0), "the likeliest one is not the greedy one")
    expect(texts("--seed", 7, "--top-p", 1) == three[:1], "--top-p 1 leaves something out")
    few = texts("--seed", 7, "--top-p", 0.3, "--top-k", 3)
    expect(few != three[:1], "--top-p and --top-k change nothing")


@case(60)
def generate_in_bfloat16(context):
    """--dtype sets the dtype; without it, the file's dtype is used."""
    _, dump = trained(context)
    words = ["--prompt", PROMPTS[0], "--max-tokens", 8, *GREEDY]
    _, err = command(context, "generate", "--checkpoint", dump, *words)
    expect("float32" in err, err)
    command(context, "convert", dump / f"checkpoint/step-{STEPS}", context.folder / "half", "--export-dtype", "bfloat16")
    half = ["--tokenizer", context.fixtures / "tokenizer", *words]
    _, err = command(context, "generate", "--checkpoint", context.folder / "half", *half)
    expect("bfloat16" in err, err)
    found = samples(context, context.folder / "half", *half)
    expect(found == samples(context, dump, *words, "--dtype", "bfloat16"), "saved or loaded in bfloat16 makes a difference")


@case(60)
def generate_as_transformers(context):
    """Gives the tokens and texts of transformers' generate(), from its folder and from ours, stop tokens included."""
    theirs, _ = write_theirs(context)
    expected = golden.answers("generate")
    (theirs / "generation_config.json").write_text(json.dumps({"eos_token_id": golden.STOP_IDS}))
    (context.folder / "prompts.txt").write_text("\n".join(golden.PROMPTS), encoding="utf-8")
    words = [*GREEDY, "--prompts", context.folder / "prompts.txt", "--max-tokens", golden.WRITTEN, "--tokenizer", golden.TOKENIZER]
    for folder in (theirs, golden.convert_there_and_back(context, theirs)):
        rows = samples(context, folder, *words)
        found = {row["prompt"]: {key: row[key] for key in ("prompt_ids", "ids", "text")} for row in rows}
        expect(found == expected, f"{folder.name}: {found}, transformers: {expected}")
    ends = [row["ids"][-1] for row in expected.values()]
    expect(set(golden.STOP_IDS) & set(ends), f"no text ended with a stop token: {ends}")


@case(60)
def generate_refused(context):
    """Mistakes on the command line or in its files end with 2 and say what to do instead."""
    config, dump = trained(context)

    def refused(wanted, *words, exit_code=2):
        _, error = command(context, "generate", *words, exit_code=exit_code)
        expect(wanted in error, f"{words}: expected {wanted!r} in {error!r}")

    prompt = ["--prompt", "x"]
    ours = ["--checkpoint", dump]
    refused("--checkpoint is required", *prompt)
    refused("expected one of --prompt TEXT, --prompts FILE and --interactive, found none", *ours)
    refused("found several", *ours, *prompt, "--interactive")
    refused("does not exist; expected the folder of a run", "--checkpoint", context.folder / "no", *prompt)
    refused("is a file whose name ends in neither .pt, .pth nor .safetensors; expected the folder of a run", "--checkpoint", config, *prompt)
    refused("nor *.safetensors, nor model.pt; expected the folder of a run", "--checkpoint", context.fixtures, *prompt)
    for option, value, wanted in (
        ("--temperature", "-1", "a number, at least 0"), ("--temperature", "nan", "a number, at least 0"),
        ("--top-k", "0", "an integer, at least 1"), ("--top-p", "0", "a number above 0, up to 1"),
        ("--top-p", "1.5", "a number above 0, up to 1"), ("--max-tokens", "ten", "an integer, at least 1"),
        ("--num", "0", "an integer, 1 to 1000000"), ("--seed", "-3", "an integer, at least 0"),
        ("--context", "1", "an integer, at least 2"),
    ):  # fmt: skip
        refused(f'{option}: expected {wanted}; found "{value}"', *ours, *prompt, f"{option}={value}")
    refused("--logprobs: they are members of JSON objects; add --json", *ours, *prompt, "--logprobs", 3)
    refused("--logprobs: the model has 2,048 tokens, found 3000", *ours, *prompt, "--json", "--logprobs", 3000)
    refused("leave out --top-k, --seed", *ours, *prompt, *GREEDY, "--top-k", 3, "--seed", 1)
    refused("float32", *ours, *prompt, "--dtype", "int8")
    refused("--context 1000000: expected at most 131072", *ours, *prompt, "--context", 1000000)
    refused("the model takes sequences of 64", *ours, "--prompt", "word " * 200)
    refused("there is none at", *ours, "--prompts", context.folder / "no.txt")
    (context.folder / "empty.txt").write_text("\n\n")
    refused("holds no prompt", *ours, "--prompts", context.folder / "empty.txt")
    refused("--tokenizer: no tokenizer in", *ours, *prompt, "--tokenizer", context.folder)

    step = dump / f"checkpoint/step-{STEPS}"
    command(context, "convert", step, context.folder / "hf")
    (context.folder / "hf/tokenizer.model").unlink()
    refused("--tokenizer FOLDER", "--checkpoint", context.folder / "hf", *prompt)
    other = write_job(context, "other")
    other.write_text(other.read_text().replace("n_layers = 2", "n_layers = 3"))
    refused("leave --config out", "--checkpoint", step, *prompt, "--config", other)
    (step / "titan.checksums.json").unlink()
    (step / "titan.config.toml").unlink()
    refused("missing key: layers.2", "--checkpoint", step, *prompt, "--config", other, exit_code=1)
    shutil.move(step, context.folder / "theirs")
    refused("name a configuration with --config FILE", "--checkpoint", context.folder / "theirs", *prompt)
    shutil.rmtree(dump / "checkpoint")
    refused("is a run without checkpoints", *ours, *prompt)
    (dump / "checkpoint/step-3").mkdir(parents=True)
    refused("has no complete checkpoint", *ours, *prompt)


@case(60)
def generate_to_the_end_of_the_context(context):
    """A text ends at the end of the model's context, and says so; --context moves the end."""
    _, dump = trained(context)
    words = ["--prompt", "import", "--max-tokens", 200, *GREEDY]
    out, err = command(context, "generate", "--checkpoint", dump, *words, "--json")
    row = json.loads(out)
    if row["end"] != "stop_token":
        expect(row["end"] == "context" and len(row["prompt_ids"]) + len(row["ids"]) == 64, f"{row}")
        expect("ends where the model's context does, after 64 tokens" in err, err)
        (longer,) = samples(context, dump, *words, "--context", 100)
        expect(longer["ids"][: len(row["ids"])] == row["ids"], "a longer context changes what comes first")


@case(60)
def generate_interactive(context):
    """Each line is a prompt; Ctrl-C ends it silently, with 130."""
    _, dump = trained(context)
    (row,) = samples(context, dump, "--prompt", "import torch", "--max-tokens", 8, *GREEDY)
    words = [context.program, "generate", "--checkpoint", dump, "--interactive", "--json", "--max-tokens", 8, *GREEDY]
    words = [str(word) for word in words]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, text=True, **pipes) as process:
        process.stdin.write("import torch\n" + "word " * 200 + "\nimport torch\n")
        process.stdin.flush()
        lines = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        code = process.wait(60 * TIME_SCALE)
        error = process.stderr.read()
    expect(lines == [row, row], f"{lines}, expected twice {row}")
    expect(code == 130, f"exit code {code}")
    expect("the model takes sequences of 64" in error and error.count("\n") == 1, f"standard error: {error!r}")
    done = subprocess.run(words, input="import torch\n\n", capture_output=True, text=True, timeout=60 * TIME_SCALE)
    expect(done.returncode == 0 and json.loads(done.stdout) == row, f"{done}")
    words = [word for word in words if word != "--interactive"] + ["--prompt", "-"]
    done = subprocess.run(words, input=b"import torch\n", capture_output=True, timeout=60 * TIME_SCALE)
    expect(done.returncode == 0 and json.loads(done.stdout) == row, f"{done}")
    done = subprocess.run(words, input=b"import \xff", capture_output=True, timeout=60 * TIME_SCALE)
    expect(json.loads(done.stdout)["prompt"] == "import \ufffd" and b"not valid UTF-8" in done.stderr, f"{done}")
