"""Tests datasets: the elastic order over stops and world sizes, tokenized shards and bad records."""
import collections
import errno
import gzip
import json
import os
import pathlib
import re
import signal

from fixtures import write_job
from harness import (
    Gate, at_row, case, check_identical, expect, faults, kill, read_rows, relative_distance, rows_by_step, run, start, wait_until,
)  # fmt: skip


def logged(prefix, ranks):
    """Returns the rows of a run's sample log, of all ranks."""
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
    """Stops and resumes at 1, 2 and 4 ranks, sharded and replicated: gives the global batches of an uninterrupted run,
    none twice, none lost, and its losses, so the optimizer's state is restored, too."""
    steps = 12
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
    parts = [(2, 1, 3), (4, 2, 5), (1, 1, 8), (2, 2, steps)]  # ranks, the number of replicas among them, last step
    found = []
    for part, (ranks, replicas, last) in enumerate(parts):
        more = ["--parallelism.data_parallel_replicate_degree", replicas, "--training.steps", last]
        found += train_logged(context, ranks, [*words, *more], f"part{part}")
    seen = collections.Counter(row["sample"] for row in found)
    twice = [sample for sample, times in seen.items() if times > 1]
    expect(not twice and sorted(seen) == list(range(8 * steps)), f"twice: {twice}; {len(seen)} of {8 * steps} samples")
    for row in found:
        wanted = by_sample[row["sample"]]
        for key in ("source", "item", "token", "hash"):
            expect(row[key] == wanted[key], f"sample {row['sample']}: {key} is {row[key]}, expected {wanted[key]}")
    # The same sums in another grouping: fp32 rounds each to 6e-8 of it, which 12 steps of AdamW amplify (lr 3e-3; its
    # first steps are signs of gradients, however small). 1,000 times that is still far below the effect of one other
    # sample, about 1e-2.
    one, other = (rows_by_step(context.dump(name) / "metrics.jsonl") for name in ("straight", "resized"))
    for step in range(1, steps + 1):
        distance = relative_distance(one[step]["loss"], other[step]["loss"])
        expect(distance < 1e-4, f"step {step}: loss {other[step]['loss']}, uninterrupted {one[step]['loss']}")
        tokens = [rows[step]["tokens_seen"] for rows in (one, other)]
        expect(tokens[0] == tokens[1], f"step {step}: {tokens[1]} tokens seen, uninterrupted {tokens[0]}")


@case(60)
def elastic_stop_by_signal(context):
    """SIGTERM at 2 ranks, then resumed at 1: every sample that was trained on is logged once."""
    steps, last = 12, 7  # the signal comes after step 6 and is seen when step 7 begins
    words = ["--config", write_job(context, "stopped", steps=steps), *ELASTIC, "--checkpoint.enable"]
    log, gate = context.folder / "samples-first", Gate(context, "stop")
    env = {"TITAN_LOG_SAMPLES": str(log), **faults(context, gate.rule(at_row(6)))}
    job = start(context, 2, words, name="first", env=env)
    gate.signal(context, job)
    code = job.wait()
    expect(code == 75, f"exit code {code} after SIGTERM, expected 75\n{job.tail()}")
    first = sorted(row["sample"] for row in logged(log, 2))
    expect(first == list(range(8 * last)), f"before the stop the samples are {first}, expected those of {last} steps")
    second = sorted(row["sample"] for row in train_logged(context, 1, words, "second"))
    expect(second == list(range(8 * last, 8 * steps)), f"after the stop the samples are {second}")


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
    """Returns the documents of one shard, read by the published format (numpy knows none of our code)."""
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


@case(60)
def tokenize_shards(context):
    """tokenize writes the .bin/.idx format. If killed before any rename, or asked to stop, it resumes to the same bytes
    with any number of workers; training reads the shards."""
    import sentencepiece

    corpus, tokenizer = context.folder / "corpus.jsonl", context.fixtures / "tokenizer"
    texts = [json.loads(line)["text"] for line in open(context.fixtures / "corpus.jsonl", encoding="utf-8")]
    texts = [text[at : at + 700] for text in texts for at in range(0, len(text), 700)]
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    words = ["tokenize", "--tokenizer", tokenizer, "--input", corpus, "--append-bos", "--append-eos"]
    run(context, 1, [*words, "--output", context.folder / "whole/x", "--workers", 1], name="whole")
    model = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer / "tokenizer.model"))
    shards = sorted((context.folder / "whole").glob("*.idx"))
    expect(len(shards) > 8, f"{len(shards)} shards are too few to be interrupted")
    documents = [ids for shard in shards for ids in read_indexed(shard.with_suffix(""))]
    expect(documents == [[1, *model.encode(text), 2] for text in texts], "other tokens than sentencepiece's")
    killed = context.folder / "killed"
    command = [*words, "--output", killed / "x"]
    kept = {}

    def check_kept(count):
        found = {path.name: path.stat().st_mtime_ns for path in killed.glob("*.idx")}
        expect(len(found) == count, f"{len(found)} shards are finished, expected {count}")
        expect(found.items() >= kept.items(), "a finished shard was redone")
        kept.update(found)

    # A shard is its .bin, then its .idx. One worker, so that the shards before the kill are known.
    one = [*command, "--workers", 1]
    for renamed, number, finished in (("idx", 3, 2), ("bin", 4, 5)):
        fault = faults(context, f"call=rename path=*.{renamed}.tmp n={number} do=kill")
        run(context, 1, one, name=f"before_{renamed}", exit_code=-signal.SIGKILL, env=fault)
        check_kept(finished)
    gate = Gate(context, "stop")
    job = start(context, 1, one, name="stopped", env=faults(context, gate.rule("call=rename path=*.idx.tmp n=2")))
    gate.wait(job)
    reports = job.text().count("tokenize: ")
    kill(job.process.pid, signal.SIGTERM)
    # A report comes every second and looks for signals. When there is a second one, the first has told the worker.
    wait_until(lambda: job.text().count("tokenize: ") >= reports + 2, 30, "no two reports after the signal")
    gate.open()
    code = job.wait()
    expect(code == 75, f"exit code {code} after SIGTERM, expected 75\n{job.tail()}")
    check_kept(7)
    run(context, 1, [*command, "--workers", 2], name="rest")
    check_kept(len(shards))
    expect(tree(killed) == tree(context.folder / "whole"), "an interrupted run wrote other bytes")
    job = run(context, 1, [*words, "--output", killed / "x", "--shard-documents", 7], name="other", exit_code=2)
    expect(re.search(r"other options: shard_documents: \d+ there, 7 here\. Choose another --output, or remove ", job.text()), job.tail())
    config = write_job(context, "indexed", steps=5)
    other = context.folder / "tokenizer"
    other.mkdir()
    model = (tokenizer / "tokenizer.model").read_bytes()
    (other / "tokenizer.model").write_bytes(model + b"\x12\x00")  # an empty message that changes nothing but the bytes
    words = ["--config", config, "--training.dataset", "indexed", "--training.dataset_path", killed / "x"]
    job = run(context, 2, [*words, "--model.hf_assets_path", other], name="tokenizer", exit_code=2)
    reason = f"error: --training.dataset_path: {killed}/x.json: its shards were made with another tokenizer"
    expect(job.text().count(reason) == 1, job.tail())
    expect(len(read_rows(run(context, 2, words) and context.dump("indexed") / "metrics.jsonl")) == 5, "5 steps")


@case(30, processors=1)
def tokenize_after_a_mistake(context):
    """A failure before the first shard leaves nothing that could affect the corrected command."""
    text = context.folder / "lines.txt"
    text.write_text("not one JSON object\n" * 20)
    words = ["tokenize", "--tokenizer", context.fixtures / "tokenizer", "--input", text, "--output", context.folder / "out/x"]
    run(context, 1, words, name="mistaken", exit_code=2)
    run(context, 1, [*words, "--dataset", "text"], name="corrected")
    expect(list((context.folder / "out").glob("x-*.idx")), "no shard was written")


@case(30, processors=1)
def tokenize_hints_at_text(context):
    """A folder of text files instead of JSON lines is answered with the option that reads it."""
    folder = context.folder / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("some text\n")
    words = ["tokenize", "--tokenizer", context.fixtures / "tokenizer", "--input", folder, "--output", context.folder / "out/x"]
    job = run(context, 1, words, name="mistaken", exit_code=2)
    expect("holds 1 entry: a.txt" in job.text() and "add --dataset text" in job.text(), job.tail())
    (folder / "b.txt").symlink_to("gone.txt")
    job = run(context, 1, [*words, "--dataset", "text"], name="link", exit_code=2)
    expect(f"{folder}/b.txt: it is a link to gone.txt, which is not there" in job.text(), job.tail())


@case(60, processors=1)
def names_that_are_not_utf8(context):
    """Files with names that are not UTF-8 are tokenized and trained on, and a folder of such a name is inspected."""
    source = context.folder / os.fsdecode(b"caf\xe9")
    source.mkdir()
    for name in (b"a.txt", b"\xff.txt"):
        (source / os.fsdecode(name)).write_text("some text\n" * 200)
    for again in range(2):
        tokenize(context, source, context.folder / "x", "--dataset", "text")
    plan = json.loads((context.folder / "x.json").read_text(encoding="utf-8"))
    expect([file[0] for file in plan["files"]] == ["a.txt", r"\xFF.txt"] and r"caf\xE9" in plan["source"], f"{plan}")
    # The path of the folder is a value of the configuration and is refused; the names in the folder are not.
    good = source.rename(context.folder / "good")
    save = ["--checkpoint.enable", "--checkpoint.interval", 2, "--checkpoint.no-last_save_model_only"]
    words = ["--config", write_job(context, "run"), *save, "--training.dataset", "text", "--training.dataset_path", good]
    for steps in (2, 4):
        job = run(context, 1, [*words, "--training.steps", steps], name=f"run-{steps}")
        expect("checkpoints will not know the data" not in job.text(), job.tail())
    folder = context.dump("run").rename(context.folder / os.fsdecode(b"run\xe9"))
    for path in (folder, folder / "checkpoint", folder / "checkpoint/step-4"):
        job = run(context, 1, ["inspect", path, "--json", "--verify"], name=f"inspect-{path.name.encode('utf-8', 'replace').decode()}")
        expect(r"run\\xE9" in job.text(), job.tail())


@case(60)
def bad_records_are_counted(context):
    """on_bad_record = "skip": skipped lines appear in the rows; "error": file and line."""
    corpus = context.folder / "bad.jsonl"
    lines = (context.fixtures / "corpus.jsonl").read_text(encoding="utf-8").splitlines()[:4]
    corpus.write_text("\n".join([lines[0], "{", lines[1], '{"txt": "x"}', *lines[2:]]) + "\n", encoding="utf-8")
    words = ["--config", write_job(context, "bad", steps=30), "--training.dataset_path", corpus]
    job = run(context, 1, [*words, "--training.local_batch_size", 8], name="error", exit_code=2)
    expect(f"{corpus}:2:2: not a JSON object" in job.text(), job.tail())
    for order in ("torchtitan", "elastic"):
        more = ["--training.on_bad_record", "skip", "--training.data_order", order, "--training.local_batch_size", 8]
        run(context, 1, [*words, *more, "--overwrite"], name=order)
        row = read_rows(context.dump("bad") / "metrics.jsonl")[-1]
        expect(row.get("bad_records", 0) >= 1, f"{order}: bad_records is {row.get('bad_records')}")


@case(90)
def file_systems_without_locks(context):
    """Without flock(2), ranks can decompress the same file at once, and a second run in a folder is refused."""
    packed = context.folder / "packed"
    packed.mkdir()
    lines = (context.fixtures / "corpus.jsonl").read_bytes()
    (packed / "a.jsonl.gz").write_bytes(gzip.compress(lines))
    config = write_job(context, "train", steps=2)
    no_locks = f"call=flock do=errno:{errno.ENOSYS}"
    words = ["--config", config, "--training.dataset", "jsonl", "--training.dataset_path", packed]
    rows = {}
    for name, env in (("with", {}), ("without", faults(context, no_locks))):
        env = {**env, "TITAN_DATA_CACHE": str(context.folder / f"cache-{name}")}
        run(context, 4, [*words, "--job.dump_folder", context.folder / name], name=name, env=env)
        rows[name] = rows_by_step(context.folder / name / "metrics.jsonl", exact=True)
        left = [path.name for path in (context.folder / f"cache-{name}").iterdir() if path.suffix == ".tmp"]
        expect(not left, f"{left} were left in the cache")
    check_identical(rows["with"], rows["without"], ("loss", "grad_norm", "lr", "tokens_seen"), "without locks")
    # The last rank's copy does not replace the one that the others have looked at.
    text = context.folder / "text"
    text.mkdir()
    for number, line in enumerate(lines.splitlines()[:8]):
        (text / f"{number}.txt.gz").write_bytes(gzip.compress(json.loads(line)["text"].encode()))
    env = faults(context, no_locks) | {"TITAN_DATA_CACHE": str(context.folder / "cache-text")}
    words_of_text = ["--config", config, "--training.dataset", "text", "--training.dataset_path", text, "--job.dump_folder", context.folder / "of-text"]
    run(context, 4, words_of_text, name="of-text", env=env)
    # Runs still exclude each other, by the process that the folder names; a killed process is not an owner.
    gate = Gate(context, "first-row")
    env = faults(context, no_locks, gate.rule(at_row(1)))
    first = start(context, 1, [*words, "--job.dump_folder", context.folder / "owned"], name="first", env=env)
    gate.wait(first)
    again = [*words, "--job.dump_folder", context.folder / "owned", "--overwrite"]
    second = run(context, 1, again, name="second", exit_code=2, env=faults(context, no_locks))
    expect("another run writes there" in second.text() and "(process " in second.text(), second.tail())
    kill(first.process.pid, signal.SIGKILL)
    first.wait()
    run(context, 1, again, name="third", env=faults(context, no_locks))


def tokenize(context, source, output, *more, exit_code=0):
    words = ["tokenize", "--tokenizer", context.fixtures / "tokenizer", "--input", source, "--output", output, "--shard-documents", 2, *more]
    return run(context, 1, words, name=f"tokenize-{output.name}-{len(list(context.folder.iterdir()))}", exit_code=exit_code)


@case(90, processors=1)
def shards_know_their_data(context):
    """Shards of files that have changed since are not kept, and a folder with missing shards is not trained on."""
    source, shards = context.folder / "source", context.folder / "shards"
    source.mkdir()
    shards.mkdir()
    lines = (context.fixtures / "corpus.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)[:8]
    (source / "a.jsonl").write_text("".join(lines), encoding="utf-8")
    tokenize(context, source, shards / "x")
    made = (shards / "x-00000-of-00004.bin").read_bytes()
    # Changes only the time, as a copy does.
    (source / "a.jsonl").write_text("".join(lines), encoding="utf-8")
    job = tokenize(context, source, shards / "x")
    expect("4 of an earlier run" in job.text(), job.tail())
    edited = [lines[1], lines[0], *lines[2:]]
    (source / "a.jsonl").write_text("".join(edited), encoding="utf-8")
    job = tokenize(context, source, shards / "x", exit_code=2)
    expect("the data have changed since its shards were made: a.jsonl has other content of the same size" in job.text(), job.tail())
    job = tokenize(context, source, shards / "x", "--allow-changed-files")
    expect("which are kept" in job.text() and (shards / "x-00000-of-00004.bin").read_bytes() == made, job.tail())
    (source / "b.jsonl").write_text(lines[0], encoding="utf-8")
    (source / "a.jsonl").write_text("".join(lines[:7]), encoding="utf-8")
    job = tokenize(context, source, shards / "x", exit_code=2)
    expect("a.jsonl had" in job.text() and "b.jsonl was not there" in job.text(), job.tail())
    # An interrupted run.
    (shards / "x-00002-of-00004.idx").unlink()
    words = ["--training.dataset", "indexed", "--training.dataset_path"]
    config = write_job(context, "train", steps=1)
    for path in (shards / "x", shards, context.folder):
        job = run(context, 1, ["--config", config, *words, path], name=f"train-{path.name}", exit_code=2)
        expect("3 of 4 shards are there. Run titan-train tokenize again" in job.text(), job.tail())


@case(90)
def lines_are_looked_for_once(context):
    """A dry run makes the index of large data; later starts and tokenize find it, and losses do not change."""
    lines = (context.fixtures / "corpus.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    size = sum(len(line.encode()) for line in lines)
    large = context.folder / "large.jsonl"
    large.write_text("".join(lines) * (1 + (16 << 20) // size), encoding="utf-8")
    words = ["--config", write_job(context, "train"), "--training.dataset", "jsonl", "--training.dataset_path", large, "--training.steps", 2]
    env = {"TITAN_DATA_CACHE": str(context.folder / "cache")}
    looks = "looking for the lines of"
    losses = []
    for name, extra, expected in (("json", ["--dry-run", "--json"], 0), ("dry", ["--dry-run"], 1), ("first", [], 0), ("second", [], 0)):
        job = run(context, 1, [*words, "--job.dump_folder", context.folder / name, *extra], name=name, env=env, launcher="none")
        expect(job.text().count(looks) == expected, f"{name}\n{job.tail()}")
        if name == "json":
            json.loads(job.out_path.read_text())
        elif name != "dry":
            losses.append([row["loss"] for row in read_rows(context.folder / name / "metrics.jsonl", exact=True)])
    other = {"TITAN_DATA_CACHE": str(context.folder / "other")}
    job = run(context, 1, [*words, "--job.dump_folder", context.folder / "anew"], name="anew", env=other, launcher="none")
    losses.append([row["loss"] for row in read_rows(context.folder / "anew/metrics.jsonl", exact=True)])
    expect(job.text().count(looks) == 1 and losses[0] == losses[1] == losses[2], f"{losses}\n{job.tail()}")


@case(90)
def resume_knows_its_held_out_data(context):
    """Other text in the held-out file is refused by what differs, and allowed by name; another file is listed."""
    held_out = context.folder / "held_out.txt"
    held_out.write_text((context.fixtures / "corpus.jsonl").read_text(encoding="utf-8")[:40000], encoding="utf-8")
    save = ["--checkpoint.enable", "--checkpoint.interval", 2, "--checkpoint.no-last_save_model_only", "--lr_scheduler.total_steps", 20]
    validate = ["--validation.enable", "--validation.dataset", "text", "--validation.seq_len", 64, "--validation.freq", 2, "--validation.steps", 1]
    words = ["--config", write_job(context, "train"), *save, *validate, "--validation.dataset_path"]
    run(context, 1, [*words, held_out, "--training.steps", 2], name="first")
    moved = held_out.rename(context.folder / "moved.txt")
    job = run(context, 1, [*words, moved, "--training.steps", 4], name="moved")
    expect("validation.dataset_path was other data" in job.text(), job.tail())
    moved.write_text(moved.read_text(encoding="utf-8").replace("o", "a"), encoding="utf-8")
    job = run(context, 1, [*words, moved, "--training.steps", 6], name="edited", exit_code=1)
    expect("validation.dataset_path was other data, is changed: moved.txt has other content of the same size" in job.text(), job.tail())
    run(context, 1, [*words, moved, "--training.steps", 6, "--checkpoint.allow_changed", "validation.dataset_path"], name="allowed")


@case(120)
def resume_knows_its_data(context):
    """Other files at the same path are refused by what differs, and allowed by name; a moved folder is the same."""
    source = context.folder / "source"
    source.mkdir()
    lines = (context.fixtures / "corpus.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    half = len(lines) // 2
    for name, part in (("a.jsonl", lines[:half]), ("b.jsonl", lines[half:])):
        (source / name).write_text("".join(part), encoding="utf-8")
    config = write_job(context, "train")
    save = ["--checkpoint.enable", "--checkpoint.interval", 2, "--checkpoint.no-last_save_model_only", "--lr_scheduler.total_steps", 20]
    words = ["--config", config, "--training.dataset", "jsonl", *save, "--training.dataset_path"]
    run(context, 2, [*words, source, "--training.steps", 2], name="first")
    (source / "a.jsonl").touch()
    run(context, 2, [*words, source, "--training.steps", 4], name="touched")
    moved = source.rename(context.folder / "moved")
    job = run(context, 2, [*words, moved, "--training.steps", 6], name="moved")
    expect("training.dataset_path was" in job.text(), job.tail())
    # The same number of documents, but other ones.
    text = (moved / "a.jsonl").read_text(encoding="utf-8")
    (moved / "a.jsonl").write_text(text.replace("o", "a"), encoding="utf-8")
    job = run(context, 2, [*words, moved, "--training.steps", 8], name="edited", exit_code=1)
    expect("training.dataset_path was other data, is changed: a.jsonl has other content of the same size" in job.text(), job.tail())
    expect('checkpoint.allow_changed = ["training.dataset_path"]' in job.text(), job.tail())
    run(context, 2, [*words, moved, "--training.steps", 8, "--checkpoint.allow_changed", "training.dataset_path"], name="allowed")
    (moved / "a.jsonl").rename(moved / "c.jsonl")
    job = run(context, 2, [*words, moved, "--training.steps", 10], name="renamed", exit_code=1)
    expect("c.jsonl was not there; a.jsonl is gone" in job.text(), job.tail())
    job = run(context, 2, [*words, moved, "--training.steps", 10, "--checkpoint.exclude_from_loading", "dataloader"], name="anew")
