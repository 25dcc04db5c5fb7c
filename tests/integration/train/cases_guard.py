"""Tests bad steps in a running program: what failed first, what is skipped, where the run goes back to, and spikes.

There are two ways to make one. A weight of a checkpoint holds NaN. Or a weight is finite in float32 but not in
bfloat16, in the embedding of a token that only one document has: only steps whose data has it are spoiled.
"""
import json
import math
import re
import shutil

from fixtures import SMALL_MODEL, write_job
from harness import case, check_identical, expect, read_rows, rows_by_step, run

SAVE = ["--checkpoint.enable", "--checkpoint.no-last_save_model_only"]
NUMBERS = ("loss", "grad_norm", "lr", "tokens_seen")
# Nothing moves the planted weight: its gradient is 0 where the token is missing, and the update is skipped elsewhere.
STEADY = ["--optimizer.weight_decay", 0]
LARGEST = 3.4028e38  # largest float32; rounded to bfloat16 it is infinite


def documents_of_ascii(context):
    lines = (context.fixtures / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    return [text for text in (json.loads(line)["text"] for line in lines) if text.isascii()]


def write_corpus(context, marked):
    """Writes ASCII documents of about 600 characters, some with a mark of unique bytes. Returns the path."""
    texts = [text[i : i + 600] for text in documents_of_ascii(context)[:20] for i in range(0, 6000, 600)]
    for index in marked:
        texts[index] = "☃" + texts[index]
    path = context.folder / "marked.jsonl"
    path.write_text("".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts), encoding="utf-8")
    return path


def token_of_the_mark(context):
    import sentencepiece

    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(context.fixtures / "tokenizer/tokenizer.model"))
    return tokenizer.piece_to_id("<0xE2>")


def planted(context, ranks, edit, template=SMALL_MODEL):
    """Returns a folder for checkpoint.initial_load_path: a run's first weights, after `edit` of their dict."""
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    job = write_job(context, "weights", template, steps=1)
    run(context, ranks, ["--config", job, "--checkpoint.enable", "--optimizer.lr", "1e-30"], name="weights")
    dcp_to_torch_save(str(context.dump("weights") / "checkpoint/step-1"), str(context.folder / "weights.pt"))
    weights = torch.load(context.folder / "weights.pt")
    edit(weights)
    folder = context.folder / "planted"
    dcp.save(weights, checkpoint_id=str(folder), no_dist=True)
    return folder


def marked_job(context, name, ranks, steps, *more, marked=(30,)):
    """Returns the words of a run that is spoiled when the data comes to the mark, and by nothing else."""
    if not (context.folder / "planted").exists():

        def edit(weights):
            weights["tok_embeddings.weight"][token_of_the_mark(context), 3] = LARGEST

        planted(context, ranks, edit)
    words = ["--config", write_job(context, name, steps=steps), "--training.dataset_path", write_corpus(context, marked)]
    words += ["--lr_scheduler.total_steps", 100, "--checkpoint.initial_load_path", context.folder / "planted"]
    return [*words, *SAVE, *STEADY, *more]


def bad_steps(rows):
    return [row["step"] for row in rows if not math.isfinite(float(row["grad_norm"]))]


@case(60)
def nan_is_located(context):
    """Weights of one layer hold NaN: the module, its weight and the microbatch are named, before anything is updated."""

    def edit(weights):
        weights["layers.1.feed_forward.w2.weight"][3, 5] = math.nan

    words = ["--config", write_job(context, "run", steps=3), *SAVE, "--training.global_batch_size", 8]
    words += ["--checkpoint.initial_load_path", planted(context, 2, edit)]
    text = run(context, 2, words, exit_code=4).text()
    found = re.search(r"step 1: the norm of the gradients is nan; (.*)", text)
    expect(found, text)
    where = r"first not finite: the output of layers.1.feed_forward.w2 on rank 0, microbatch 0 \(\d+ NaN, its inputs "
    expect(re.match(where + r"are finite, its weight holds 1 NaN\)", found[1]), found[1])
    expect("the loss is not finite on ranks 0, 1" in found[1], found[1])
    expect("weights: layers.1.feed_forward.w2.weight (1 NaN);" in found[1], found[1])
    expect("training stops: at step 1 the norm of the gradients is nan, and not because of the learning rate" in text, text)
    expect(not list((context.dump("run") / "checkpoint").glob("step-*")), "a checkpoint was saved")


@case(90, ranks=[1, 2], wide=["1"])
def nan_is_skipped(context, ranks):
    """on_nan = "skip": the steps that the mark spoils change nothing, training continues, and every step is saved."""
    words = marked_job(context, "run", ranks, 40, "--training.on_nan", "skip", "--checkpoint.interval", 1)
    text = run(context, ranks, [*words, "--checkpoint.keep_latest_k", 0]).text()
    rows = read_rows(context.dump("run") / "metrics.jsonl")
    bad = bad_steps(rows)
    expect([row["step"] for row in rows] == list(range(1, 41)), f"rows {[row['step'] for row in rows]}")
    expect(1 <= len(bad) <= 3 and 2 < bad[0] and bad[-1] < 39, f"spoilt steps: {bad}\n{text}")
    for step in bad:
        expect(re.search(rf"step {step}: the norm of the gradients is nan; first not finite: the output of tok_embeddings on", text), text)
    expect("weights: all finite" in text and f"{len(bad)} since the start" in text, text)

    import torch
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    def state_of(step):
        path = context.folder / f"{step}.pt"
        dcp_to_torch_save(str(context.dump("run") / f"checkpoint/step-{step}"), str(path))
        state = torch.load(path, weights_only=False)
        tensors = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
        tensors.update({name: value for name, value in state["optimizer"].items() if isinstance(value, torch.Tensor)})
        return tensors

    before, at, after = state_of(bad[0] - 1), state_of(bad[0]), state_of(bad[-1] + 1)
    expect(len(before) > 60, f"{sorted(before)}")
    expect(all(torch.equal(at[name], value) for name, value in before.items()), "a step that was left out changed state")
    expect(not torch.equal(after["output.weight"], at["output.weight"]), "training does not go on")


@case(90)
def nan_skips_end(context):
    """Ten skipped steps in a row are too many: the run stops and says so."""

    def edit(weights):
        weights["norm.weight"][0] = LARGEST

    words = ["--config", write_job(context, "run", steps=20), "--training.on_nan", "skip", "--checkpoint.enable"]
    words += ["--checkpoint.initial_load_path", planted(context, 1, edit)]
    text = run(context, 1, words, exit_code=4).text()
    rows = read_rows(context.dump("run") / "metrics.jsonl")
    expect(bad_steps(rows) == list(range(1, 11)), f"{rows}")
    expect('training.on_nan = "skip" left out 10 steps in a row' in text, text)


@case(120, mode=["disabled", "async"], order=["torchtitan", "elastic"], wide=["disabled_torchtitan", "async_elastic"])
def nan_rolls_back(context, mode, order):
    """on_nan = "rollback": goes back to the newest checkpoint and continues with the data after the bad step; each step
    has one row, and a resume after it trains the same."""
    flags = ["--training.on_nan", "rollback", "--checkpoint.interval", 3, "--checkpoint.async_mode", mode]
    flags += ["--training.data_order", order]
    marked = (30,) if order == "torchtitan" else (30, 70, 110)  # shuffled
    flags += ["--validation.enable", "--validation.freq", 2, "--validation.steps", 1, "--validation.local_batch_size", 2]
    flags += ["--validation.seq_len", 64, "--validation.dataset_path", context.fixtures / "corpus.jsonl"]
    flags = flags[: flags.index("--validation.enable")] if mode == "async" else flags
    words = marked_job(context, "run", 2, 40, *flags, marked=marked)
    text = run(context, 2, words).text()
    went = [(int(a), int(b)) for a, b in re.findall(r"back at step (\d+) of (\d+), as training.on_nan", text)]
    expect(went, text)
    good, bad = went[-1]
    expect(good == (bad - 1) // 3 * 3 and good > 0, f"{went}")
    events = read_rows(context.dump("run") / "events.jsonl")
    expect([(row["step"], row["from"]) for row in events if row["event"] == "rollback"] == went, f"{events}")
    expect([row["step"] for row in events if row["event"] == "nan"] == [bad for _, bad in went], f"{events}")
    rows = read_rows(context.dump("run") / "metrics.jsonl")
    expect([row["step"] for row in rows] == list(range(1, 41)), f"rows {[row['step'] for row in rows]}")
    expect(bad_steps(rows) == [], f"{rows}")
    tokens = rows[0]["tokens_seen"]
    expect(all(row["tokens_seen"] == tokens * row["step"] for row in rows), f"{rows}")
    if mode == "disabled":
        passes = [row["step"] for row in read_rows(context.dump("run") / "validation.jsonl")]
        expect(passes == [1, *range(2, 41, 2)], f"validations after {passes}")

    # Stopped after the rollback, between two saves of the other run, and resumed.
    again = marked_job(context, "again", 2, good + 4, *flags, marked=marked)
    text = run(context, 2, again, name="again-1").text()
    expect(f"back at step {good} of {bad}," in text, text)
    text = run(context, 2, [*again, "--training.steps", 40], name="again-2").text()
    expect("back at step" not in text, text)
    exact = [rows_by_step(context.dump(name) / "metrics.jsonl", exact=True) for name in ("again", "run")]
    check_identical(*exact, NUMBERS, "stopped and resumed after a rollback")


@case(90)
def nan_rollback_ends(context):
    """Without a checkpoint there is nothing to go back to; three times to the same one is enough; and settings that can
    never work are refused at once."""
    # The first update leaves weights that are finite but useless.
    words = ["--config", write_job(context, "run", steps=20), *SAVE, "--training.on_nan", "rollback"]
    words += ["--optimizer.lr", "1e30", "--lr_scheduler.warmup_steps", 0]
    text = run(context, 2, [*words, "--checkpoint.interval", 1], exit_code=4).text()
    expect(len(re.findall(r"back at step 1 of", text)) == 3, text)
    expect("went back to step 1 3 times; giving up" in text, text)
    rows = read_rows(context.dump("run") / "metrics.jsonl")
    expect([row["step"] for row in rows] == [1, 2], f"{rows}")
    shutil.rmtree(context.dump("run"))
    text = run(context, 1, words, name="none", exit_code=4).text()
    expect("there is no checkpoint to go back to yet" in text, text)
    words = ["--config", write_job(context, "off", steps=20), "--training.on_nan", "rollback"]
    text = run(context, 1, words, name="off", exit_code=2).text()
    expect('training.on_nan = "rollback" needs checkpoints' in text, text)
    text = run(context, 1, [*words, *SAVE, "--checkpoint.load_only"], name="only", exit_code=2).text()
    expect("checkpoint.load_only forbids" in text, text)


@case(60)
def last_good_checkpoint_stays(context):
    """on_nan = "warn" keeps saving, with a mark: the newest checkpoint from before is never removed, not even after a
    resume from a marked one."""
    flags = ["--training.on_nan", "warn", "--checkpoint.interval", 1, "--checkpoint.keep_latest_k", 2]
    flags += ["--optimizer.lr", "1e30", "--lr_scheduler.warmup_steps", 0]
    config, folder = write_job(context, "run", steps=6), context.dump("run") / "checkpoint"
    run(context, 1, ["--config", config, *SAVE, *flags], name="first")
    saved = lambda: {path.name: (path / "titan.not_finite.txt").exists() for path in folder.iterdir()}
    # The last save of a run removes nothing.
    expect(saved() == {"step-1": False, "step-4": True, "step-5": True, "step-6": True}, f"{saved()}")
    text = run(context, 1, ["--config", config, *SAVE, *flags, "--training.steps", 9], name="second").text()
    expect(re.search(r"step-6 was saved with weights that were not finite .*step-1: checkpoint.load_step = 1 goes on", text), text)
    expect(saved() == {"step-1": False, "step-7": True, "step-8": True, "step-9": True}, f"{saved()}")


def write_calm_corpus(context):
    """Writes one sentence over and over, which is soon learned, and noise of about a step's tokens."""
    calm = "The train runs on time, and nobody asks why it does so. "
    noise = "".join(chr(33 + (i * i * 7919 + i * 104729) % 94) for i in range(150))
    path = context.folder / "calm.jsonl"
    texts = [calm * 40] * 70
    texts.insert(9, noise)
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def spiky_job(context, name, steps, *more):
    words = ["--config", write_job(context, name, steps=steps), "--training.dataset_path", write_calm_corpus(context)]
    return [*words, "--lr_scheduler.total_steps", 300, "--training.spike_window", 16, *SAVE, *more]


@case(120, policy=["warn", "skip"], wide=["warn"])
def spike(context, policy):
    """A batch of noise among calm ones is found, by loss or norm, and nothing else is; a run that was resumed within
    the window decides the same."""
    words = spiky_job(context, "run", 100, "--training.on_spike", policy)
    text = run(context, 1, words).text()
    rows = read_rows(context.dump("run") / "metrics.jsonl")
    peak = max(rows[30:], key=lambda row: row["loss"])["step"]
    found = [int(step) for step in re.findall(r"step (\d+): a spike: the", text)]
    expect(found and min(found) in (peak - 1, peak), f"the loss is highest at {peak}, spikes are {found}\n{text}")
    expect(max(found) - min(found) <= 8, f"spikes at {found}")
    events = read_rows(context.dump("run") / "events.jsonl")
    expect([row["step"] for row in events if row["event"] == "spike"] == found, f"{found}, and events {events}")
    expect(("its update was left out" in text) == (policy == "skip"), text)

    again = spiky_job(context, "again", min(found) - 3, "--training.on_spike", policy)
    text = run(context, 1, again, name="again-1").text()
    expect("a spike" not in text, text)
    text = run(context, 1, [*again, "--training.steps", 100], name="again-2").text()
    expect([int(step) for step in re.findall(r"step (\d+): a spike: the", text)] == found, text)
    exact = [rows_by_step(context.dump(name) / "metrics.jsonl", exact=True) for name in ("again", "run")]
    check_identical(*exact, NUMBERS, "resumed before a spike")

    # "ignore" trains the same as "warn", to the bit.
    text = run(context, 1, spiky_job(context, "ignore", 100, "--training.on_spike", "ignore"), name="ignore").text()
    expect("a spike" not in text, text)
    ignored = rows_by_step(context.dump("ignore") / "metrics.jsonl", exact=True)
    if policy == "warn":
        check_identical(ignored, exact[1], NUMBERS, "warned of")
    else:
        expect(ignored[100]["loss"] != exact[1][100]["loss"], "a skipped step has made no difference")
