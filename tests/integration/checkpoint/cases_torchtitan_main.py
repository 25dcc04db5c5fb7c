"""Tests checkpoints with the names of TorchTitan's main branch, written by PyTorch."""
import json

from cases_checkpoint import SAVED_STEPS, check_fsdp2_read, is_parameter, model_of
from cases_convert import command, expect_equal, read_dcp
from cases_hugging_face import read_folder
from checkpoint_tools import SAVE, check_same_tensors, read_state, train
from fixtures import write_job
from harness import case, expect
from oracle import answer, ask

SAID = "has the names of TorchTitan's main branch"
RENAMED = {"attention.qkv_linear.w": "attention.w", "lm_head.": "output."}

# The same runs, saved with both kinds of names, and one whose output projection is the embedding.
for mesh in ("2", "2w"):
    ask(2, f"saved with main's names {mesh}", model_of(mesh), SAVED_STEPS, seeded=False, state=True, main=True)


def own_key(key):
    for old, new in RENAMED.items():
        key = key.replace(old, new)
    return key


def own_state(state):
    """Returns a state of TorchTitan main's with our names; checks that it had its own."""
    expect(any("qkv_linear.wk" in key and key.startswith("optimizer.state.") for key in state), f"{sorted(state)[:20]}")
    expect("lm_head.weight" in state and "output.weight" not in state, f"{sorted(state)[:20]}")
    expect("lr_scheduler.base_lrs" not in state and "lr_scheduler.last_epoch" in state, "main saves last_epoch alone")
    return {own_key(key): value for key, value in state.items()}


@case(240)
def torchtitan_main_resumes(context):
    """A run starts from PyTorch's save with main's names at 1 and 2 ranks, with and without the optimizer's state."""
    for saved, loading in (("2", "1"), ("2", "2"), ("2w", "2")):
        check_fsdp2_read(context, saved, loading, "saved with main's names", own_state, SAID)


@case(180)
def torchtitan_main_continues_alike(context):
    """A run that goes on from main's names computes the same steps, to the bit, as one that goes on from ours."""
    states = {}
    for row in ("saved", "saved with main's names"):
        name = row.replace(" ", "_").replace("'", "")
        words = ["--config", write_job(context, name, steps=SAVED_STEPS + 2), *model_of("2"), *SAVE]
        words += ["--checkpoint.initial_load_path", answer(context, 2, f"{row} 2").state]
        words += ["--checkpoint.no-initial_load_model_only", "--checkpoint.exclude_from_loading", "dataloader"]
        train(context, 2, words, name)
        states[row] = read_state(context.dump(name) / f"checkpoint/step-{SAVED_STEPS + 2}")
    check_same_tensors(*states.values(), "going on from both names")


@case(180, processors=1)
def torchtitan_main_converts(context):
    """convert, inspect and generate read main's names, and convert writes them; every way back gives the same bits."""
    import torch

    ours, main = (answer(context, 2, f"{row} 2").state for row in ("saved", "saved with main's names"))
    theirs = {key: tensor for key, tensor in read_dcp(main).items() if is_parameter(key)}
    own = {key: tensor for key, tensor in read_dcp(ours).items() if is_parameter(key)}
    out = context.folder / "out"
    config = write_job(context, "model", steps=1)
    described = context.dump("described")
    train(context, 1, ["--config", config, *model_of("2"), "--checkpoint.enable", "--job.dump_folder", described], "described")
    hf = ["--to", "hf", "--config", described / "config.toml"]

    for name, words, wanted in (("own", [], own), ("main", ["--names", "torchtitan-main"], theirs)):
        for source in (ours, main):
            said, _ = command(context, "convert", source, out / f"{name}.dcp", "--to", "dcp", "--overwrite", *words)
            expect(said.count(SAID) == (source == main), said)
            expect_equal(read_dcp(out / f"{name}.dcp"), wanted, f"{source} -> DCP with names {words}")
            command(context, "convert", source, out / f"{name}.pt", "--overwrite", *words)
            expect_equal(torch.load(out / f"{name}.pt", weights_only=True), wanted, f"{source} -> torch with names {words}")
    command(context, "convert", ours, out / "first", *hf)
    for source in (main, out / "main.dcp", out / "main.pt"):
        command(context, "convert", source, out / "hf", "--overwrite", *hf)
        expect_equal(read_folder(out / "hf")[0], read_folder(out / "first")[0], f"{source} -> Hugging Face")
    command(context, "convert", out / "first", out / "from_hf", "--names", "torchtitan-main")
    expect_equal(read_dcp(out / "from_hf"), theirs, "Hugging Face -> DCP with main's names")
    _, error = command(context, "convert", main, out / "no", *hf, "--names", "torchtitan-main", exit_code=2)
    expect("--names goes with --to dcp and --to torch" in error and not (out / "no").exists(), error)

    text, _ = command(context, "inspect", main, "--verify")
    expect("names" in text and "TorchTitan's main branch's, which are read as ours" in text and "verified" in text, text)
    found = json.loads(command(context, "inspect", main, "--json")[0])
    groups = {key["name"]: key["group"] for key in found["keys"]}
    expect(groups["lm_head.weight"] == "model" and "TorchTitan's main" in found["names"], f"{found}")
    expect(groups["optimizer.state.lm_head.weight.exp_avg"] == "optimizer", f"{groups}")
    words = ["--config", described / "config.toml", "--prompt", "a", "--max-tokens", "3", "--seed", "1", "--device", "cpu"]
    texts = [command(context, "generate", "--checkpoint", source, *words) for source in (ours, main)]
    expect(texts[0][0] and texts[0][0] == texts[1][0], f"{texts}")


@case(60, processors=1)
def torchtitan_main_refused(context):
    """Names of both versions in one checkpoint, and fused moments, are refused before anything is loaded."""
    import torch.distributed.checkpoint as dcp

    state = read_dcp(answer(context, 2, "saved with main's names 2").state)
    weights = {key: tensor for key, tensor in state.items() if is_parameter(key)}

    def start(folder, name, *words, **more):
        words = ["--config", write_job(context, name, steps=1), *model_of("2"), *words]
        return train(context, 1, [*words, "--checkpoint.enable", "--checkpoint.initial_load_path", folder], name, **more)

    def refused(name, changed, *words):
        folder = context.folder / name
        dcp.save(changed, checkpoint_id=str(folder), no_dist=True)
        return start(folder, name, *words, exit_code=1).text(), folder

    key = "layers.1.attention.qkv_linear.wk.weight"
    for old, new in ((key, own_key(key)), (None, "output.weight")):
        changed = {k: v for k, v in weights.items() if k != old} | {new: weights[old or "lm_head.weight"]}
        text, folder = refused(f"mixed_{new}", changed)
        expect("mixes the names of two versions of TorchTitan" in text and f"{new} is of 0.2.2" in text, text)
        _, error = command(context, "convert", folder, context.folder / "no.pt", exit_code=1)
        expect("mixes the names" in error and not (context.folder / "no.pt").exists(), error)
        text, _ = command(context, "inspect", folder)
        expect("mixes the names" in text, text)
    # As TorchTitan saved it between the two changes.
    changed = {k: v for k, v in weights.items() if k != "lm_head.weight"} | {"output.weight": weights["lm_head.weight"]}
    dcp.save(changed, checkpoint_id=str(context.folder / "between"), no_dist=True)
    start(context.folder / "between", "between")

    # With fuse_qkv, main's default, the weights are apart and the moments are not.
    fused = dict(weights)
    moments = {}
    for name, tensor in state.items():
        name = name.removeprefix("optimizer.")
        if not name.startswith(("state.", "param_groups.")) or ".wk." in name or ".wv." in name:
            continue
        moments[name.replace(".wq.", ".wqkv.")] = tensor
    fused["optimizer"] = moments
    fused |= {"train_state": {"step": 3, "ntokens_seen": 1}, "lr_scheduler": {"last_epoch": 3}}
    full = ["--checkpoint.no-initial_load_model_only", "--checkpoint.exclude_from_loading", "dataloader"]
    text, folder = refused("fused", fused, *full)
    expect("one tensor for wq, wk and wv" in text and "fuse_qkv = False" in text, text)
    start(folder, "weights_of_fused")
