"""Tests one file with all weights: PyTorch's, which a run starts from, and a run's, which PyTorch opens."""
import collections
import os
import re
import signal
import zipfile

import safetensors_bytes
from cases_convert import command, expect_equal, read_dcp
from cases_hugging_face import DCP, export
from checkpoint_tools import FP32, SAVE
from fixtures import QWEN3_MODEL, write_job
from harness import case, check_identical, expect, faults, rows_by_step, run, start_plain

KEYS = ("loss", "max_loss", "grad_norm", "lr", "tokens_seen")
FILE = ["--checkpoint.enable", "--checkpoint.last_save_as", "file"]


def load(path):
    import torch

    return torch.load(path, weights_only=True)


def on_cuda(path, target):
    """Copies a file of torch.save with its tensors' location changed, as one that was saved on a GPU has it."""
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as copy:
        for info in source.infolist():
            data = source.read(info)
            if info.filename.endswith("/data.pkl"):
                expect(b"X\x03\x00\x00\x00cpu" in data, "no location in data.pkl")
                data = data.replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0")
            copy.writestr(info.filename, data)


def write_files(folder, model):
    """Writes the same weights in every way that PyTorch's users do. Returns the files."""
    import torch

    ordered = collections.OrderedDict(model)
    ordered._metadata = {"": {"version": 1}}
    flat = torch.cat([tensor.flatten() for tensor in model.values()])
    views = dict(zip(model, flat.split([tensor.numel() for tensor in model.values()])))
    files = {
        "plain.pt": model,
        "model.pth": {"model": ordered, "step": 3, "note": [1.5, None]},
        "state_dict.pt": {"state_dict": {f"module._orig_mod.{name}": torch.nn.Parameter(t) for name, t in model.items()}},
        "views.pt": {name: views[name].view(tensor.shape) for name, tensor in model.items()},
        "turned.pt": {name: tensor.t().contiguous().t() for name, tensor in model.items()},
    }
    for name, content in files.items():
        torch.save(content, folder / name)
    on_cuda(folder / "plain.pt", folder / "cuda.pt")
    safetensors_bytes.write(folder / "our_names.safetensors", model)
    return [folder / name for name in (*files, "cuda.pt", "our_names.safetensors")]


@case(120, ranks=[1, 2, 4], wide=["1", "4"])
def starts_from_one_file(context, ranks):
    """A run from a file has the rows and the weights of one from the same weights as DCP, to the last bit."""
    step = export(context, 2, DCP)[0]
    config = write_job(context, "run", steps=2)

    def train(path):
        dump = context.dump(f"from_{path.name}")
        words = ["--config", config, "--job.dump_folder", dump, *FILE, "--checkpoint.initial_load_path", path]
        job = run(context, ranks, words, name=path.name)
        return rows_by_step(dump / "metrics.jsonl", exact=True), load(dump / "checkpoint/step-2/model.pt"), job.text()

    rows, weights, _ = train(step)
    expect(not all(weights[name].equal(tensor) for name, tensor in read_dcp(step).items()), "training changed nothing")
    files = write_files(context.folder, read_dcp(step))
    for path in files if ranks == 2 else [*files[1:2], *files[-2:]]:
        found, found_weights, text = train(path)
        check_identical(found, rows, KEYS, path.name)
        expect_equal(found_weights, weights, path.name)
        expect(f"Loaded {len(weights)} tensors from {path}" in text, text)


@case(90, ranks=[1, 2, 4], wide=["1", "4"])
def last_save_is_one_file(context, ranks):
    """The last save is a file for torch.load(weights_only=True) with the bits of a DCP save, in every export_dtype."""
    import torch

    words = ["--config", write_job(context, "run", steps=2), "--checkpoint.enable"]

    def train(name, *more, exit_code=0):
        run(context, ranks, [*words, "--job.dump_folder", context.dump(name), *more], name=name, exit_code=exit_code)
        return context.dump(name) / "checkpoint/step-2"

    expected = read_dcp(train("dcp"))
    for dtype in ("float32", "bfloat16"):
        folder = train(dtype, "--checkpoint.last_save_as", "file", "--checkpoint.export_dtype", dtype)
        found = load(folder / "model.pt")
        expect(type(found) is dict and list(found) == list(expected), f"{list(found)}")
        expect_equal(found, {name: tensor.to(getattr(torch, dtype)) for name, tensor in expected.items()}, dtype)
    folder = train("async", "--checkpoint.last_save_as", "file", "--checkpoint.async_mode", "async")
    expect_equal(load(folder / "model.pt"), expected, "async")
    again = run(context, ranks, [*words, "--job.dump_folder", context.dump("async"), *FILE], name="again")
    expect("is already at step 2 of 2: nothing to do" in again.text(), again.tail())


@case(90, processors=1)
def commands_take_one_file(context):
    """inspect, convert and generate take the file, its folder and the run; a run starts from the folder, too."""
    words = ["--config", write_job(context, "run", steps=2), *FILE]
    run(context, 2, words)
    folder = context.dump("run") / "checkpoint/step-2"
    for path in (folder, folder / "model.pt"):
        text, _ = command(context, "inspect", path, "--verify")
        expect("verified" in text and "tok_embeddings.weight" in text, text)
    text, _ = command(context, "inspect", context.dump("run"))
    expect("step-2  complete  model only" in text, text)
    for index, path in enumerate((context.dump("run"), folder / "model.pt")):
        command(context, "convert", path, context.folder / f"dcp{index}", "--to", "dcp")
        expect_equal(read_dcp(context.folder / f"dcp{index}"), load(folder / "model.pt"), "convert")
        command(context, "convert", path, context.folder / f"hf{index}", "--to", "hf")
    texts = {command(context, "generate", "--checkpoint", path, "--max-tokens", 8, "--temperature", 0, "--prompt", "import")[0]
             for path in (context.dump("run"), folder, folder / "model.pt")}
    expect(len(texts) == 1, f"{texts}")
    start = write_job(context, "start", steps=1)
    run(context, 1, ["--config", start, "--checkpoint.enable", "--checkpoint.initial_load_path", folder], name="start")


@case(60, processors=1)
def tied_weights_in_one_file(context):
    """A tied parameter is one storage under both names, and a file with either name or both starts a run."""
    import torch

    words = ["--config", write_job(context, "run", template=QWEN3_MODEL, steps=1), *FILE, *FP32]
    run(context, 2, words)
    path = context.dump("run") / "checkpoint/step-1/model.pt"
    model = load(path)
    tied = [model[name].data_ptr() for name in ("tok_embeddings.weight", "output.weight")]
    expect(tied[0] == tied[1], "two storages")
    for name in (None, "output.weight", "tok_embeddings.weight"):
        torch.save({key: tensor for key, tensor in model.items() if key != name}, context.folder / "some.pt")
        again = [*words, "--job.dump_folder", context.dump(f"without {name}"), "--optimizer.lr", "0"]
        run(context, 2, [*again, "--checkpoint.initial_load_path", context.folder / "some.pt"], name=f"without_{name}")
        expect_equal(load(context.dump(f"without {name}") / "checkpoint/step-1/model.pt"), model, f"without {name}")


class Planted:
    """Creates a file if unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@case(60, processors=1)
def one_hugging_face_file(context):
    """initial_load_in_hf takes one *.safetensors file as it takes its folder, with the config.json beside it."""
    folder = export(context, 2)[0]
    words = ["--config", write_job(context, "run", steps=1), *FILE, "--checkpoint.initial_load_in_hf"]

    def train(path, *more, exit_code=0):
        dump = context.dump(f"from_{path.name}_{exit_code}")
        words_of_run = [*words, "--job.dump_folder", dump, "--checkpoint.initial_load_path", path, *more]
        job = run(context, 2, words_of_run, name=path.name, exit_code=exit_code)
        return job if exit_code else load(dump / "checkpoint/step-1/model.pt")

    expect_equal(train(folder / "model.safetensors"), train(folder), "one file")
    job = train(folder / "model.safetensors", "--model.args.rope_theta", 1000, exit_code=1)
    expect("describes another model" in job.text(), job.tail())


@case(60, processors=1)
def wrong_files_are_refused(context):
    """Other formats are refused with the command that converts them, other weights by name; no pickle is executed."""
    import torch

    model = read_dcp(export(context, 1, DCP)[0])
    names = list(model)
    folder = context.folder / "files"
    folder.mkdir()
    torch.save(model, folder / "pytorch_model.bin")
    torch.save(model, folder / "weights.ckpt")
    torch.save(model, folder / "legacy.pt", _use_new_zipfile_serialization=False)
    (folder / "text.pt").write_text("hello")
    torch.save({**model, "x": Planted(context.folder / "executed")}, folder / "planted.pt")
    torch.save({"model": model, "state_dict": model}, folder / "twice.pt")
    torch.save([model], folder / "list.pt")
    torch.save({f"{name}s" if name == names[0] else name: tensor for name, tensor in model.items()}, folder / "renamed.pt")
    torch.save({**model, names[1]: torch.zeros(3, 5), "extra": torch.zeros(1)}, folder / "shape.pt")
    safetensors_bytes.write(folder / "hub.safetensors", {f"model.{name}": tensor for name, tensor in model.items()})
    expected = {
        "pytorch_model.bin": "AutoModelForCausalLM",
        "weights.ckpt": "ends in neither .pt, .pth nor .safetensors",
        "legacy.pt": f'torch.load("{folder}/legacy.pt", weights_only=True), "{folder}/legacy.zip.pt")\' makes one of it',
        "text.pt": "is not a file of torch.save",
        "planted.pt": "the global posix.mkdir is not one that checkpoints use",
        "twice.pt": 'it holds two dicts, "model" and "state_dict"',
        "list.pt": "it holds no dict of name -> tensor",
        "renamed.pt": f"missing: {names[0]} (the file has {names[0]}s)",
        "shape.pt": f"{names[1]}: expected shape",
        "hub.safetensors": "set checkpoint.initial_load_in_hf = true",
    }
    words = ["--config", write_job(context, "start", steps=1), "--checkpoint.enable", "--checkpoint.initial_load_path"]
    for name, text in expected.items():
        job = run(context, 2 if name == "renamed.pt" else 1, [*words, folder / name], name=name, exit_code=1)
        expect(text in job.text(), f"{name}: {job.tail()}")
    expect("unexpected: extra" in run(context, 1, [*words, folder / "shape.pt"], name="extra", exit_code=1).text(), "extra")
    expect(not (context.folder / "executed").exists(), "a pickle was executed")
    expect(not context.dump("start").joinpath("config.toml").exists(), "a refused start wrote files")
    # The conversion that the message gives makes a file that loads.
    torch.save(torch.load(folder / "legacy.pt", weights_only=True), folder / "legacy.zip.pt")
    run(context, 1, [*words, folder / "legacy.zip.pt"], name="converted")


@case(90, tier="wide", processors=1)
def killed_while_it_saves_one_file(context):
    """A rank that is killed at any call of the save leaves no half file; the next run has the bits of a straight one."""
    save = [*FILE, *SAVE[2:], "--checkpoint.interval", 1]

    def words(name):
        return ["--config", write_job(context, name, steps=2), *save]

    def calls(name):
        return f"rank=0 path={context.dump(name)}/checkpoint/step-2*"

    log = context.folder / "calls"
    for job in start_plain(context, 2, words("straight"), variables={0: faults(context, f"{calls('straight')} do=log:{log}")}):
        expect(job.wait(60) == 0, job.tail())
    expected = load(context.dump("straight") / "checkpoint/step-2/model.pt")
    lines = log.read_text().splitlines()
    expect(re.fullmatch(r"rename \S*/step-2\.tmp", lines[-1]), f"{lines}")
    for number in range(1, len(lines) + 1, 3):
        name = f"killed{number}"
        fault = faults(context, f"{calls(name)} n={number} do=kill")
        codes = [job.wait(60) for job in start_plain(context, 2, words(name), variables={0: fault})]
        expect(codes[0] == -signal.SIGKILL, f"{codes}")
        folder = context.dump(name) / "checkpoint/step-2"
        expect(not folder.exists(), f"{number}: {lines[number - 1]}")
        for job in start_plain(context, 2, words(name)):
            expect(job.wait(60) == 0, job.tail())
        expect_equal(load(folder / "model.pt"), expected, name)
