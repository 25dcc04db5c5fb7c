"""Tests weights in Hugging Face's format by separate formulas and reader: no code is shared with the program."""
import dataclasses
import json
import math
import os
import pathlib
import struct

from fixtures import SMALL_MODEL, once, write_job
from harness import MARK, case, expect, import_reference, read_rows, relative_distance, run
from oracle import digest

FP32 = ["--training.mixed_precision_param", "float32"]
EXPORT = ["--checkpoint.enable", "--checkpoint.interval", "1000", "--checkpoint.last_save_in_hf"]
DCP = ["--checkpoint.last_save_in_hf=false"]
HALF = ["--checkpoint.export_dtype=bfloat16"]


def read_safetensors(path):
    import torch

    dtypes = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    expect(header.pop("__metadata__") == {"format": "pt"}, "transformers wants the metadata format = pt")
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        tensors[name] = torch.frombuffer(bytearray(data[begin:end]), dtype=dtypes[entry["dtype"]]).view(entry["shape"])
    return tensors


def read_folder(folder):
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    tensors = {}
    for name in sorted(set(index["weight_map"].values())):
        tensors |= read_safetensors(folder / name)
    expect(set(tensors) == set(index["weight_map"]), "the index and the files name other tensors")
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    expect(index["metadata"]["total_size"] == total, f"total_size is {index['metadata']['total_size']}, not {total}")
    return tensors, json.loads((folder / "config.json").read_text())


def rope(config, length):
    """Returns cos and sin [length, head_dim] as transformers' modeling_rope_utils makes them for rope_type llama3."""
    import torch

    dim = config["head_dim"]
    frequencies = 1.0 / config["rope_theta"] ** (torch.arange(0, dim, 2).float() / dim)
    if scaling := config["rope_scaling"]:
        old, low, high = (
            scaling[k] for k in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
        )
        wavelengths = 2 * math.pi / frequencies
        smooth = ((old / wavelengths - low) / (high - low)).clamp(0, 1)
        frequencies = (1 - smooth) * frequencies / scaling["factor"] + smooth * frequencies
    angles = torch.outer(torch.arange(length).float(), frequencies)
    return torch.cat((angles, angles), -1).cos(), torch.cat((angles, angles), -1).sin()


def loss_of(weights, config, tokens, labels):
    """Returns the mean loss of transformers' LlamaForCausalLM, written from its formulas."""
    import torch
    import torch.nn.functional as F

    def norm(x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + config["rms_norm_eps"]) * weights[name + ".weight"]

    def linear(x, name):
        return x @ weights[name + ".weight"].T

    batch, length = tokens.shape
    heads, kv_heads, dim = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    cos, sin = rope(config, length)

    def turn(x):
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat((-second, first), -1) * sin

    h = weights["model.embed_tokens.weight"][tokens]
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        x = norm(h, layer + "input_layernorm")
        q, k, v = (linear(x, f"{layer}self_attn.{p}_proj").view(batch, length, -1, dim).transpose(1, 2) for p in "qkv")
        k, v = (t.repeat_interleave(heads // kv_heads, 1) for t in (k, v))
        scores = turn(q) @ turn(k).transpose(2, 3) / math.sqrt(dim)
        scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -math.inf)
        out = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, -1)
        h = h + linear(out, layer + "self_attn.o_proj")
        x = norm(h, layer + "post_attention_layernorm")
        x = F.silu(linear(x, layer + "mlp.gate_proj")) * linear(x, layer + "mlp.up_proj")
        h = h + linear(x, layer + "mlp.down_proj")
    logits = linear(norm(h, "model.norm"), "lm_head")
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten()).item()


def export(context, ranks, words=()):
    """Returns a checkpoint folder after three steps at `ranks` ranks, and its job's dump folder. It is kept for all
    cases that ask for the same of the same program, so nobody may write there."""
    words = [*FP32, *EXPORT, *words]
    variables = sorted(item for item in os.environ.items() if item[0].startswith(("TITAN_", "OMP_")) and item[0] != MARK)
    files = [context.program.read_bytes(), pathlib.Path(__file__).read_bytes()]
    key = digest(*files, words, variables, SMALL_MODEL, str(context.fixtures))[:16]

    def train(folder):
        there = dataclasses.replace(context, folder=folder)
        run(there, ranks, ["--config", write_job(there, "run", steps=3), *words])

    name = "-".join(["trained", str(ranks), *(word.rpartition(".")[2] for word in words[len(FP32 + EXPORT) :])])
    dump = once(context.fixtures.parent, name, key, train) / "run"
    return dump / "checkpoint/step-3", dump


@case(120, ranks=[1, 3])
def hugging_face(context, ranks):
    """An export has transformers' names, rows and values, and a run from it has their loss by the formulas."""
    import torch

    folder, dump = export(context, ranks)
    weights, config = read_folder(folder)
    words = ["--checkpoint.enable", "--checkpoint.initial_load_in_hf", "--checkpoint.initial_load_path", folder]
    config_file = write_job(context, "again", steps=1)
    run(context, 2, ["--config", config_file, *FP32, *words], name="again")
    found = read_rows(context.dump("again") / "metrics.jsonl")[0]["loss"]
    job_file, text_data = import_reference("job", "text_data")
    job = job_file.load_job(config_file)
    batches = [next(text_data.rank_batches(job, rank, 2)) for rank in range(2)]
    with torch.no_grad():
        wanted = sum(loss_of(weights, config, tokens, labels) for tokens, labels in batches) / 2
    # Two programs in fp32: sums in another order, as in the parity cases.
    expect(relative_distance(found, wanted) < 1e-5, f"the loss is {found}, transformers' formulas give {wanted}")
    fresh = read_rows(dump / "metrics.jsonl")[0]["loss"]
    expect(abs(found - fresh) > 0.01, "the run did not start from the exported weights")


@case(120)
def hugging_face_dtype(context):
    """bfloat16 exports, as safetensors and as DCP, hold the rounded weights of a float32 export."""
    import torch
    import torch.distributed.checkpoint as dcp

    full, _ = read_folder(export(context, 2)[0])
    half, _ = read_folder(export(context, 2, HALF)[0])
    for name, weight in full.items():
        expect(half[name].dtype == torch.bfloat16 and half[name].equal(weight.bfloat16()), f"{name} is not rounded")
    folder, _ = export(context, 2, [*HALF, *DCP])
    state = {"norm.weight": torch.zeros(64, dtype=torch.bfloat16)}
    dcp.load(state, checkpoint_id=str(folder), no_dist=True)
    expect(state["norm.weight"].equal(half["model.norm.weight"]), "the DCP export holds other weights")


def read_json(path):
    return json.loads(path.read_text(encoding="utf-8"))


@case(60, processors=1)
def hugging_face_tokenizer(context):
    """An export has the run's tokenizer: SentencePiece's ids, from a file that transformers reads without SentencePiece."""
    import sentencepiece
    import tokenizer_fixtures
    from tokenizers import Tokenizer

    folder, _ = export(context, 1)
    model = context.fixtures / "tokenizer/tokenizer.model"
    expect((folder / "tokenizer.model").read_bytes() == model.read_bytes(), "tokenizer.model is another")
    tokens = {"bos_token_id": 1, "eos_token_id": 2}
    config = read_json(folder / "config.json")
    expect(config.items() >= ({"torch_dtype": "float32"} | tokens).items(), f"{config}")
    expect(read_json(folder / "generation_config.json") == tokens, "generation_config.json has other tokens")
    described = read_json(folder / "tokenizer_config.json")
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    expect(described.items() >= names.items() and described["tokenizer_class"] == "PreTrainedTokenizerFast", f"{described}")
    package = Tokenizer.from_file(str(folder / "tokenizer.json"))
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
    # A spelled-out special token is one id there, and several here.
    texts = [text for text in tokenizer_fixtures.hard_texts(megabyte=100_000) if not any(m in text for m in names.values())]
    expect(len(texts) > 1000, f"{len(texts)} texts")
    for text in texts:
        found, wanted = package.encode(text, add_special_tokens=False).ids, pieces.encode(text)
        expect(found == wanted, f"{text[:60]!r}: other ids: {found[:20]}, {wanted[:20]}")
        expect(package.decode(found) == pieces.decode(wanted), f"{text[:60]!r} decodes to another text")
    expect(package.encode("a").ids == [1, *pieces.encode("a")], "a text does not begin with BOS")


@case(60, processors=1)
def hugging_face_refused(context):
    """A folder that does not fit, and one that is mistaken for a checkpoint, are refused with advice."""
    folder, _ = export(context, 1)
    words = ["--config", write_job(context, "wrong", steps=1), "--checkpoint.enable", "--checkpoint.initial_load_path"]
    job = run(context, 1, [*words, folder], name="as_dcp", exit_code=1)
    expect("set checkpoint.initial_load_in_hf = true" in job.text(), job.tail())
    other = [*words, folder, "--checkpoint.initial_load_in_hf", "--model.args.n_layers", "3"]
    job = run(context, 1, other, name="layers", exit_code=1)
    expect("config.json describes another model than the configuration: model.args.n_layers is 2 there, 3 here" in job.text(), job.tail())
    other = ["--checkpoint.allow_changed", "model.args.n_layers", *other]
    job = run(context, 1, other, name="layers_allowed", exit_code=1)
    expect("model.layers.2.mlp.up_proj.weight (layers.2.feed_forward.w3.weight)" in job.text(), job.tail())
    job = run(context, 1, [*other[:-1], "1"], name="fewer_layers", exit_code=1)
    expect("Unexpected: model.layers.1.input_layernorm.weight" in job.text(), job.tail())
