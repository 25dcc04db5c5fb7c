"""Tests Hugging Face folders as other programs write them: config.json is followed, or refused by name."""
import json
import shutil

from cases_convert import command
from cases_hugging_face import DCP, FP32, export, read_folder
from fixtures import write_job
from harness import case, expect, read_rows, run
from sentencepiece_bytes import make_model

SPACE = "\u2581"
TIED = ["--model.args.enable_weight_tying=true"]


def copy(context, name, **changes):
    """Copies a folder of weights that a run exported, with other values in its config.json; None removes a key."""
    folder, _ = export(context, 1)
    out = context.folder / name
    shutil.copytree(folder, out)
    (out / "titan.checksums.json").unlink()
    config = json.loads((out / "config.json").read_text()) | changes
    (out / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
    return out


def start_words(context, folder, name):
    load = ["--checkpoint.enable", "--checkpoint.initial_load_in_hf", "--checkpoint.initial_load_path", folder]
    return ["--config", write_job(context, name, steps=1), *FP32, *load]


def write_safetensors(path, tensors):
    import torch
    from safetensors_bytes import write

    write(path, {name: tensor.to(torch.float32) for name, tensor in tensors.items()})


@case(120, processors=1)
def hugging_face_config_counts(context):
    """Each way of loading compares what no shape shows: heads, epsilon, rotary embedding, activation."""
    same = copy(context, "same")
    run(context, 1, start_words(context, same, "same-run"), name="same")
    refused = {
        "eps": ({"rms_norm_eps": 0.5}, "model.args.norm_eps is 0.5 there, 1e-05 here"),
        "theta": ({"rope_theta": 1234.0}, "model.args.rope_theta is 1234 there"),
        "heads": ({"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 8}, "model.args.n_heads is 8 there"),
        "scaling": ({"rope_scaling": {}}, "model.args.rope_scaling_args.scaling_factor is 1 (no scaling) there"),
        "linear": ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling_args.type is linear there, llama3 here"),
        "head_dim": ({"head_dim": 32}, "model.args.head_dim is 32 there"),
    }
    unbuildable = {
        "dynamic": ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, 'or "yarn", found "dynamic"'),
        "gelu": ({"hidden_act": "gelu"}, 'hidden_act: expected "silu", found "gelu"'),
        "odd": ({"head_dim": 31}, "head_dim: expected an even number, 2 to 4194304, found 31"),
    }
    for name, (changes, reason) in {**refused, **unbuildable}.items():
        folder = copy(context, name, **changes)
        job = run(context, 1, start_words(context, folder, f"{name}-run"), name=name, exit_code=1)
        expect(reason in job.text(), f"{name}: {job.tail()}")
        if name in unbuildable:
            _, err = command(context, "convert", folder, context.folder / f"{name}-dcp", exit_code=2)
            expect(reason in err, f"{name}: {err}")
    words = start_words(context, context.folder / "eps", "allowed")
    job = run(context, 1, [*words, "--checkpoint.allow_changed", "model.args.norm_eps"], name="allowed")
    expect("as checkpoint.allow_changed allows: model.args.norm_eps is 0.5 there" in job.text(), job.tail())


@case(120, processors=1)
def hugging_face_tied(context):
    """Weights with the embedding as output projection load in each way; others without a projection are refused."""
    folder = copy(context, "untied")
    tensors, _ = read_folder(folder)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    losses = {}
    for name, tied in (("both", False), ("tied", True)):
        out = copy(context, name, tie_word_embeddings=tied)
        for path in out.glob("*.safetensors*"):
            path.unlink()
        left = {key: tensor for key, tensor in tensors.items() if not (tied and key == "lm_head.weight")}
        write_safetensors(out / "model.safetensors", left)
        job = run(context, 1, start_words(context, out, f"{name}-run"), name=name)
        losses[name] = read_rows(context.dump(f"{name}-run") / "metrics.jsonl")[0]["loss"]
        expect(("which are two parameters here" in job.text()) == tied, job.tail())
    expect(losses["tied"] == losses["both"], f"the first loss is {losses}")
    # A tied model reads the one table, and refuses two that differ.
    words = start_words(context, context.folder / "tied", "one")
    job = run(context, 1, [*words, *TIED], name="one")
    expect("which are two parameters here" not in job.text(), job.tail())
    found = read_rows(context.dump("one") / "metrics.jsonl")[0]["loss"]
    expect(found == losses["tied"], f"the first loss of the tied model is {found}, not {losses}")
    job = run(context, 1, [*start_words(context, folder, "two"), *TIED], name="two", exit_code=1)
    expect("model.args.enable_weight_tying is false there, true here" in job.text(), job.tail())
    command(context, "convert", context.folder / "tied", context.folder / "tied-dcp")
    # The shape is part of the checkpoint, so converting back needs no more options.
    command(context, "convert", context.folder / "tied-dcp", context.folder / "back", "--to", "hf")
    back, config = read_folder(context.folder / "back")
    del tensors["lm_head.weight"]
    expect(all(back[key].equal(tensor) for key, tensor in tensors.items()) and set(back) == set(tensors), "there and back differs")
    expect(config["tie_word_embeddings"], "the tie was lost on the way")
    expect([path.name for path in (context.folder / "back").glob("*.safetensors")] == ["model.safetensors"], "one file is model.safetensors")
    out, _ = command(context, "generate", "--checkpoint", context.folder / "tied-dcp", "--max-tokens", "2", "--prompt", "a")
    # Neither tied nor stored.
    config = json.loads((context.folder / "tied/config.json").read_text()) | {"tie_word_embeddings": False}
    (context.folder / "tied/config.json").write_text(json.dumps(config))
    for to in ("dcp", "hf"):
        _, err = command(context, "convert", context.folder / "tied", context.folder / f"lacks-{to}", "--to", to, exit_code=1)
        expect("output.weight is missing" in err, err)
        expect(not (context.folder / f"lacks-{to}").exists(), "a folder was left")


@case(120, processors=1)
def tied_weights_are_one(context):
    """A tied model starts from a checkpoint that has its table once or twice, and refuses two tables that differ."""
    import torch

    refused = "tok_embeddings.weight and output.weight have different values, and the model has one parameter for both"
    step, _ = export(context, 1, DCP)
    untied = copy(context, "untied")
    tensors, config = read_folder(untied)
    config_file = write_job(context, "one", steps=1)
    load = ["--checkpoint.enable", "--checkpoint.initial_load_path"]

    def start(name, path, *words, exit_code=0):
        words = ["--config", config_file, *FP32, *TIED, *load, path, *words, "--job.dump_folder", context.dump(name)]
        job = run(context, 2, words, name=name, exit_code=exit_code)
        return job.text() if exit_code else read_rows(context.dump(name) / "metrics.jsonl")[0]["loss"]

    # Two tables that differ: in a DCP step, in a folder whose config.json ties them, and on the way to one.
    text = start("dcp_two", step, exit_code=1)
    expect(refused in text and "set model.args.enable_weight_tying" in text, text)
    said = copy(context, "said", tie_word_embeddings=True)
    text = start("said_two", said, "--checkpoint.initial_load_in_hf", exit_code=1)
    expect(refused in text, text)
    _, err = command(context, "generate", "--checkpoint", said, "--max-tokens", "2", "--prompt", "a", exit_code=1)
    expect(refused in err, err)
    tied_config = context.folder / "tied.toml"
    tied_config.write_text(config_file.read_text().replace("[model.args]", "[model.args]\nenable_weight_tying = true"))
    two = context.folder / "two.pt"
    command(context, "convert", step, two)
    _, err = command(context, "convert", two, context.folder / "no", "--to", "hf", "--config", tied_config, exit_code=1)
    expect("have different values" in err and not (context.folder / "no").exists(), err)
    # The table twice, and once: in a folder with and without config.json, and in a DCP step.
    table = tensors["model.embed_tokens.weight"]
    losses = {}
    for name, stored in (("twice", {"lm_head.weight": table}), ("once", {})):
        out = copy(context, name, tie_word_embeddings=True)
        for path in out.glob("*.safetensors*"):
            path.unlink()
        kept = {key: tensor for key, tensor in tensors.items() if key != "lm_head.weight"}
        write_safetensors(out / "model.safetensors", kept | stored)
        losses[name] = start(f"{name}_hf", out, "--checkpoint.initial_load_in_hf")
        (out / "config.json").rename(context.folder / "config.json")
        losses[f"{name}, no config"] = start(f"{name}_bare", out, "--checkpoint.initial_load_in_hf")
        (context.folder / "config.json").rename(out / "config.json")
    weights = context.folder / "weights.pt"
    command(context, "convert", context.folder / "once", context.folder / "dcp")
    command(context, "convert", context.folder / "dcp", weights)
    state = torch.load(weights)
    del state["output.weight"]
    torch.save(state, weights)
    command(context, "convert", weights, context.folder / "dcp_once")
    losses["dcp"] = start("dcp", context.folder / "dcp")
    losses["dcp once"] = start("dcp_once", context.folder / "dcp_once")
    expect(len(set(losses.values())) == 1, f"{losses}")


@case(120, processors=1)
def hugging_face_index_counts(context):
    """Only files that the index names, or only model.safetensors, are read; other files are ignored."""
    folder = copy(context, "indexed")
    tensors, _ = read_folder(folder)
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    files = {"model-00001-of-00002.safetensors": names[:5], "model-00002-of-00002.safetensors": names[5:]}
    for file, keys in files.items():
        write_safetensors(folder / file, {key: tensors[key] for key in keys})
    index = {"weight_map": {key: file for file, keys in files.items() for key in keys}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    strangers = {"adapter_model.safetensors": "lora_A", "consolidated.safetensors": "layers.0.attention.wq.weight", "model-old.safetensors": names[0]}
    for file, key in strangers.items():
        write_safetensors(folder / file, {key: tensors[names[0]] + 1})
    run(context, 1, start_words(context, folder, "train"), name="train")
    for to in ("dcp", "hf"):
        command(context, "convert", folder, context.folder / f"to-{to}", "--to", to)
    found, _ = read_folder(context.folder / "to-hf")
    expect(set(found) == set(tensors) and all(found[key].equal(tensors[key]) for key in tensors), "other tensors came along")
    command(context, "generate", "--checkpoint", folder, "--max-tokens", "2", "--prompt", "a")
    # Without an index.
    single = copy(context, "single")
    (single / "model.safetensors.index.json").unlink()
    write_safetensors(single / "adapter_model.safetensors", {"lora_A": tensors[names[0]]})
    run(context, 1, start_words(context, single, "train-single"), name="train-single")
    # A name of the index that its file lacks.
    index["weight_map"][names[0]] = "model-00002-of-00002.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    _, err = command(context, "convert", folder, context.folder / "lacks", exit_code=1)
    expect(f"says that {names[0]} is in model-00002-of-00002.safetensors, which lacks it" in err, err)


@case(120, processors=1)
def hugging_face_export_overflows(context):
    """A weight that float16 cannot hold is an error that names it, without losing the model; a flag writes infinity."""
    import torch

    folder = copy(context, "large")
    tensors, _ = read_folder(folder)
    name = "model.layers.1.mlp.up_proj.weight"
    tensors[name][0, 0] = 70000.0
    tensors[name][0, 1] = -1e5
    write_safetensors(folder / "model.safetensors", tensors)
    message = "holds 2 numbers beyond the range of float16, the largest of them -100000"
    _, err = command(context, "convert", folder, context.folder / "half", "--to", "hf", "--export-dtype", "float16", exit_code=1)
    expect(f"{name} {message}" in err and not (context.folder / "half").exists(), err)
    words = ["--to", "hf", "--export-dtype", "float16", "--allow-overflow"]
    command(context, "convert", folder, context.folder / "half", *words)
    expect(read_folder(context.folder / "half")[0][name][0, :2].tolist() == [torch.inf, -torch.inf], "no infinities")
    # The last save of a run.
    still = ["--optimizer.lr", "1e-30", "--checkpoint.export_dtype", "float16"]
    for more in ([], ["--checkpoint.last_save_in_hf"]):
        name = f"run{len(more)}"
        job = run(context, 2, [*start_words(context, folder, name), *still, *more], name=name, exit_code=1)
        expect("layers.1.feed_forward.w3.weight holds" in job.text() and "saved in" in job.text(), job.tail())
        step = context.dump(name) / "checkpoint/step-1"
        command(context, "convert", step, context.folder / f"{name}-hf", "--to", "hf", "--export-dtype", "bfloat16")
    words = [*start_words(context, folder, "run3"), *still, "--checkpoint.allow_export_overflow"]
    run(context, 2, words, name="run3")


@case(60, processors=1)
def hugging_face_tokenizer_of_equal_scores(context):
    """With pieces of equal score (Mistral's, Llama 2's white space), tokenizer.json gives the model's ids or none."""
    import sentencepiece
    from tokenizers import Tokenizer

    letters = [(character, -100.0 - number) for number, character in enumerate([SPACE, "a", "b", "c"])]
    lengths = (8, 3, 16, 5, 2, 12, 4, 7, 6)
    step, _ = export(context, 1)
    texts = ["a" + " " * count + "b" for count in range(1, 200)] + [" " * count for count in range(1, 40)] + ["abc cab"]
    for name, pieces in (("runs", [(SPACE * length, 0.0) for length in lengths]), ("letters", [(text, 0.0) for text in ("ab", "bc", "abc", "bca", "ca", "cab")])):
        tokenizer = context.folder / name
        tokenizer.mkdir()
        (tokenizer / "tokenizer.model").write_bytes(make_model(pieces + letters))
        target = context.folder / f"{name}-hf"
        words = ["convert", step, target, "--to", "hf", "--tokenizer", tokenizer]
        if name == "letters":
            # These scores give no order of merges: no list of merges gives the model's ids.
            _, err = command(context, *words, exit_code=2)
            expect("no tokenizer.json with the same ids can be made" in err and "to the model and would be" in err, err)
            continue
        command(context, *words)
        model = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer / "tokenizer.model"))
        package = Tokenizer.from_file(str(target / "tokenizer.json"))
        for text in texts:
            found, wanted = package.encode(text, add_special_tokens=False).ids, model.encode(text)
            expect(found == wanted, f"{text!r}: {found}, {wanted} to the model")


@case(60, processors=1)
def convert_names_folders(context):
    """A folder is not written under the name of a file."""
    folder, _ = export(context, 1)
    for name in ("m.safetensors", "m.bin"):
        _, err = command(context, "convert", folder, context.folder / name, "--to", "hf", exit_code=2)
        expect("is the name of a file, and hf is a folder" in err and "--to torch" in err, err)
    command(context, "convert", folder, context.folder / "M.PT", exit_code=2)


@case(60, processors=1)
def convert_knows_wrapped_names(context):
    """Names that torch.compile, checkpointing and DDP leave in a state dict are the model's; Hugging Face's are refused."""
    import torch

    folder, _ = export(context, 1)
    command(context, "convert", folder, context.folder / "plain.pt")
    state = torch.load(context.folder / "plain.pt", weights_only=True)
    wrapped = {"module._orig_mod." + name.replace("layers.0.", "layers.0._checkpoint_wrapped_module."): tensor for name, tensor in state.items()}
    torch.save(wrapped, context.folder / "wrapped.pt")
    for name in ("plain", "wrapped"):
        command(context, "convert", context.folder / f"{name}.pt", context.folder / f"{name}-again.pt")
    again = [torch.load(context.folder / f"{name}-again.pt", weights_only=True) for name in ("plain", "wrapped")]
    expect(set(again[0]) == set(again[1]) == set(state), f"{sorted(set(again[1]) ^ set(state))}")
    expect(all(again[1][name].equal(tensor) for name, tensor in state.items()), "other numbers")
    theirs, _ = read_folder(folder)
    torch.save(theirs, context.folder / "theirs.pt")
    _, err = command(context, "convert", context.folder / "theirs.pt", context.folder / "theirs-dcp", exit_code=1)
    expect("has Hugging Face's names (" in err and "save_pretrained" in err, err)


@case(60, processors=1)
def initial_load_path_says_what_it_is(context):
    """A run, a Hugging Face folder, a file or a missing path instead of a checkpoint: the error says what to set."""
    folder, dump = export(context, 1)
    (context.folder / "one.bin").touch()
    command(context, "convert", folder, context.folder / "dcp")
    (context.folder / "run/checkpoint").mkdir(parents=True)
    (context.folder / "dcp").rename(context.folder / "run/checkpoint/step-7")
    expected = {
        context.folder / "run": f"name one, the newest is {context.folder}/run/checkpoint/step-7",
        folder: "holds weights in Hugging Face's format: set checkpoint.initial_load_in_hf = true",
        context.folder / "one.bin": "is a file of Hugging Face's pickles",
        context.folder / "nothing": "there is no such file or folder",
    }
    config = write_job(context, "start", steps=1)
    for path, words in expected.items():
        job = run(context, 1, ["--config", config, "--checkpoint.enable", "--checkpoint.initial_load_path", path], name=path.name, exit_code=2 if path.name == "nothing" else 1)
        expect(words in job.text(), f"{path}: {job.tail()}")
