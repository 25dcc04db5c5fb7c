"""Compares encoding speed on one thread with the `tokenizers` and `sentencepiece` packages.

    .venv/bin/python benchmarks/tokenizer_speed.py [--repeats N] [--vocab-size N] [--tool FILE]

Both encode the same documents, one after the other, in turns. A ratio above 1 means that this program is faster. It is
the median of the ratios of neighboring runs, with their range; the first pair, which fills the caches of both, is
reported separately. If the numbers of ids differ, no ratio is printed.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

# Set before the package is loaded, which reads them once.
os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/integration"))

import sentencepiece  # noqa: E402
import tokenizer_fixtures as fixtures  # noqa: E402
import tokenizers  # noqa: E402


def corpora(limit_bytes):
    """Returns {name: documents}: the default corpus of source code, and ten languages in turn."""
    code, size = [], 0
    with open(ROOT / "assets/corpus/train.jsonl", encoding="utf-8") as file:
        for line in file:
            code.append(json.loads(line)["text"])
            size += len(code[-1])
            if size > limit_bytes:
                break
    languages = [" ".join(fixtures.LANGUAGES[i:] + fixtures.LANGUAGES[:i]) * 10 for i in range(len(fixtures.LANGUAGES))]
    return {"source code": code, "ten languages": languages * 10}


def seconds_of(function):
    started = time.perf_counter()
    count = function()
    return time.perf_counter() - started, count


class Ours:
    def __init__(self, tool, tokenizer, documents):
        # Stays open while it runs; all documents are read before the first time is taken.
        self.process = subprocess.Popen([tool, "--time", tokenizer, documents], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        seconds, count = self.process.stdout.readline().split()
        return float(seconds), int(count)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def compare(name, tool, folder, documents, path, theirs, repeats):
    ours = Ours(tool, folder, path)
    pairs = []
    for repeat in range(repeats + 1):
        # The side that goes first alternates.
        if repeat % 2:
            (our_seconds, our_count), (their_seconds, their_count) = ours.run(), theirs()
        else:
            (their_seconds, their_count), (our_seconds, our_count) = theirs(), ours.run()
        if our_count != their_count:
            sys.exit(f"{name}: {our_count} ids, the package has {their_count}")
        pairs.append((our_seconds, their_seconds))
    ours.close()
    ratios = [their / our for our, their in pairs]
    megabytes = sum(len(text.encode()) for text in documents) / 1e6
    our, their = (megabytes / statistics.median(seconds) for seconds in zip(*pairs[1:]))
    middle, low, high = statistics.median(ratios[1:]), min(ratios[1:]), max(ratios[1:])
    print(f"{name:34} {our:7.1f} MB/s  package {their:6.1f} MB/s  ratio {middle:5.2f} ({low:.2f}-{high:.2f}), first {ratios[0]:.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--vocab-size", type=int, default=16000)
    parser.add_argument("--megabytes", type=float, default=3)
    parser.add_argument("--tool", default=ROOT / "build/release/tests/unit/data/encode_tool")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        texts = corpora(arguments.megabytes * 1e6)
        lines = [line for documents in texts.values() for text in documents for line in text.split("\n")]
        for corpus, documents in texts.items():
            path = work / f"{corpus}.jsonl"
            path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents), encoding="utf-8")
            for kind in ("llama3", "qwen", "gpt2"):
                folder = work / kind
                if not folder.exists():
                    fixtures.make_tokenizer(kind, folder, lines, arguments.vocab_size)
                package = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
                theirs = lambda: seconds_of(lambda: sum(len(package.encode(t, add_special_tokens=False)) for t in documents))  # noqa: B023
                compare(f"{kind}, {corpus}", arguments.tool, folder, documents, path, theirs, arguments.repeats)
            folder = ROOT / "assets/tokenizer"
            processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
            theirs = lambda: seconds_of(lambda: sum(len(processor.encode(t)) for t in documents))  # noqa: B023
            compare(f"sentencepiece, {corpus}", arguments.tool, folder, documents, path, theirs, arguments.repeats)


if __name__ == "__main__":
    main()
