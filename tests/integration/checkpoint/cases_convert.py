"""Tests titan-train convert and inspect against PyTorch and the exports of training runs."""
import errno
import json
import os
import shutil
import signal
import subprocess

from cases_hugging_face import DCP, export, read_folder
from fixtures import write_job
from harness import TIME_SCALE, case, expect, faults, read_rows, run


def command(context, *words, exit_code=0, env=None):
    """Returns standard output and standard error of `titan-train WORDS`."""
    words = [str(word) for word in words]
    env = {**os.environ, **(env or {})}
    done = subprocess.run([context.program, *words], capture_output=True, text=True, timeout=60 * TIME_SCALE, env=env)
    expect(done.returncode == exit_code, f"{words}: exit code {done.returncode}\n{done.stdout}{done.stderr[-2000:]}")
    return done.stdout, done.stderr


def read_dcp(folder):
    """Returns every tensor of a DCP folder, as PyTorch reads it."""
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    entries = dcp.FileSystemReader(str(folder)).read_metadata().state_dict_metadata
    state = {
        name: torch.zeros(entry.size, dtype=entry.properties.dtype)
        for name, entry in entries.items()
        if isinstance(entry, TensorStorageMetadata)
    }
    dcp.load(state, checkpoint_id=str(folder), no_dist=True)
    return state


def small_files(folder):
    """Returns the files besides the weights: {name: bytes}."""
    names = {path.name for path in folder.iterdir()} - {"titan.checksums.json", "model.safetensors.index.json"}
    return {name: (folder / name).read_bytes() for name in names if not name.endswith(".safetensors")}


def expect_equal(found, wanted, what):
    import torch

    expect(set(found) == set(wanted), f"{what}: other names: {sorted(set(found) ^ set(wanted))}")
    for name, tensor in wanted.items():
        same = found[name].dtype == tensor.dtype and torch.equal(found[name], tensor)
        expect(same, f"{what}: {name} differs")


@case(180, processors=1)
def convert(context):
    """convert writes what a run exports, PyTorch reads it, and every way back gives the same bits."""
    import torch

    # The same run twice, seeded alike: one saves DCP, the other exports.
    step, dump = export(context, 2, DCP)
    exported, config = read_folder(export(context, 2)[0])
    out = context.folder / "converted"
    model = read_dcp(step)
    command(context, "convert", step, out / "hf")
    found, found_config = read_folder(out / "hf")
    expect(found_config == config, "config.json is not that of an export")
    expect(small_files(out / "hf") == small_files(export(context, 2)[0]), "other files beside the weights than of an export")
    expect_equal(found, exported, "DCP -> HF")

    command(context, "convert", out / "hf", out / "back")
    expect_equal(read_dcp(out / "back"), model, "DCP -> HF -> DCP")
    command(context, "convert", step, out / "model.pt")
    expect_equal(torch.load(out / "model.pt", weights_only=True), model, "DCP -> torch")
    command(context, "convert", out / "model.pt", out / "from_pt")
    expect_equal(read_dcp(out / "from_pt"), model, "torch -> DCP")
    command(context, "convert", out / "model.pt", out / "pt_hf", "--to", "hf", "--config", dump / "config.toml")
    expect_equal(read_folder(out / "pt_hf")[0], found, "torch -> HF")

    command(context, "convert", step, out / "half", "--export-dtype", "bfloat16")
    half = {name: tensor.bfloat16() for name, tensor in found.items()}
    expect_equal(read_folder(out / "half")[0], half, "DCP -> HF in bfloat16")
    command(context, "convert", out / "half", out / "half_dcp")
    expect_equal(read_dcp(out / "half_dcp"), {k: v.bfloat16() for k, v in model.items()}, "HF in bfloat16 -> DCP")

    for name in ("hf", "back", "model.pt", "from_pt", "half"):
        text, _ = command(context, "inspect", out / name, "--verify")
        expect("verified" in text, text)
    # A run starts from it, too.
    words = ["--checkpoint.enable", "--checkpoint.initial_load_path", out / "back"]
    run(context, 2, ["--config", write_job(context, "again", steps=1), *words], name="again")


@case(60, processors=1)
def convert_tokenizer(context):
    """A folder in Hugging Face's format gets the run's tokenizer, or a named one; if none, a note says how."""
    import golden

    step = export(context, 1, DCP)[0]
    out, elsewhere = context.folder / "out", context.folder / "assets"
    named = {name: (golden.TOKENIZER / name).read_bytes() for name in ("tokenizer.json", "tokenizer_config.json")}
    _, error = command(context, "convert", step, out / "named", "--tokenizer", golden.TOKENIZER)
    found = small_files(out / "named")
    expect(found.items() >= named.items() and "tokenizer.model" not in found, f"{sorted(found)}")
    expect("has no tokenizer" not in error, error)
    config = json.loads(found["config.json"])
    expect((config["bos_token_id"], config["eos_token_id"]) == (62, 63), f"{config}")
    # From the same format the tokenizer comes along, and only the dtype changes.
    command(context, "convert", out / "named", out / "half", "--to", "hf", "--export-dtype", "bfloat16")
    half = small_files(out / "half")
    expect(json.loads(half.pop("config.json")) == config | {"torch_dtype": "bfloat16"}, "config.json of bfloat16")
    expect(half == {name: content for name, content in found.items() if name != "config.json"}, f"{sorted(half)}")
    command(context, "convert", out / "half", out / "back")

    # The folder that the run names is gone.
    shutil.copytree(context.fixtures / "tokenizer", elsewhere)
    words = ["--config", write_job(context, "run", steps=3), "--model.hf_assets_path", elsewhere, "--checkpoint.enable"]
    run(context, 1, [*words, "--checkpoint.last_save_model_only=false"], name="run")
    elsewhere.rename(context.folder / "moved")
    step = context.dump("run") / "checkpoint/step-3"
    _, error = command(context, "convert", step, out / "without")
    expect("has no tokenizer: no tokenizer at" in error and "--tokenizer PATH" in error, error)
    found = small_files(out / "without")
    expect(set(found) == {"config.json", "generation_config.json"}, f"{sorted(found)}")
    expect(json.loads(found["generation_config.json"]) == {"bos_token_id": None, "eos_token_id": None}, f"{found}")
    # Another tokenizer is in its place now.
    shutil.copytree(golden.TOKENIZER, elsewhere)
    _, error = command(context, "convert", step, out / "other")
    expect("is not the tokenizer that the model was trained with" in error, error)
    expect("tokenizer.json" not in small_files(out / "other"), "another tokenizer was copied")
    _, error = command(context, "convert", step, out / "wrong", "--tokenizer", context.folder, exit_code=2)
    expect("no tokenizer in" in error and not (out / "wrong").exists(), error)
    _, error = command(context, "convert", step, out / "model.pt", "--tokenizer", golden.TOKENIZER, exit_code=2)
    expect("--tokenizer goes with --to hf" in error, error)


@case(60, processors=1)
def inspect_damage(context):
    """A truncated file gives a few lines and exit code 1, also if only its parent folder is inspected."""
    step = context.dump("run") / "checkpoint/step-3"
    shutil.copytree(export(context, 2, DCP)[0], step)
    with open(step / "__0_0.distcp", "r+b") as file:
        file.truncate(1000)
    faults = json.loads(command(context, "inspect", step.parent, "--verify", "--json", exit_code=1)[0])["faults"]
    expect(len(faults) > 20, f"{len(faults)} faults")
    text, _ = command(context, "inspect", step, "--verify", exit_code=1)
    expect(f"DAMAGED: {len(faults)} faults" in text and "more in __0_0.distcp" in text, text)
    expect(len(text.splitlines()) < 12, text)
    for folder in (step.parent, context.dump("run")):
        text, _ = command(context, "inspect", folder, exit_code=1)
        expect("damaged" in text, text)
        _, error = command(context, "convert", folder, context.folder / "out", exit_code=1)
        expect("has no complete checkpoint" in error and "titan-train inspect" in error, error)


@case(60, processors=1)
def inspect_run(context):
    """inspect shows how far a run's folder has come, and a command that resumes the run."""
    words = ["--config", write_job(context, "run", steps=4), "--checkpoint.enable", "--checkpoint.interval", "2"]
    run(context, 2, [*words, "--checkpoint.last_save_model_only=false"], name="run")
    dump = context.dump("run")
    last = read_rows(dump / "metrics.jsonl")[-1]
    state = json.loads(command(context, "inspect", dump, "--json")[0])
    found = {key: state["run"][key] for key in ("state", "step", "total_steps", "loss", "tokens_seen", "mesh")}
    wanted = {"state": "finished", "step": 4, "total_steps": 4, "loss": last["loss"], "tokens_seen": last["tokens_seen"]}
    wanted["mesh"] = "dp_shard 2"
    expect(found == wanted and state["newest"] == 4, f"{state}")
    text, _ = command(context, "inspect", dump)
    for part in ("finished", "4 of 4", f"{last['loss']:.5f}", "llama3 debugmodel", "step-2", "the newest", "2 (dp_shard 2)"):
        expect(part in text, f"no {part!r}: {text}")
    expect(f"--nproc 2 --config {dump / 'config.toml'} --training.steps N" in text, text)

    # A run with more steps to train stopped there; the next lines start the command that it gives.
    shutil.rmtree(dump / "checkpoint/step-4")
    rows = (dump / "metrics.jsonl").read_text().splitlines(keepends=True)
    (dump / "metrics.jsonl").write_text("".join(rows[:3]))
    state = json.loads(command(context, "inspect", dump, "--json")[0])
    expect((state["run"]["state"], state["run"]["step"], state["newest"]) == ("stopped", 3, 2), f"{state}")
    program, *resume = state["run"]["next"].removesuffix(", from step 2").split()
    expect(program == "titan-train" and resume == ["--nproc", "2", "--config", str(dump / "config.toml")], f"{resume}")
    _, error = command(context, *resume)
    expect(json.loads(command(context, "inspect", dump, "--json")[0])["run"]["state"] == "finished", error)

    # A run's folder, and the folder of its steps, mean the newest step.
    for source in (dump, dump / "checkpoint"):
        text, _ = command(context, "convert", source, context.folder / "out.pt", "--overwrite")
        expect(f"from {dump}/checkpoint/step-4, the newest complete checkpoint of {source}" in text, text)
    (dump / "checkpoint/step-4/.metadata").unlink()
    text, _ = command(context, "convert", dump, context.folder / "out.pt", "--overwrite")
    expect("checkpoint/step-2, the newest" in text, text)
    shutil.rmtree(dump / "checkpoint")
    _, error = command(context, "convert", dump, context.folder / "out.pt", "--overwrite", exit_code=1)
    expect("is a run without checkpoints" in error, error)
    text, _ = command(context, "inspect", dump)
    expect("none in" in text, text)


@case(60, processors=1)
def convert_torch_files(context):
    """state_dict() files of PyTorch, and PyTorch's own DCP, are sources; anything but a model is refused."""
    import torch
    import torch.distributed.checkpoint as dcp

    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.wq = torch.nn.Linear(6, 8, bias=False)
            self.norm = torch.nn.Parameter(torch.rand(5))
            # A view that starts inside its storage, and one whose rows are not contiguous.
            self.register_buffer("tail", torch.arange(20.0)[8:].view(3, 4))
            self.register_buffer("turned", torch.arange(12.0).view(3, 4).t())
            self.register_buffer("scalar", torch.tensor(3, dtype=torch.int64))

    source = context.folder
    state = Attention().state_dict()
    torch.save(state, source / "model.pt")
    wanted = {name: tensor.detach() for name, tensor in state.items()}
    command(context, "convert", source / "model.pt", source / "dcp")
    expect_equal(read_dcp(source / "dcp"), wanted, "state_dict -> DCP")
    dcp.save({**wanted, "optimizer": {"lr": 0.5, "m": torch.ones(3)}}, checkpoint_id=str(source / "theirs"), no_dist=True)
    command(context, "convert", source / "theirs", source / "theirs.pt")
    expect_equal(torch.load(source / "theirs.pt", weights_only=True), wanted, "PyTorch's DCP -> torch")

    torch.save({"model": state, "step": 3}, source / "nested.pt")
    command(context, "convert", source / "nested.pt", source / "nested")
    expect_equal(read_dcp(source / "nested"), wanted, "a dict under the key model -> DCP")
    torch.save({"weights": state, "step": 3}, source / "deeper.pt")
    _, error = command(context, "convert", source / "deeper.pt", source / "no", exit_code=1)
    expect('"weights" is not a tensor' in error, error)
    torch.save({"x": print}, source / "code.pt")
    _, error = command(context, "convert", source / "code.pt", source / "no", exit_code=1)
    expect("not one that checkpoints use" in error, error)
    expect(not (source / "no").exists(), "a refused conversion left something")


@case(60, processors=1)
def convert_refused(context):
    """Impossible conversions are refused with advice, and targets are not overwritten unasked."""
    shutil.copytree(export(context, 2, DCP)[1], context.dump("dcp"))
    step = context.dump("dcp") / "checkpoint/step-3"
    out = context.folder / "out"
    _, error = command(context, "convert", context.folder / "no", out, exit_code=1)
    expect("does not exist" in error, error)
    _, error = command(context, "convert", step, out, "--to", "gguf", exit_code=2)
    expect("--to: expected hf, dcp or torch" in error, error)
    _, error = command(context, "convert", step, out, "--bogus", exit_code=2)
    expect("--help lists" in error, error)
    _, error = command(context, "convert", step, out, "--model-flavor", "8B", exit_code=2)
    expect("llama3 8B describes another model than the one that was saved" in error, error)
    # As another program saves it: nothing in it describes the model.
    for name in ("titan.config.toml", "titan.checksums.json"):
        (step / name).unlink()
    _, error = command(context, "convert", step, out, "--model-flavor", "8B", exit_code=1)
    expect("is not the model of llama3 8B" in error and "expected [" in error, error)
    (context.dump("dcp") / "config.toml").rename(context.folder / "config.toml")
    _, error = command(context, "convert", step, out, exit_code=2)
    expect("--config FILE" in error, error)
    expect(not out.exists(), "a refused conversion left something")
    command(context, "convert", step, out, "--config", context.folder / "config.toml")
    _, error = command(context, "convert", step, out, "--config", context.folder / "config.toml", exit_code=2)
    expect("--overwrite" in error, error)
    command(context, "convert", step, out, "--config", context.folder / "config.toml", "--overwrite")
    # Names and heads are in config.json; without it they are unknown.
    (out / "config.json").unlink()
    _, error = command(context, "convert", out, context.folder / "again", exit_code=2)
    expect("config.json" in error, error)


@case(60, processors=1)
def convert_over_a_folder_that_cannot_be_renamed(context):
    """Over a folder in an overlay's lower layer, whose rename is EXDEV, the new one replaces it or is kept complete."""
    step = export(context, 1, DCP)[0]
    out = context.folder / "out"
    command(context, "convert", step, out)
    wanted = {path.name: path.read_bytes() for path in out.iterdir()}
    fixed = f"call=rename path={out} do=errno:{errno.EXDEV}"

    def overwrite(name, *rules, exit_code=0):
        (out / "only_in_the_old").write_text("x")
        swap = f"call=rename path={out}.tmp do=errno:{errno.EXDEV} once={context.folder / name}"  # the first is the exchange
        env = faults(context, swap, fixed, *rules)
        return command(context, "convert", step, out, "--overwrite", exit_code=exit_code, env=env)[1]

    def expect_new(folder, names):
        found = {path.name: path.read_bytes() for path in folder.iterdir()}
        expect(found == wanted, f"{folder} has {sorted(found)}, expected {sorted(wanted)}, or other bytes")
        left = sorted(path.name for path in context.folder.glob("out*"))
        expect(left == names, f"{left}, expected {names}")

    overwrite("once-1")
    expect_new(out, ["out"])
    # If the old folder cannot be removed either, the message says where the new one is; its rest is not a checkpoint.
    error = overwrite("once-2", f"call=unlink path=*only_in_the_old do=errno:{errno.EBUSY}", exit_code=1)
    expect(f"cannot remove all of {out}" in error and f"complete in {out}.replaced" in error, error)
    expect(not (out / "model.safetensors.index.json").exists(), "the old folder still says that it is complete")
    expect_new(context.folder / "out.replaced", ["out", "out.replaced"])
    overwrite("once-3", f"call=unlink path={out}/* n=3 do=kill", exit_code=-signal.SIGKILL)
    expect_new(context.folder / "out.replaced", ["out", "out.replaced"])
    overwrite("once-4")
    expect_new(out, ["out"])


@case(60, processors=1)
def inspect(context):
    """inspect lists steps, keys and files, as text and as JSON, and says what is damaged with exit code 1."""
    import torch
    import torch.distributed.checkpoint as dcp

    words = ["--checkpoint.enable", "--checkpoint.interval", "2", "--checkpoint.files_per_rank", "2"]
    run(context, 2, ["--config", write_job(context, "run", steps=4), *words], name="run")
    folder = context.dump("run") / "checkpoint"
    listed = json.loads(command(context, "inspect", folder, "--json", "--verify")[0])
    states = [(step["name"], step["state"], step["holds"]) for step in listed["steps"]]
    expect(states == [("step-2", "complete", "full"), ("step-4", "complete", "model only")], f"{states}")
    expect(listed["newest"] == 4 and listed["intact"], f"{listed}")
    text, _ = command(context, "inspect", folder)
    expect("the newest" in text and "full" in text, text)
    losses = {row["step"]: f"{row['loss']:.5f}" for row in read_rows(context.dump("run") / "metrics.jsonl")}
    line = next(line for line in text.splitlines() if "step-2 " in line)
    expect(line.split()[-4:-2] == [losses[2], "2"], f"no loss and ranks: {line}")

    one = json.loads(command(context, "inspect", folder / "step-2", "--json")[0])
    expect(one["step"] == 2 and one["tokens_seen"] > 0 and one["checksums"], f"{one}")
    names = {file["name"] for file in one["files"]}
    expect({"__0_1.distcp", "__1_1.distcp", "titan.checksums.json"} <= names, f"{names}")
    tensors = {key["name"]: key for key in one["keys"] if key["type"] == "tensor"}
    for name, tensor in read_dcp(folder / "step-2").items():
        key = tensors[name]
        expect(key["shape"] == list(tensor.shape) and key["dtype"] == str(tensor.dtype)[6:], f"{key}")
        expect(key["bytes"] == tensor.nbytes, f"{key}")
    text, _ = command(context, "inspect", folder / "step-2")
    expect("llama3 debugmodel, " in text and ", by 2 ranks" in text and losses[2] in text, text)
    expect("optimizer.state" not in text and "which --all lists" in text, text)
    text, _ = command(context, "inspect", folder / "step-2", "--all")
    expect("optimizer.state.layers.{0-1}" in text and "__1_1.distcp" in text, text)
    text, _ = command(context, "inspect", folder / "step-2", "--keys", "*.wq.weight")
    expect("layers.0.attention.wq.weight" in text and "norm.weight" not in text, text)

    data = folder / "step-4" / "__1_0.distcp"
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)
    text, _ = command(context, "inspect", folder / "step-4", "--verify", exit_code=1)
    expect("DAMAGED" in text and "__1_0.distcp has the checksum" in text, text)
    command(context, "inspect", folder, "--verify", exit_code=1)
    (folder / "step-2" / ".metadata").unlink()
    text, _ = command(context, "inspect", folder)
    expect("incomplete" in text and "no .metadata" in text, text)

    theirs = context.folder / "theirs"
    dcp.save({"w": torch.arange(6.0), "note": "x"}, checkpoint_id=str(theirs), no_dist=True)
    text, _ = command(context, "inspect", theirs, "--verify")
    expect("verified" in text and "none beside those of its records" in text, text)
    # A launcher's variables, left over or of the surrounding job, do not turn a command into a rank.
    environment = os.environ | {"RANK": "0", "WORLD_SIZE": "2"}
    nothing = [context.program, "inspect", context.folder / "nothing"]
    done = subprocess.run(nothing, capture_output=True, text=True, timeout=60 * TIME_SCALE, env=environment)
    expect(done.returncode == 1 and done.stderr == f"titan-train: {nothing[2]} does not exist\n", done.stderr)
    command(context, "inspect", exit_code=2)
    text, _ = command(context, "inspect", "--help")
    expect("--verify" in text and "Exit codes" in text, text)
