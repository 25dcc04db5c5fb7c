"""Tests weights that go to and from transformers' LlamaForCausalLM; its files and losses are in tests/golden."""
import hashlib
import json

import golden
from cases_hugging_face import read_folder
from cases_tokenizer import encode_all
from harness import case, expect, read_rows, relative_distance

# Both sides sum in fp32 in other orders (see cases_parity.py). Rows of a head in the wrong order, or key heads given
# to the wrong queries, move the loss of some batch by 2e-3 and more (tried).
TOLERANCE = 1e-5


def write_theirs(context, answers=None):
    """Writes the folder that transformers' save_pretrained wrote, to the byte of its weights. Returns it and
    transformers' answers; by default, those about Llama."""
    answers = answers or golden.answers("transformers")
    folder = context.folder / "theirs"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(answers["config"]))
    (folder / "model.safetensors.index.json").write_text(json.dumps(answers["index"]))
    for name, file in answers["files"].items():
        golden.write_safetensors(folder / name, file["tensors"])
        digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        expect(digest == file["sha256"], f"{name} is not the file that transformers wrote")
    expect(len(answers["files"]) > 1, "one file only")
    return folder, answers


def our_losses(context, weights, model=golden.LLAMA, name="ours"):
    """Returns the losses of steps that change nothing."""
    words = ["--checkpoint.enable", "--checkpoint.load_only"]
    dump = golden.start_from(context, golden.RANKS, weights, name, golden.WEIGHT_STEPS, words, model)
    return [row["loss"] for row in read_rows(dump / "metrics.jsonl")]


def check_losses(found, expected):
    expect(len(found) == len(expected) == golden.WEIGHT_STEPS, f"{len(found)} losses, {len(expected)} of transformers")
    for step, (mine, theirs) in enumerate(zip(found, expected), 1):
        distance = relative_distance(mine, theirs)
        expect(distance <= TOLERANCE, f"batch {step}: loss {mine}, transformers' {theirs}: {distance:.1e}")


def check_tokenizer(context, export, expected):
    """Checks that AutoTokenizer's ids of the exported tokenizer equal ours of the run's tokenizer."""
    found = encode_all(context, golden.TOKENIZER, golden.TEXTS)
    expect(found == expected["ids"], f"other ids: {found}, AutoTokenizer's {expected['ids']}")
    tokens = json.loads((export / "generation_config.json").read_text())
    expect(tokens.items() <= expected.items() and len(tokens) == 2, f"{tokens}, AutoTokenizer's {expected}")


@case(60)
def we_read_transformers(context):
    """A LlamaForCausalLM of save_pretrained, in several files, has the same loss here as there."""
    folder, answers = write_theirs(context)
    check_losses(our_losses(context, folder), answers["losses"])


@case(60, dtype=["float32", "bfloat16"])
def transformers_reads_ours(context, dtype):
    """An export is the one that from_pretrained has read, and has the same loss here as there."""
    folder, answers = write_theirs(context)
    export = golden.export(context, folder, dtype)
    expected = answers["exports"][dtype]
    check_tokenizer(context, export, expected["tokenizer"])
    check_config(export, expected["config"])
    check_weights(export, answers, dtype)
    check_losses(our_losses(context, export), expected["losses"])


def check_config(export, expected):
    config = golden.read_config(export)
    differ = {key: (config.get(key), expected.get(key)) for key in config | expected}
    differ = {key: values for key, values in differ.items() if values[0] != values[1]}
    expect(not differ, f"config.json differs from the one that transformers read: {differ}")


def check_weights(export, answers, dtype):
    """Checks that an export has the weights that save_pretrained wrote, to the bit of the dtype, and no others."""
    import torch

    tensors, _ = read_folder(export)
    shapes = {name: shape for file in answers["files"].values() for name, shape in file["tensors"].items()}
    expect(set(tensors) == set(shapes), f"names of one only: {sorted(set(tensors) ^ set(shapes))}")
    for name, shape in shapes.items():
        wanted = torch.frombuffer(golden.weight(name, shape), dtype=torch.float32).view(shape).to(getattr(torch, dtype))
        same = tensors[name].dtype == wanted.dtype and torch.equal(tensors[name], wanted)
        expect(same, f"{name} is not the weight that transformers read")
