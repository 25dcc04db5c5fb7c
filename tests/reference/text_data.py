"""Documents, tokenizer, rank split and packing, as TorchTitan's map-style text datasets do them."""
import json
import pathlib

import torch


class SentencePieceTokenizer:
    def __init__(self, path):
        import sentencepiece

        self.model = sentencepiece.SentencePieceProcessor(model_file=str(path))
        # A special token that the model lacks (id -1) is skipped.
        self.bos, self.eos = ([i] if i >= 0 else [] for i in (self.model.bos_id(), self.model.eos_id()))

    def encode(self, text):
        return self.bos + self.model.encode(text) + self.eos


class TokenizerJson:
    """Reads a tokenizer.json with the `tokenizers` package, which TorchTitan's environment has and .venv does not."""

    def __init__(self, folder):
        import tokenizers

        self.tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        config_path = folder / "tokenizer_config.json"
        config = json.loads(config_path.read_text()) if config_path.exists() else {}
        added = self.tokenizer.encode("").ids
        self.bos = self.special(config.get("bos_token"), added)
        self.eos = self.special(config.get("eos_token"), added)

    def special(self, token, added):
        """Returns [id] of a special token that encode() has to add itself, else []."""
        token = token.get("content") if isinstance(token, dict) else token
        index = self.tokenizer.token_to_id(token) if token else None
        return [] if index is None or index in added else [index]

    def encode(self, text):
        return self.bos + self.tokenizer.encode(text).ids + self.eos


def load_tokenizer(assets):
    folder = pathlib.Path(assets)
    if (folder / "tokenizer.model").exists():
        return SentencePieceTokenizer(folder / "tokenizer.model")
    return TokenizerJson(folder)


def read_documents(kind, path):
    """Returns all documents in order. "text": one per file, bytewise by relative path. "jsonl", "c4_test": one per
    line."""
    path = pathlib.Path(path)
    found = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    files = sorted(found, key=lambda file: bytes(file.relative_to(path)))
    if not files:
        raise SystemExit(f"reference: no file under {path}")
    if kind == "text":
        # newline="": a document is its bytes, so CRLF stays CRLF.
        return [file.open(encoding="utf-8", newline="").read() for file in files]
    if kind in ("jsonl", "c4_test"):
        lines = (line for file in files for line in file.open(encoding="utf-8", newline="\n"))
        return [json.loads(line)["text"] for line in lines if line.strip()]
    raise SystemExit(f"reference: training.dataset '{kind}' is not one of text, jsonl, c4_test")


def block_of_rank(documents, rank, world):
    """Returns a contiguous block; the first len % world ranks hold one document more."""
    size, extra = divmod(len(documents), world)
    start = size * rank + min(rank, extra)
    return documents[start : start + size + (rank < extra)]


def batches(documents, tokenizer, batch_size, seq_len):
    """Yields endless (tokens, labels), int64 [B, T] each. A window takes seq_len + 1 tokens and none is used twice."""
    buffer, rows = [], []
    while True:
        for document in documents:
            buffer.extend(tokenizer.encode(document))
            while len(buffer) > seq_len:
                rows.append(buffer[: seq_len + 1])
                del buffer[: seq_len + 1]
                if len(rows) == batch_size:
                    window = torch.tensor(rows)
                    rows = []
                    yield window[:, :-1].contiguous(), window[:, 1:].contiguous()


def rank_batches(job, rank, world):
    training = job["training"]
    path = training["dataset_path"] or "tests/assets/c4_test"
    documents = block_of_rank(read_documents(training["dataset"].lower(), path), rank, world)
    if not documents:
        raise SystemExit(f"reference: rank {rank} has no document")
    tokenizer = load_tokenizer(job["model"]["hf_assets_path"])
    return batches(documents, tokenizer, training["local_batch_size"], training["seq_len"])
