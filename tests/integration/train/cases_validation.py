"""Tests the loss on a held-out set: exact at any number of ranks, no effect on the training, the best step kept."""
import json
import math
import re

from cases_convert import command
from checkpoint_tools import items, load_item, read_state, steps_of
from fixtures import write_job
from harness import (
    Gate, at_row, case, check_identical, expect, faults, import_reference, read_rows, relative_distance, rows_by_step, run, start,
)  # fmt: skip

SEQ_LEN, BATCH, WINDOWS = 64, 2, 13
FP32 = ["--training.mixed_precision_param", "float32"]
# Both sides compute in fp32 and differ in the order of sums: about 2^-24 per term, and the means of many terms are
# nearer (see cases_parity.py). A window counted twice, or a smaller last batch with the weight of a full one, moves
# the mean by 1e-3 and more.
TOLERANCE = 1e-6

# TorchTitan's line, so that tools that read its logs read ours.
CONSOLE_LINE = re.compile(
    r"validate step: +(?P<step>\d+)  loss: +(?P<loss>\d+\.\d{4})  memory: +\d+\.\d{2}GiB\(\d+\.\d{2}%\)  tps: [\d,]+"
    r"  perplexity: \d+\.\d{4}  best: \d+\.\d{4} at step (?P<best>\d+)"
)


def tokenizer(context):
    import_reference()
    import text_data

    return text_data.load_tokenizer(context.fixtures / "tokenizer")


def write_held_out(context, documents=9):
    """Writes a set of WINDOWS windows and some tokens, which 2 and 3 ranks with batches of 2 cannot share evenly: the
    last batch of all ranks has one row."""
    encode = tokenizer(context).encode
    text = "".join(json.loads(line)["text"] for line in open(context.fixtures / "corpus.jsonl", encoding="utf-8"))
    wanted, path = WINDOWS * (SEQ_LEN + 1), context.folder / "held_out.jsonl"
    begin, tokens = len(text) // 2, 0
    with open(path, "w", encoding="utf-8") as file:
        for index in range(documents):
            # An equal share of the tokens each; the last one gets the missing tokens, and some that are left over.
            goal = wanted // documents if index < documents - 1 else wanted + 30 - tokens
            size = next(n for n in range(10, len(text), 10) if len(encode(text[begin : begin + n])) >= goal)
            print(json.dumps({"text": text[begin : begin + size]}), file=file)
            tokens += len(encode(text[begin : begin + size]))
            begin += size
    expect(tokens // (SEQ_LEN + 1) == WINDOWS, f"the held-out set has {tokens} tokens, not {WINDOWS} windows")
    return path


def validation(path, freq=2, steps=-1):
    words = {"dataset": "jsonl", "dataset_path": path, "local_batch_size": BATCH, "seq_len": SEQ_LEN, "freq": freq, "steps": steps}
    return ["--validation.enable"] + [word for key, value in words.items() for word in (f"--validation.{key}", value)]


def save_every(interval):
    return ["--checkpoint.enable", "--checkpoint.interval", interval, "--checkpoint.no-last_save_model_only"]


def model_of(context, config, step, name):
    """Returns the reference's model with the weights of the run's checkpoint."""
    init_weights, job_file = import_reference()
    import models

    job = job_file.load_job(config)
    model = models.build_initialized(job, seed=0)
    folder = context.dump(name) / f"checkpoint/step-{step}"
    model.load_state_dict(init_weights.load_weights(list(model.state_dict()), str(folder)))
    return model


def mean_loss(model, batches):
    """Returns the mean loss over all tokens of (tokens, labels) pairs, each [B, T]; summed in double."""
    import torch
    import torch.nn.functional as F

    total, count = 0.0, 0
    with torch.no_grad():
        for tokens, labels in batches:
            losses = F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten(), reduction="none")
            total, count = total + losses.double().sum().item(), count + losses.numel()
    return total / count


def whole_set(context, path):
    import text_data
    import torch

    encode = tokenizer(context).encode
    stream = [token for document in text_data.read_documents("jsonl", path) for token in encode(document)]
    for begin in range(0, len(stream) - SEQ_LEN, SEQ_LEN + 1):
        window = torch.tensor([stream[begin : begin + SEQ_LEN + 1]])
        yield window[:, :-1], window[:, 1:]


def check_loss(row, expected):
    distance = relative_distance(row["loss"], expected)
    expect(distance < TOLERANCE, f"step {row['step']}: loss {row['loss']!r}, expected {expected!r}: {distance:.1e}")


@case(120, ranks=[1, 2, 3], wide=["1", "2"])
def validation_exact(context, ranks):
    """The loss is the mean over every window of the set, once each, with the weights after the step; some ranks get
    none."""
    path = write_held_out(context)
    config = write_job(context, "train", steps=4)
    job = run(context, ranks, ["--config", config, *FP32, *validation(path), *save_every(2)])
    rows = read_rows(context.dump("train") / "validation.jsonl")
    expect([row["step"] for row in rows] == [1, 2, 4], f"validation ran after steps {[row['step'] for row in rows]}")
    for row in rows:
        expect(row["tokens"] == WINDOWS * SEQ_LEN, f"step {row['step']}: {row['tokens']} tokens, expected {WINDOWS * SEQ_LEN}")
        expect(relative_distance(row["perplexity"], math.exp(row["loss"])) < 1e-12, f"perplexity is {row['perplexity']}")
        expect(row["seconds"] > 0, "a pass took no time")
        so_far = {r["step"]: r["loss"] for r in rows if r["step"] <= row["step"]}
        best = min(so_far, key=so_far.get)
        found = (row["best_step"], row["best_loss"], row["is_best"])
        expect(found == (best, so_far[best], best == row["step"]), f"step {row['step']}: best is {found}")
        if row["step"] > 1:
            check_loss(row, mean_loss(model_of(context, config, row["step"], "train"), whole_set(context, path)))
    lines = {int(m["step"]): m for m in CONSOLE_LINE.finditer(job.text())}
    for row in rows:
        line = lines.get(row["step"])
        expect(line is not None, f"no console line of TorchTitan's form for step {row['step']}")
        expect((line["loss"], int(line["best"])) == (f"{row['loss']:.4f}", row["best_step"]), f"line {line[0]}, row {row}")


@case(90)
def validation_steps(context):
    """steps above 0: the first batches of each rank's block, the same at every pass, so that passes compare."""
    import_reference()
    import text_data

    ranks, steps = 2, 2
    path = write_held_out(context)
    config = write_job(context, "train", steps=4)
    # The weights do not change, so that one checkpoint serves every pass.
    words = [*FP32, "--optimizer.lr", "1e-30", *validation(path, steps=steps), *save_every(4)]
    run(context, ranks, ["--config", config, *words])
    model = model_of(context, config, 4, "train")
    documents = text_data.read_documents("jsonl", path)
    blocks = [text_data.block_of_rank(documents, rank, ranks) for rank in range(ranks)]
    sources = [text_data.batches(block, tokenizer(context), BATCH, SEQ_LEN) for block in blocks]
    used = [next(source) for source in sources for _ in range(steps)]
    rows = read_rows(context.dump("train") / "validation.jsonl")
    expect([row["step"] for row in rows] == [1, 2, 4], f"validation ran after steps {[row['step'] for row in rows]}")
    for row in rows:
        check_loss(row, mean_loss(model, used))


@case(120, steps=[-1, 2], wide=["-1"])
def validation_after_a_kill(context, steps):
    """Losses depend on the step alone: a run killed between a checkpoint and its pass has an undisturbed run's rows."""
    path = write_held_out(context)
    words = ["--debug.deterministic", *FP32, *validation(path, steps=steps), "--validation.at_last_step", *save_every(2)]
    run(context, 2, ["--config", write_job(context, "straight", steps=5), *words], name="straight")
    again = ["--config", write_job(context, "killed", steps=5), *words]
    for row in (2, 4):
        # Kills at the second row of each start: the first writes rows of steps 1 and 2, the next one of 2 (missed) and
        # 4.
        killed = faults(context, "rank=0 call=write path=*validation.jsonl n=2 do=kill")
        expect(start(context, 2, again, name=f"killed-{row}", env=killed).wait() != 0, "the run was not killed")
        saved = sorted(path.name for path in (context.dump("killed") / "checkpoint").iterdir())
        expect(saved[-1] == f"step-{row}", f"the run was not killed between step {row} and its pass: {saved}")
    run(context, 2, again, name="again")
    rows = {}
    for name in ("straight", "killed"):
        rows[name] = [(row["step"], row["loss"], row["best_step"]) for row in read_rows(context.dump(name) / "validation.jsonl")]
    expect([step for step, *_ in rows["straight"]] == [1, 2, 4, 5], f"{rows['straight']}")
    expect(rows["killed"] == rows["straight"], f"killed: {rows['killed']}, straight: {rows['straight']}")


@case(60)
def validation_of_the_last_step_is_caught_up(context):
    """A run killed after its last checkpoint and before that step's pass makes the pass, and trains nothing."""
    path = write_held_out(context)
    config = write_job(context, "train", steps=3)
    words = ["--config", config, *validation(path, freq=10), "--validation.at_last_step", *save_every(100)]
    killed = faults(context, "rank=0 call=write path=*validation.jsonl n=2 do=kill")
    expect(start(context, 2, words, name="killed", env=killed).wait() != 0, "the run was not killed")
    expect([row["step"] for row in read_rows(context.dump("train") / "validation.jsonl")] == [1], "the last pass has a row")
    text = run(context, 2, words, name="again").text()
    rows = read_rows(context.dump("train") / "validation.jsonl")
    expect([row["step"] for row in rows] == [1, 3] and "training steps" not in text, f"{rows}\n{text}")
    expect("nothing to do" in run(context, 2, words, name="third").text(), "a third start found something to do")


@case(120, steps=[-1, 2], wide=["-1"])
def validation_changes_nothing(context, steps):
    """Every digit of the training is the same with and without validation, and every byte of its checkpoints except the
    held-out set's record."""
    path = write_held_out(context)
    words = ["--debug.deterministic", "--activation_checkpoint.mode", "selective", *save_every(3)]
    words += ["--activation_checkpoint.selective_ac_option", "op"]
    for name, more in (("without", []), ("with", validation(path, steps=steps))):
        run(context, 2, ["--config", write_job(context, name, steps=8), *words, *more], name=name)
    rows = [rows_by_step(context.dump(name) / "metrics.jsonl", exact=True) for name in ("with", "without")]
    check_identical(*rows, ("loss", "max_loss", "grad_norm", "lr", "tokens_seen"), "validation")
    expect(len(read_rows(context.dump("with") / "validation.jsonl")) == 5, "validation did not run five times")
    steps = steps_of(context.dump("with") / "checkpoint")
    expect(len(steps) == 3, f"checkpoints of steps {steps}, expected three")
    for step in steps:
        one, other = (pieces_of(context.dump(name) / f"checkpoint/step-{step}") for name in ("with", "without"))
        expect(one == other, f"step {step} differs: {[key for key in one.keys() | other.keys() if one.get(key) != other.get(key)]}")


def pieces_of(folder):
    """Returns {(key, offsets): bytes}; the run's record as values, without what it knows of the held-out set."""
    pieces = {(key, offsets): data for key, offsets, data in items(folder)[1]}
    for piece in [piece for piece in pieces if piece[0] == "titan.run"]:
        record = load_item(pieces[piece])
        pieces[piece] = {key: value for key, value in record.items() if not key.startswith("held_out_")}
    return pieces


@case(90)
def validation_keeps_best(context):
    """The checkpoint with the lowest held-out loss outlives keep_latest_k, also over a resume."""
    path = write_held_out(context)
    config = write_job(context, "train")
    words = ["--config", config, *validation(path, freq=1), *save_every(1), "--checkpoint.keep_latest_k", "2"]
    words += ["--lr_scheduler.total_steps", "12"]
    run(context, 2, [*words, "--training.steps", "6"], name="first")
    # A learning rate that ruins the model: nothing after step 6 is better.
    run(context, 2, [*words, "--training.steps", "12", "--optimizer.lr", "3.0"], name="second")
    rows = read_rows(context.dump("train") / "validation.jsonl")
    expect([row["step"] for row in rows] == list(range(1, 13)), f"rows of steps {[row['step'] for row in rows]}")
    best = min(rows, key=lambda row: row["loss"])["step"]
    expect(best <= 6, f"step {best} is the best, after a step length that should have ruined the model")
    expect(rows[-1]["best_step"] == best, f"the last row says {rows[-1]['best_step']} where step {best} is the best")
    kept = sorted(int(p.name[5:]) for p in context.dump("train").glob("checkpoint/step-*"))
    # The last save removes nothing.
    expect(kept == [best, 10, 11, 12], f"checkpoints {kept}, expected {best} as the best, and 10, 11 and 12")


@case(60)
def validation_stops_on_a_signal(context):
    """A long pass does not delay a job that is asked to stop."""
    words = [*validation(context.fixtures / "corpus.jsonl", freq=1), "--validation.local_batch_size", "1", *save_every(100)]
    gate = Gate(context, "stop")
    # The pass after step 1 follows its row.
    env = faults(context, gate.rule(at_row(1)))
    job = start(context, 2, ["--config", write_job(context, "train", steps=50), *words], env=env)
    gate.signal(context, job)
    code = job.wait()
    expect(code == 75, f"exit code {code} after SIGTERM, expected 75\n{job.tail()}")
    found = re.findall(r"validation after step (\d+) was cut short by a signal", job.text())
    expect(found == ["1"], f"the passes after steps {found} were cut short, expected that after step 1\n{job.tail()}")
    steps = [row["step"] for row in read_rows(context.dump("train") / "metrics.jsonl")]
    saved = [path.name for path in (context.dump("train") / "checkpoint").iterdir()]
    expect((steps, saved) == ([1, 2], ["step-2"]), f"rows {steps} and checkpoints {saved}, expected 2 steps\n{job.tail()}")
    expect(not (context.dump("train") / "validation.jsonl").exists(), "a pass that was cut short has a row")


@case(60)
def validation_set_too_small(context):
    """A set without one full window is named, at any number of ranks."""
    path = context.folder / "held_out.jsonl"
    path.write_text(json.dumps({"text": "one two three"}) + "\n")
    config = write_job(context, "train", steps=2)
    job = run(context, 2, ["--config", config, *validation(path)], exit_code=1, launcher="torchrun")
    expect("fewer tokens than one window of validation.seq_len + 1 = 65" in job.text(), job.tail())


@case(120, mesh=["sharded", "pipeline"])
def validation_prompts(context, mesh):
    """At each validation the model continues the prompts with the text that generate writes from that step's
    checkpoint. Training is unaffected: its losses and checkpoint are the same to the bit."""
    of_mesh = ["--parallelism.pipeline_parallel_degree", "2"] if mesh == "pipeline" else []
    held_out, prompts = write_held_out(context), ["import torch", "def f():"]
    listed = "prompts = [" + ", ".join(f'"{prompt}"' for prompt in prompts) + "]\nprompt_tokens = 12\n"
    rows, states, jobs = {}, {}, {}
    for name, more in (("without", ""), ("with", f"[validation]\n{listed}")):
        config = write_job(context, name, steps=4)
        config.write_text(config.read_text() + more)
        words = ["--config", config, *FP32, *validation(held_out), *save_every(2), *of_mesh]
        jobs[name] = run(context, 2, words, name=name)
        rows[name] = rows_by_step(context.dump(name) / "metrics.jsonl", exact=True)
        states[name] = read_state(context.dump(name) / "checkpoint/step-4")
    check_identical(rows["with"], rows["without"], ("loss", "grad_norm"), "with prompts")
    expect(set(states["with"]) == set(states["without"]), "the checkpoints have other keys")
    for key, value in states["without"].items():
        expect(is_same(states["with"][key], value), f"{key} differs with prompts")
    lines = re.findall(r"sample after step (\d+): \"(.*?)\" -> \"(.*)\"", jobs["with"].text())
    expect([(int(step), prompt) for step, prompt, _ in lines] == [(s, p) for s in (1, 2, 4) for p in prompts], f"{lines}")
    for step, prompt, text in lines[2:]:
        words = ["--checkpoint", context.dump("with") / f"checkpoint/step-{step}", "--prompt", prompt, "--max-tokens", 12]
        out, _ = command(context, "generate", *words, "--temperature", 0, "--device", "cpu")
        expect(one_line(out.removesuffix("\n")) == text, f"step {step}: {text!r}, from its checkpoint {out!r}")
    expect("sample after" not in jobs["without"].text(), "samples without prompts")
    if mesh == "pipeline":
        return

    config = write_job(context, "alone", steps=3)
    config.write_text(config.read_text() + f"[validation]\n{listed}")
    text = run(context, 2, ["--config", config, *FP32], name="alone").text()
    found = re.findall(r"sample after step (\d+)", text)
    expect(found == ["3"] * len(prompts), f"without validation the last step alone has samples: {found}")
    config.write_text(config.read_text().replace("import torch", "word " * 64))
    job = run(context, 1, ["--config", config, *validation(held_out)], name="long", exit_code=2)
    expect("validation.prompts" in job.text() and "shorten it" in job.text(), job.tail())


def is_same(found, expected):
    """Compares tensors to the bit, lists and other values by equality."""
    import torch

    return torch.equal(found, expected) if torch.is_tensor(expected) else found == expected


def one_line(text):
    """Returns the text on one line, as in the log."""
    return "".join("\\n" if c == "\n" else " " if ord(c) < 0x20 or ord(c) == 0x7F else c for c in text)
