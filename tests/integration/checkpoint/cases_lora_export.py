"""Tests adapters in PEFT's format, and merged weights, by separate formulas and reader."""
import json

from cases_convert import command
from cases_hugging_face import EXPORT, FP32, export, loss_of, read_folder, read_safetensors
from checkpoint_tools import SAVE, train
from fixtures import write_job
from harness import case, expect, import_reference, read_rows, relative_distance

STEPS = 6
RANK, ALPHA = 4, 6
LORA = ["--lora.rank", RANK, "--lora.alpha", ALPHA, "--lora.dropout", 0.1]
PROJECTIONS = [f"self_attn.{name}_proj" for name in "qkvo"] + [f"mlp.{name}_proj" for name in ("gate", "up", "down")]
# Two programs in fp32: sums in another order, as in the parity cases. Rows of B in the order of another format move the
# loss by more than 1e-4 (tried).
TOLERANCE = 1e-5


def start(folder):
    return ["--checkpoint.initial_load_in_hf", "--checkpoint.initial_load_path", folder]


def train_adapters(context, name, ranks, base, words):
    """Trains adapters for the model of a Hugging Face folder. Returns the folder of the last save."""
    config = write_job(context, name, steps=STEPS)
    train(context, ranks, ["--config", config, *FP32, *LORA, "--optimizer.lr", "1e-2", *start(base), *words], name)
    return context.dump(name) / f"checkpoint/step-{STEPS}"


def read_adapter(folder):
    """Returns PEFT's tensors by (module, "A" or "B"), and its configuration."""
    tensors, found = read_safetensors(folder / "adapter_model.safetensors"), {}
    for name, tensor in tensors.items():
        module, matrix, weight = name.removeprefix("base_model.model.").rsplit(".", 2)
        expect(name.startswith("base_model.model.") and weight == "weight", name)
        found[module, matrix.removeprefix("lora_")] = tensor
    return found, json.loads((folder / "adapter_config.json").read_text())


def check_adapter(folder, layers=2):
    """Checks names, shapes and configuration of an adapter for every projection."""
    tensors, config = read_adapter(folder)
    modules = {f"model.layers.{layer}.{name}" for layer in range(layers) for name in PROJECTIONS}
    expect(set(tensors) == {(module, matrix) for module in modules for matrix in "AB"}, f"names: {sorted(tensors)}")
    expect(all((a := tensors[module, "A"].shape[0]) == tensors[module, "B"].shape[1] == RANK for module in modules), f"rank {a}")
    wanted = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": ALPHA, "lora_dropout": 0.1}
    wanted |= {"bias": "none", "fan_in_fan_out": False, "inference_mode": True, "base_model_name_or_path": None}
    expect(wanted.items() <= config.items(), f"{config}")
    targets = {name.rpartition(".")[2] for name in PROJECTIONS}
    expect(set(config["target_modules"]) == targets, f"{config['target_modules']}")
    extra = {path.name for path in folder.iterdir()} - {"adapter_model.safetensors", "adapter_config.json", "titan.checksums.json"}
    expect(not any(name.endswith(".safetensors") or name.endswith("index.json") or name == "config.json" for name in extra), f"{extra}")
    return tensors


def check_merged(merged, base, adapter):
    """Checks that merged weights are W + alpha / r * B A, within the rounding of the sums, and all others the base's."""
    import torch

    expect(set(merged) == set(base), f"names of one only: {sorted(set(merged) ^ set(base))}")
    scale = ALPHA / RANK
    for name, weight in base.items():
        module = name.removesuffix(".weight")
        if (module, "A") not in adapter:
            expect(torch.equal(merged[name], weight), f"{name} has no adapter and changed")
            continue
        a, b, w = adapter[module, "A"].double(), adapter[module, "B"].double(), weight.double()
        # RANK products and sums, one product with the scale and one sum: each rounds by 2^-24 at most.
        bound = (2 * RANK + 2) * 2**-24 * (w.abs() + scale * b.abs() @ a.abs())
        wrong = (merged[name].double() - (w + scale * b @ a)).abs() > bound
        expect(not wrong.any(), f"{name}: {int(wrong.sum())} of {wrong.numel()} values are not W + alpha / r * B A")
        expect(not torch.equal(merged[name], weight), f"{name} was not changed")


def first_loss(context, name, words):
    """Returns the loss of the first batches."""
    train(context, 2, ["--config", write_job(context, name, steps=1), *FP32, "--checkpoint.enable", *words], name)
    return read_rows(context.dump(name) / "metrics.jsonl")[0]["loss"]


@case(180, ranks=[1, 2], wide=["1"])
def lora_export(context, ranks):
    """The last save with last_save_in_hf, and a conversion, are adapters in PEFT's format; merged weights are W + alpha /
    r * B A, and have the loss of the run by transformers' formulas."""
    import torch

    base, _ = export(context, 2)
    adapter = train_adapters(context, "adapter", ranks, base, EXPORT)
    step = train_adapters(context, "full", ranks, base, SAVE)
    tensors = check_adapter(adapter)
    command(context, "convert", step, context.folder / "converted", "--to", "hf")
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        same = (context.folder / "converted" / name).read_bytes() == (adapter / name).read_bytes()
        expect(same, f"{name} of the conversion is not that of the run")
    command(context, "convert", step, context.folder / "merged", "--to", "hf", "--merge")
    merged, config = read_folder(context.folder / "merged")
    check_merged(merged, read_folder(base)[0], tensors)
    # Training's dropout is off in both.
    of_run = first_loss(context, "of_run", ["--checkpoint.initial_load_path", step, *LORA, "--lora.dropout", 0])
    of_merged = first_loss(context, "of_merged", start(context.folder / "merged"))
    job_file, text_data = import_reference("job", "text_data")
    job = job_file.load_job(write_job(context, "again", steps=1))
    batches = [next(text_data.rank_batches(job, rank, 2)) for rank in range(2)]
    with torch.no_grad():
        wanted = sum(loss_of(merged, config, tokens, labels) for tokens, labels in batches) / 2
    for name, loss in {"of_run": of_run, "of_merged": of_merged}.items():
        expect(relative_distance(loss, wanted) < TOLERANCE, f"{name}: {loss}, transformers' formulas give {wanted}")
    plain = first_loss(context, "plain", start(base))
    expect(abs(plain - wanted) > 0.01, "the adapters change nothing")


@case(120)
def lora_export_from(context):
    """Conversions of runs with adapters to other formats, what generate says, and what is refused."""
    import torch

    base, _ = export(context, 2)
    step = train_adapters(context, "full", 2, base, [*SAVE, "--lora.base_dtype", "bfloat16"])
    for words in ([], ["--merge"]):
        command(context, "convert", step, context.folder / "model.pt", *words, "--overwrite")
        found = torch.load(context.folder / "model.pt", weights_only=True)
        adapters = [name for name in found if "lora_" in name]
        expect(len(adapters) == (0 if words else 28), f"{words}: {adapters}")
        expect(found["layers.0.attention.wq.weight"].dtype == torch.bfloat16, "the weight's dtype changed")
    command(context, "convert", step, context.folder / "dcp", "--to", "dcp", "--merge", "--export-dtype", "float32")
    words = ["--checkpoint.initial_load_path", context.folder / "dcp"]
    of_merged = first_loss(context, "of_merged", words)
    of_run = first_loss(context, "of_run", ["--checkpoint.initial_load_path", step, *LORA, "--lora.dropout", 0])
    expect(relative_distance(of_merged, of_run) < TOLERANCE, f"{of_merged} merged, {of_run} with adapters")
    text, _ = command(context, "generate", "--checkpoint", step, "--prompt", "import", "--max-tokens", 3, "--temperature", 0)
    expect(len(text) > len("import"), text)
    target = context.folder / "none"
    command(context, "convert", step, context.folder / "adapter", "--to", "hf")
    generate = ["generate", "--checkpoint", context.folder / "adapter", "--prompt", "import"]
    _, error = command(context, *generate, exit_code=2)
    expect("holds adapters alone" in error, error)
    for source, words, code, message in (
        (context.folder / "adapter", ["--to", "dcp"], 2, "holds adapters alone"),
        (base, ["--merge", "--to", "dcp"], 2, "is a folder in Hugging Face's format"),
        (context.folder / "dcp", ["--merge", "--to", "hf", "--model-flavor", "debugmodel"], 2, "has no lora.rank"),
    ):
        _, error = command(context, "convert", source, target, *words, exit_code=code)
        expect(message in error and not target.exists(), error)


@case(120)
def lora_starts(context):
    """A run with adapters starts from weights without them, and not from a part of them; one without refuses them; a
    finished run whose last save is an adapter says so."""
    base, _ = export(context, 2)
    # B is zero: the first loss is that of the model alone, at any number of ranks and from any format.
    command(context, "convert", base, context.folder / "dcp", "--to", "dcp")
    command(context, "convert", context.folder / "dcp", context.folder / "model.pt")
    plain = first_loss(context, "plain", start(base))
    files = {"dcp": context.folder / "dcp", "file": context.folder / "model.pt"}
    starts = {name: ["--checkpoint.initial_load_path", path] for name, path in files.items()} | {"hf": start(base)}
    for name, words in starts.items():
        loss = first_loss(context, name, [*words, *LORA])
        expect(loss == plain, f"from {name}: {loss}, without adapters {plain}")
    step = train_adapters(context, "wq", 1, base, [*SAVE, "--lora.targets", "wq"])
    load = ["--checkpoint.enable", "--checkpoint.initial_load_path", step]
    job = ["--config", write_job(context, "other", steps=1), *FP32, *load]
    for words, message in ((LORA, "missing key: layers.0.attention.wk.lora_A"), ([], "unexpected key: layers.0.attention.wq.lora_A")):
        text = train(context, 1, [*job, *words], "other", exit_code=1).text()
        expect(message in text, text[-3000:])
    changed = ["--config", write_job(context, "wq", steps=8), *FP32, *SAVE, *LORA, "--lora.targets", "wq", "--lora.alpha", "5"]
    text = train(context, 1, changed, "changed", exit_code=1).text()
    expect("lora.alpha was 6.0, is 5.0" in text, text[-3000:])
    train_adapters(context, "done", 1, base, EXPORT)
    words = ["--config", write_job(context, "done", steps=STEPS), *FP32, *LORA, *EXPORT]
    expect("nothing to do" in train(context, 1, words, "again").text(), "a finished run went on")
    text = train(context, 1, [*words, "--training.steps", STEPS + 1], "further", exit_code=1).text()
    expect("it holds the adapters alone" in text, text[-3000:])
