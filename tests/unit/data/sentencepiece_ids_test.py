"""Python's sentencepiece and data/tokenizer give the same ids: sentencepiece_ids_test.py ENCODE_TOOL ASSETS."""

import json
import pathlib
import subprocess
import sys
import tempfile

import sentencepiece

NUM_DOCUMENTS = 400
MAX_CHARACTERS = 6000  # per corpus document: full documents would take too long for a unit test
ODD_TEXTS = [
    "",
    " ",
    "   ",
    " a",
    "a ",
    "a  ",
    "a\n",
    "\n a \t b\r\n",
    "tab\tand\0nul",
    "caf\u00e9 cafe\u0301 \ufb01 \u00a0nbsp\u3000wide",
    "\u6f22\u5b57 \U0001f600 \u2581 a\u2581b \u2581",
    "<s> </s> <unk> <0x41>",
    "1234567890 3.14",
    "x" * 5000,
    "word " * 5000,
]


def main() -> None:
    tool, assets = sys.argv[1], pathlib.Path(sys.argv[2])
    with open(assets / "corpus" / "train.jsonl", encoding="utf-8") as file:
        texts = [json.loads(line)["text"][:MAX_CHARACTERS] for _, line in zip(range(NUM_DOCUMENTS), file)]
    texts += ODD_TEXTS
    processor = sentencepiece.SentencePieceProcessor(model_file=str(assets / "tokenizer" / "tokenizer.model"))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "texts.jsonl"
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
        output = subprocess.run([tool, assets / "tokenizer", path], check=True, capture_output=True, text=True).stdout
    lines = output.splitlines()
    assert len(lines) == len(texts), f"{len(texts)} documents, {len(lines)} lines of ids"
    for text, line in zip(texts, lines):
        ids, decoded_size = line.split("/")
        expected = processor.encode(text)
        assert [int(id) for id in ids.split()] == expected, f"ids differ for {text[:80]!r}"
        decoded = processor.decode(expected)
        assert int(decoded_size) == len(decoded.encode()), f"decoded text differs for {text[:80]!r}"
    print(f"{len(texts)} documents agree")


if __name__ == "__main__":
    main()
