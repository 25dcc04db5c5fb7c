"""Datasets: the elastic order over stops and world sizes, tokenized shards and bad records."""
import collections
import json
import os
import pathlib
import random
import signal

from fixtures import write_job
from harness import case, expect, read_rows, relative_distance, rows_by_step, run, start, wait_until


def logged(prefix, ranks):
    """The rows of a run's sample log, of all ranks."""
    rows = []
    for rank in range(ranks):
        path = pathlib.Path(f"{prefix}.rank{rank}")
        expect(path.exists(), f"{path} was not written")
        rows += [json.loads(line) for line in path.read_text().splitlines()]
    return rows


def train_logged(context, ranks, words, name, exit_code=0):
    log = context.folder / f"samples-{name}"
    job = start(context, ranks, words, name=name, env={"TITAN_LOG_SAMPLES": str(log)})
    code = job.wait(60)
    expect(code == exit_code, f"{name}: exit code {code}, expected {exit_code}\n{job.tail()}")
    return logged(log, ranks)


ELASTIC = ["--training.dataset", "jsonl", "--training.local_batch_size", 1, "--training.global_batch_size", 8]
FP32 = ["--training.mixed_precision_param", "float32"]


@case(240)
def elastic_resize(context):
    """Stops and resumes at 1, 2 and 4 ranks: the global batches of an uninterrupted run, none twice, none lost."""
    steps = 24
    mix = ["--training.dataset_mix", f"0.75 jsonl {context.fixtures}/corpus.jsonl,0.25 text {context.fixtures}/corpus"]
    words = ["--config", write_job(context, "straight", steps=steps), *ELASTIC, *FP32, *mix]
    expected = train_logged(context, 1, words, "straight")
    by_sample = {row["sample"]: row for row in expected}
    expect(sorted(by_sample) == list(range(8 * steps)), "the uninterrupted run has other samples than 0, 1, 2, ...")
    sources = collections.Counter(row["source"] for row in expected)
    expect(abs(sources[1] - 0.25 * 8 * steps) <= 3, f"{sources[1]} of {8 * steps} samples are of the second dataset")

    config = write_job(context, "resized", steps=steps)
    words = ["--config", config, *ELASTIC, *FP32, *mix, "--checkpoint.enable", "--checkpoint.interval", 1000]
    words += ["--checkpoint.no-last_save_model_only", "--lr_scheduler.total_steps", steps]
    draw = random.Random(5)
    worlds, done, found = [2, 4, 1, 4, 2], 0, []
    for part, ranks in enumerate(worlds):
        done = steps if part == len(worlds) - 1 else done + draw.randint(1, 6)
        found += train_logged(context, ranks, [*words, "--training.steps", done], f"part{part}")
    seen = collections.Counter(row["sample"] for row in found)
    twice = [sample for sample, times in seen.items() if times > 1]
    expect(not twice and sorted(seen) == list(range(8 * steps)), f"twice: {twice}; {len(seen)} of {8 * steps} samples")
    for row in found:
        wanted = by_sample[row["sample"]]
        for key in ("source", "item", "token", "hash"):
            expect(row[key] == wanted[key], f"sample {row['sample']}: {key} is {row[key]}, expected {wanted[key]}")
    # The same sums in another grouping: fp32 rounds each to 6e-8 of it, which 24 steps of AdamW (lr 3e-3, whose first
    # steps are signs of gradients, however small) carry on. 1,000 times that is still far below the effect of one other
    # sample, about 1e-2.
    one, other = (rows_by_step(context.dump(name) / "metrics.jsonl") for name in ("straight", "resized"))
    for step in range(1, steps + 1):
        distance = relative_distance(one[step]["loss"], other[step]["loss"])
        expect(distance < 1e-4, f"step {step}: loss {other[step]['loss']}, uninterrupted {one[step]['loss']}")


@case(120)
def elastic_stop_by_signal(context):
    """SIGTERM at any moment at 2 ranks, then on at 1: what was trained on is logged once."""
    words = ["--config", write_job(context, "stopped", steps=60), *ELASTIC, "--checkpoint.enable"]
    log = context.folder / "samples-first"
    job = start(context, 2, words, name="first", env={"TITAN_LOG_SAMPLES": str(log)})
    metrics = context.dump("stopped") / "metrics.jsonl"
    wait_until(lambda: metrics.exists() and len(read_rows(metrics)) > 5, 40, "no step was logged")
    for pid in job.ranks(context.program).values():
        os.kill(pid, signal.SIGTERM)
    code = job.wait(40)
    first = logged(log, 2)
    done = len({row["sample"] for row in first}) // 8
    expect(len(first) == 8 * done and 5 < done < 60, f"{len(first)} rows before the stop (exit code {code})")
    second = train_logged(context, 1, [*words, "--training.steps", done + 5], "second")
    samples = sorted(row["sample"] for row in first + second)
    expect(samples == list(range(8 * (done + 5))), "samples are missing or twice around the stop")


@case(60)
def elastic_refuses_another_order(context):
    """A checkpoint of one order is not continued in another, nor at another global batch size."""
    words = ["--config", write_job(context, "order", steps=4), "--checkpoint.enable", "--checkpoint.interval", 2]
    words += ["--checkpoint.no-last_save_model_only"]
    run(context, 1, [*words, *ELASTIC], name="save")
    longer = [*words, *ELASTIC, "--training.steps", 6]
    job = run(context, 1, [*longer, "--training.data_order", "torchtitan"], name="other", exit_code=1)
    expect('training.data_order = "elastic"' in job.text(), job.tail())
    job = run(context, 1, [*longer, "--training.global_batch_size", 4], name="batch", exit_code=2)
    expect("the global batch size (the number of lanes) was 8, it is 4 now" in job.text(), job.tail())
    job = run(context, 1, [*longer, "--debug.seed", 1], name="seed", exit_code=1)
    expect("debug.seed" in job.text(), job.tail())
    run(context, 1, [*longer, "--training.global_batch_size", 4, "--checkpoint.exclude_from_loading", "dataloader"], name="new")


def read_indexed(prefix):
    """Documents of one shard, read as the format was published (numpy knows none of our code)."""
    import numpy

    raw = pathlib.Path(f"{prefix}.idx").read_bytes()
    expect(raw[:9] == b"MMIDIDX\x00\x00", f"{prefix}.idx begins with {raw[:9]}")
    version, code = int.from_bytes(raw[9:17], "little"), raw[17]
    expect(version == 1, f"version {version}")
    dtype = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}[code]
    sequences, boundaries = (int.from_bytes(raw[at : at + 8], "little") for at in (18, 26))
    sizes = numpy.frombuffer(raw, "<i4", sequences, 34)
    pointers = numpy.frombuffer(raw, "<i8", sequences, 34 + 4 * sequences)
    documents = numpy.frombuffer(raw, "<i8", boundaries, 34 + 12 * sequences)
    expect(len(raw) == 34 + 12 * sequences + 8 * boundaries, f"{prefix}.idx has {len(raw)} bytes")
    expect(documents.tolist() == list(range(sequences + 1)), f"{prefix}.idx: documents are not one sequence each")
    tokens = numpy.fromfile(f"{prefix}.bin", dtype)
    expect(int(sizes.sum()) == len(tokens), f"{prefix}.bin has {len(tokens)} tokens, the index {sizes.sum()}")
    width = numpy.dtype(dtype).itemsize
    return [tokens[at // width : at // width + size].tolist() for at, size in zip(pointers.tolist(), sizes.tolist())]


def tree(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@case(120)
def tokenize_shards(context):
    """tokenize writes the .bin/.idx format; a killed run goes on to the same bytes; training reads the shards."""
    import sentencepiece

    corpus, tokenizer = context.folder / "corpus.jsonl", context.fixtures / "tokenizer"
    texts = [json.loads(line)["text"] for line in open(context.fixtures / "corpus.jsonl", encoding="utf-8")]
    texts = [text[at : at + 700] for text in texts for at in range(0, len(text), 700)] * 8
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    words = ["tokenize", "--tokenizer", tokenizer, "--input", corpus, "--append-bos", "--append-eos"]
    run(context, 1, [*words, "--output", context.folder / "whole/x", "--workers", 1], name="whole")
    model = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer / "tokenizer.model"))
    shards = sorted((context.folder / "whole").glob("*.idx"))
    documents = [ids for shard in shards for ids in read_indexed(shard.with_suffix(""))]
    expect(documents == [[1, *model.encode(text), 2] for text in texts], "other tokens than sentencepiece's")
    # Killed as soon as some shards are there, three times; then to the end.
    killed = context.folder / "killed"
    command = [*words, "--output", killed / "x", "--workers", 2]
    for attempt in range(3):
        job = start(context, 1, command, name=f"killed{attempt}")
        before = len(list(killed.glob("*.idx"))) if killed.exists() else 0
        wait_until(lambda: job.process.poll() is not None or len(list(killed.glob("*.idx"))) > before, 30, "no shard")
        job.process.kill()
        job.process.wait()
    kept = {path.name: path.stat().st_mtime_ns for path in killed.glob("*.idx")}
    expect(0 < len(kept) < len(shards), f"{len(kept)} of {len(shards)} shards before the last run: it tests nothing")
    run(context, 1, command, name="rest")
    expect(all((killed / name).stat().st_mtime_ns == at for name, at in kept.items()), "a finished shard was redone")
    expect(tree(killed) == tree(context.folder / "whole"), "an interrupted run wrote other bytes")
    job = run(context, 1, [*words, "--output", killed / "x", "--shard-documents", 7], name="other", exit_code=2)
    expect("other options" in job.text(), job.tail())
    config = write_job(context, "indexed", steps=5)
    words = ["--config", config, "--training.dataset", "indexed", "--training.dataset_path", killed / "x"]
    expect(len(read_rows(run(context, 2, words) and context.dump("indexed") / "metrics.jsonl")) == 5, "5 steps")


@case(60)
def bad_records_are_counted(context):
    """on_bad_record = "skip": skipped lines appear in the rows; "error": file and line."""
    corpus = context.folder / "bad.jsonl"
    lines = (context.fixtures / "corpus.jsonl").read_text(encoding="utf-8").splitlines()[:4]
    corpus.write_text("\n".join([lines[0], "{", lines[1], '{"txt": "x"}', *lines[2:]]) + "\n", encoding="utf-8")
    words = ["--config", write_job(context, "bad", steps=30), "--training.dataset_path", corpus]
    job = run(context, 1, [*words, "--training.local_batch_size", 8], name="error", exit_code=2)
    expect(f"{corpus}:2: not a JSON object" in job.text(), job.tail())
    for order in ("torchtitan", "elastic"):
        more = ["--training.on_bad_record", "skip", "--training.data_order", order, "--training.local_batch_size", 8]
        run(context, 1, [*words, *more], name=order)
        row = read_rows(context.dump("bad") / "metrics.jsonl")[-1]
        expect(row.get("bad_records", 0) >= 1, f"{order}: bad_records is {row.get('bad_records')}")
