"""Tests titan-train generate over ranks, among which the model is split, and with several prompts at once."""
import json
import re

from cases_convert import command
from cases_generate import GREEDY, NEAR, PROMPTS, STEPS, check_argmax, samples, trained
from cases_validation import model_of
from harness import case, expect, run

# Words of the command line, and the most of all parameters that a rank may hold: norms, which are small, are not split
# by tensor parallelism, and fully_shard splits rows unevenly.
SPLITS = {
    "sharded": (["--nproc", 2], 0.6),
    "tensor": (["--nproc", 2, "--tensor-parallel", 2], 0.6),
    "both": (["--nproc", 4, "--tensor-parallel", 2, "--oversubscribe"], 0.35),
}


def write_prompts(context):
    (context.folder / "prompts.txt").write_text("\n".join(PROMPTS) + "\n\n", encoding="utf-8")
    return ["--prompts", context.folder / "prompts.txt", "--max-tokens", 16]


def share_of_rank(error):
    """Returns the part of the parameters that rank 0 says it holds."""
    found = re.search(r"; ([\d,]+) of ([\d,]+) parameters on this one of \d+ ranks", error)
    expect(found, f"no word about the ranks' parameters in {error!r}")
    here, all_of_them = (int(number.replace(",", "")) for number in found.groups())
    return here / all_of_them


def same_up_to_ties(model, row, other, what):
    """Checks that two rows have the same tokens, up to the first place where two tokens are as likely."""
    import torch

    expect(row["prompt_ids"] == other["prompt_ids"], f"{what}: other prompts")
    differing = [i for i, (a, b) in enumerate(zip(row["ids"], other["ids"])) if a != b]
    if not differing:
        return expect(row == other, f"{what}: {row}, alone {other}")
    with torch.no_grad():
        logits = model(torch.tensor([row["prompt_ids"] + row["ids"][: differing[0]]]))[0, -1]
    apart = (logits[row["ids"][differing[0]]] - logits[other["ids"][differing[0]]]).abs()
    expect(apart <= NEAR, f"{what}: token {differing[0]} differs, and one is likelier by {apart}")


@case(90, split=list(SPLITS), wide=["sharded", "tensor"])
def generate_over_ranks(context, split):
    """Ranks that split a model write what one rank writes, from a run and from Hugging Face weights."""
    config, dump = trained(context)
    words = [*write_prompts(context), *GREEDY]
    alone = samples(context, dump, *words)
    ranks, most = SPLITS[split]
    out, error = command(context, "generate", "--checkpoint", dump, "--json", *words, *ranks)
    model = model_of(context, config, STEPS, "run")
    rows = [json.loads(line) for line in out.splitlines()]
    expect(len(rows) == len(PROMPTS), f"{len(rows)} rows: {out}")
    for row, other in zip(rows, alone):
        check_argmax(model, row, row["prompt"])
        same_up_to_ties(model, row, other, row["prompt"])
    expect(share_of_rank(error) < most, f"a rank holds {share_of_rank(error):.2f} of the parameters")
    expect(error.count("\n") == 1, f"more than rank 0's line: {error!r}")
    if split == "sharded":
        command(context, "convert", dump / f"checkpoint/step-{STEPS}", context.folder / "hf")
        expect(samples(context, context.folder / "hf", *words, *ranks) == rows, "the export gives something else")


@case(60)
def generate_under_torchrun(context):
    """Under a launcher, its ranks split the model, and rank 0 alone prints."""
    _, dump = trained(context)
    words = ["generate", "--checkpoint", dump, "--json", "--quiet", "--prompt", PROMPTS[0], "--max-tokens", 16, *GREEDY]
    job = run(context, 2, words, launcher="torchrun")
    started = [json.loads(line) for line in job.out_path.read_text().splitlines()]
    expect(started == samples(context, dump, *words[4:], "--nproc", 2), f"other texts than with --nproc: {started}")


def check_drawn(model, row, seed, temperature):
    """Checks each token against torch.multinomial's own random numbers: it draws the token with the largest quotient of
    its probability and a random number. Rounding of logits by 1e-5 moves a quotient by 1e-5 of itself; NEAR is far
    above, and other random numbers change the order of quotients that are far apart."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        logits = model(torch.tensor([row["prompt_ids"] + row["ids"]]))[0]
    for index, token in enumerate(row["ids"]):
        probabilities = (logits[len(row["prompt_ids"]) + index - 1] / temperature).softmax(0)
        quotients = probabilities / torch.empty_like(probabilities).exponential_(1, generator=generator)
        expect(quotients[token] >= (1 - NEAR) * quotients.max(), f"seed {seed}, token {index}: not the one that is drawn")


@case(90)
def generate_draws_alike(context):
    """Samples are those of their seeds, at any number of ranks and of prompts at once."""
    config, dump = trained(context)
    model = model_of(context, config, STEPS, "run")
    words = [*write_prompts(context), "--seed", 7, "--num", 2, "--temperature", 1.5, "--device", "cpu"]
    for more in ([], ["--batch", 3], SPLITS["sharded"][0], [*SPLITS["tensor"][0], "--batch", 5]):
        rows = samples(context, dump, *words, *more)
        expect(len(rows) == 2 * len(PROMPTS), f"{more}: {len(rows)} rows")
        for index, row in enumerate(rows):
            check_drawn(model, row, 7 + index, 1.5)


@case(90, quick=True)
def generate_batches(context):
    """Several prompts at once are written in their order, and each ends by itself."""
    config, dump = trained(context)
    words = [*write_prompts(context), *GREEDY]
    model = model_of(context, config, STEPS, "run")
    alone = samples(context, dump, *words)
    for size in (2, 100, 3):
        rows = samples(context, dump, *words, "--batch", size)
        expect([row["prompt"] for row in rows] == PROMPTS, f"other prompts or another order: {rows}")
        for row, other in zip(rows, alone):
            check_argmax(model, row, f"{size} at once, {row['prompt']}")
            same_up_to_ties(model, row, other, f"{size} at once, {row['prompt']}")
    # A text of one row ends it, and not the others.
    stop = alone[1]["text"][3:5]
    stopped = samples(context, dump, *words, "--stop", stop)
    expect("stop_string" in [row["end"] for row in stopped], f"no text has {stop!r}")
    for row, other in zip(samples(context, dump, *words, "--stop", stop, "--batch", 3), stopped):
        same_up_to_ties(model, row, other, f"stopped by {stop!r}, {row['prompt']}")
    # Texts are printed like those of one at a time, and the objects into a file.
    plain, _ = command(context, "generate", "--checkpoint", dump, *words, "--quiet")
    printed, _ = command(context, "generate", "--checkpoint", dump, *words, "--quiet", "--batch", 3)
    texts = "".join(f"> {row['prompt']}\n{row['text']}\n" for row in rows)
    expect(printed == texts, f"{printed!r}, of the objects {texts!r}")
    expect(plain == "".join(f"> {row['prompt']}\n{row['text']}\n" for row in alone), plain)
    printed, _ = command(context, "generate", "--checkpoint", dump, *words, "--out", context.folder / "out.jsonl")
    written = [json.loads(line) for line in (context.folder / "out.jsonl").read_text().splitlines()]
    expect(written == alone and printed == "", f"{written} in the file, {printed!r} printed")


@case(60)
def generate_prompts_of_objects(context):
    """A .jsonl file has a prompt in each object, which may have several lines."""
    _, dump = trained(context)
    prompts = ["import torch\nimport", "x = 1"]
    path = context.folder / "prompts.jsonl"
    path.write_text("".join(json.dumps({"id": i, "prompt": text}) + "\n\n" for i, text in enumerate(prompts)))
    rows = samples(context, dump, *GREEDY, "--max-tokens", 4, "--prompts", path)
    expect([row["prompt"] for row in rows] == prompts, f"{rows}")


@case(60)
def generate_over_ranks_refused(context):
    """A command line that ranks or batches cannot follow ends with 2 and says what to do instead."""
    _, dump = trained(context)

    def refused(wanted, *words):
        _, error = command(context, "generate", "--checkpoint", dump, *words, exit_code=2)
        expect(wanted in error, f"{words}: expected {wanted!r} in {error!r}")

    prompt = ["--prompt", "x", "--device", "cpu"]
    refused("--tensor-parallel 2: expected a number that divides the 1 ranks", *prompt, "--tensor-parallel", 2)
    refused("--tensor-parallel 3: expected a number that divides the 2 ranks", *prompt, "--tensor-parallel", 3, "--nproc", 2)
    heads = [*prompt, "--tensor-parallel", 3, "--nproc", 3, "--oversubscribe"]
    refused("must divide the 4 query heads", *heads)
    refused('--nproc: expected an integer, at least 1; found "0"', *prompt, "--nproc", 0)
    refused("--batch: the next prompt comes after a text", "--interactive", "--batch", 2)
    refused("--out: a conversation is on the terminal", "--interactive", "--out", context.folder / "out.jsonl")
    refused("no/out.jsonl cannot be written", *prompt, "--out", context.folder / "no/out.jsonl")
    refused("the model takes sequences of 64", "--prompt", "word " * 200, "--nproc", 2)
    path = context.folder / "prompts.jsonl"
    for text, wanted in (
        ("import torch", "line 1 of"), ('{"text": "a"}', "found neither"), ('{"prompt": 3}', "found neither"),
        ('{"prompt": "a", "messages": []}', "found both"), ('{"messages": [{"role": "user", "content": "a"}]}', "need --chat"),
    ):  # fmt: skip
        path.write_text(text + "\n")
        refused(wanted, "--prompts", path, "--device", "cpu")
    # The first text is not written before all prompts are known to fit.
    path.write_text(json.dumps({"prompt": "a"}) + "\n" + json.dumps({"prompt": "word " * 200}) + "\n")
    out, error = command(context, "generate", "--checkpoint", dump, "--prompts", path, "--device", "cpu", exit_code=2)
    expect(out == "" and "line 2 of" in error and "the model takes sequences of 64" in error, f"{out!r}, {error!r}")
