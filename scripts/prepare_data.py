#!/usr/bin/env python3
"""Makes the default corpus and tokenizer from the torch wheel's Python source files, which every installation has.

    .venv/bin/python scripts/prepare_data.py --output assets

OUTPUT/corpus/train/*.txt        one document per file, for training.dataset = "text"
OUTPUT/corpus/validation/*.txt   held-out documents
OUTPUT/corpus/train.jsonl        the same documents in the same order, {"text": ...} per line
OUTPUT/corpus/validation.jsonl
OUTPUT/tokenizer/tokenizer.model SentencePiece BPE, 2048 pieces with byte fallback, bos 1, eos 2

The same wheel gives the same bytes. A stamp makes a second run return at once. Work happens in a temporary folder that
is renamed into place, so that a killed run leaves no partial corpus.
"""

import argparse
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import io
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time

import sentencepiece

TRAIN_BYTES = 12_000_000
MIN_CHARACTERS = 200
VALIDATION_EVERY = 50
VOCAB_SIZE = 2048
TOKENIZER_SENTENCES = 60_000
STAMP = "prepare_data.stamp"


def stamp_text(train_bytes: int) -> str:
    script = hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest()
    versions = "".join(f"{name} {importlib.metadata.version(name)}\n" for name in ("torch", "sentencepiece"))
    return f"script {script}\n{versions}bytes {train_bytes}\n"


def select_documents(train_bytes: int) -> list[tuple[str, str]]:
    """Returns (file name, text) of the chosen source files, sorted bytewise by file name, as the text source does."""
    package = pathlib.Path(importlib.util.find_spec("torch").origin).parent  # without loading it
    paths = [path.relative_to(package).as_posix() for path in package.rglob("*.py")]
    # Sorts by a hash of the path: every part of the package is represented, whatever the machine.
    paths.sort(key=lambda path: hashlib.sha256(path.encode()).digest())
    documents: dict[str, str] = {}
    budget = train_bytes * VALIDATION_EVERY // (VALIDATION_EVERY - 1)
    for path in paths:
        raw = (package / path).read_bytes()
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            continue
        if len(text) < MIN_CHARACTERS:
            continue
        name = path.replace("/", "__") + ".txt"
        if name in documents:
            sys.exit(f"prepare_data: two source files would be named {name}")
        documents[name] = text
        budget -= len(raw)
        if budget <= 0:
            break
    return sorted(documents.items(), key=lambda item: item[0].encode())


def write_split(corpus: pathlib.Path, split: str, documents: list[tuple[str, str]]) -> None:
    folder = corpus / split
    folder.mkdir(parents=True)
    for name, text in documents:
        (folder / name).write_bytes(text.encode())
    with open(corpus / f"{split}.jsonl", "w", encoding="utf-8", newline="\n") as file:
        for _, text in documents:
            file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")


def train_tokenizer(folder: pathlib.Path, documents: list[tuple[str, str]]) -> None:
    # The trainer wants short sentences, so each line of code (with its indentation) is one.
    lines = [line for _, text in documents for line in text.split("\n") if line.strip() and len(line) < 1000]
    step = -(-len(lines) // TOKENIZER_SENTENCES)
    model = io.BytesIO()  # a model_prefix would be stored in the model, including its temporary path
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines[::step]),
        model_writer=model,
        model_type="bpe",
        vocab_size=VOCAB_SIZE,
        character_coverage=1.0,
        max_sentence_length=8192,
        byte_fallback=True,
        split_digits=True,
        allow_whitespace_only_pieces=True,  # indentation becomes one piece
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=True,
        required_chars="\t",  # every other control character is left to the byte pieces
        unk_id=0,
        bos_id=1,
        eos_id=2,
        pad_id=-1,
        num_threads=2,
        input_sentence_size=0,  # chosen above, without the trainer's random sampling
        minloglevel=2,
    )
    folder.mkdir(parents=True)
    (folder / "tokenizer.model").write_bytes(model.getvalue())


def replace(source: pathlib.Path, target: pathlib.Path, attic: pathlib.Path) -> None:
    if target.exists():
        os.rename(target, attic / target.name)
    os.rename(source, target)


def prepare(output: pathlib.Path, stamp: pathlib.Path, train_bytes: int) -> str:
    started = time.monotonic()
    stamp.unlink(missing_ok=True)
    for stale in output.glob(".prepare-*"):
        shutil.rmtree(stale)
    work = pathlib.Path(tempfile.mkdtemp(prefix=".prepare-", dir=output))
    try:
        documents = select_documents(train_bytes)
        validation = documents[VALIDATION_EVERY - 1 :: VALIDATION_EVERY]
        held_out = {name for name, _ in validation}
        train = [document for document in documents if document[0] not in held_out]
        write_split(work / "corpus", "train", train)
        write_split(work / "corpus", "validation", validation)
        train_tokenizer(work / "tokenizer", train)
        (work / "old").mkdir()
        for name in ("corpus", "tokenizer"):
            replace(work / name, output / name, work / "old")
        (work / STAMP).write_text(stamp_text(train_bytes))
        os.rename(work / STAMP, stamp)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    size = sum(len(text.encode()) for _, text in train) / 1e6
    return (
        f"made {len(train)} training documents ({size:.1f} MB), {len(validation)} held out, and a tokenizer of "
        f"{VOCAB_SIZE} pieces in {time.monotonic() - started:.1f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("assets"), help="default: assets")
    parser.add_argument("--train-bytes", type=int, default=TRAIN_BYTES, help="size of the corpus (default: %(default)s)")
    arguments = parser.parse_args()
    output, train_bytes = arguments.output, arguments.train_bytes
    output.mkdir(parents=True, exist_ok=True)
    stamp = output / STAMP
    with open(output / ".prepare.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two setups at once: the second finds the work of the first
        made = all((output / name).exists() for name in ("corpus/train.jsonl", "tokenizer/tokenizer.model"))
        if made and stamp.is_file() and stamp.read_text() == stamp_text(train_bytes):
            print(f"prepare_data: {output} is up to date")
            return
        print(f"prepare_data: {output}: {prepare(output, stamp, train_bytes)}")


if __name__ == "__main__":
    main()
