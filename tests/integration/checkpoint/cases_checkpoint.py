"""Tests checkpoints against PyTorch's own: FSDP2 and DCP write and read at other world sizes."""
import itertools

from cases_hugging_face import read_folder
from checkpoint_tools import (
    FP32, SAVE, STILL, UNEVEN, UNEVEN_ARGS, check_counts, check_learned, check_same_tensors, is_count, read_state, train,
)  # fmt: skip
from fixtures import write_job
from harness import REFERENCE, VENV, Job, case, expect, rows_by_step
from oracle import answer, ask

# Tensor parallelism, with heads that two ranks can share. The 149 hidden rows are split into 75 and 74; PyTorch's
# parallelize_module takes only features that it can split evenly, so it saves 150.
TENSOR = ["--parallelism.tensor_parallel_degree", 2]
SHARED_HEADS = ["--model.args.n_kv_heads", 2]
EVEN_HIDDEN = ["--model.args.multiple_of", 2]
TIED = ["--model.args.enable_weight_tying=true"]
# Ranks and mesh that save: ZeRO-3 on one axis, HSDP on two, DDP, where nothing is sharded, tensor parallelism with ZeRO-3
# on top.
LAYOUTS = {
    "zero3_1": (1, []),
    "zero3_2": (2, []),
    "zero3_3": (3, []),
    "hsdp_4": (4, ["--parallelism.data_parallel_replicate_degree", 2, "--parallelism.data_parallel_shard_degree", 2]),
    "ddp_2": (2, ["--parallelism.data_parallel_replicate_degree", 2, "--parallelism.data_parallel_shard_degree", 1]),
    "tensor_zero3_4": (4, [*SHARED_HEADS, *TENSOR]),
}
LOADING = (1, 3)
EXPORTED = ("zero3_3", "hsdp_4", "tensor_zero3_4")
# (saving mesh, loading mesh): every number of ranks occurs on both sides, and it always changes.
ANOTHER_MESH = [("1", "2"), ("2", "3"), ("3", "1"), ("4", "2"), ("4t", "2"), ("2", "4t"), ("2w", "4t"), ("4tw", "1")]


def rotate_rows(weight, heads):
    """Converts a query or key weight from transformers' row order to ours, with adjacent rows of a rotated pair."""
    rows, columns = weight.shape
    return weight.view(heads, 2, rows // heads // 2, columns).transpose(1, 2).reshape(rows, columns)


NAMES = {
    "model.embed_tokens": "tok_embeddings", "model.norm": "norm", "lm_head": "output", "model.layers": "layers",
    "self_attn.q_proj": "attention.wq", "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv",
    "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1", "mlp.down_proj": "feed_forward.w2",
    "mlp.up_proj": "feed_forward.w3", "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip


def exported_weights(folder):
    """Returns the weights of a folder in Hugging Face's format, with our names and row order."""
    theirs, config = read_folder(folder)
    ours = {}
    for name, weight in theirs.items():
        for old, new in NAMES.items():
            if f"{old}." in name:
                name = name.replace(f"{old}.", f"{new}.")
        if name.endswith(".wq.weight"):
            weight = rotate_rows(weight, config["num_attention_heads"])
        if name.endswith(".wk.weight"):
            weight = rotate_rows(weight, config["num_key_value_heads"])
        ours[name] = weight
    return ours


def is_parameter(key):
    return not key.startswith(("optimizer.", "titan.", "grad_scaler."))


@case(240)
def dcp_reads_ours(context):
    """torch.distributed.checkpoint reads at 1 and 3 ranks what any of our meshes saved, to the last bit.

    Compares with the pieces on disk, read one by one, and for some meshes with a safetensors export of the same run.
    """
    import torch

    folders = {}
    for name, (saving, words) in LAYOUTS.items():
        common = ["--config", write_job(context, name, steps=2), *FP32, *UNEVEN, *words]
        train(context, saving, [*common, *SAVE], name)
        folders[name] = context.dump(name) / "checkpoint/step-2"
        if name not in EXPORTED:
            continue
        export = ["--checkpoint.enable", "--checkpoint.last_save_in_hf", "--job.dump_folder", context.dump(f"{name}_hf")]
        train(context, saving, [*common, *export], f"{name}_hf")
    words = ["--ranks", *LOADING, "--output", context.folder, "--checkpoints", *folders.values()]
    job = Job([VENV / "python", REFERENCE / "dcp_load.py", *words], context.folder / "logs", "load")
    code = job.wait(120)
    expect(code == 0, f"dcp_load.py failed with {code}\n{job.tail(30)}")
    loads = {ranks: torch.load(context.folder / f"{ranks}.pt", weights_only=False) for ranks in LOADING}
    for name, folder in folders.items():
        expected = read_state(folder)
        check_learned(expected, name)
        check_counts(expected, 2, name)
        for ranks, loaded in loads.items():
            check_load(loaded[str(folder)], expected, f"{name} at {ranks} ranks")
        if name not in EXPORTED:
            continue
        parameters = {key: tensor for key, tensor in expected.items() if is_parameter(key)}
        check_same_tensors(parameters, exported_weights(context.dump(f"{name}_hf") / "checkpoint/step-2"), f"{name}, exported")


def check_load(found, expected, what):
    for split in ("rows", "columns"):
        check_same_tensors(found[split], expected, f"{what}, split by {split}")
    for key, value in found["values"].items():
        expect(value == expected[key], f"{what}: {key} is {value}, expected {expected[key]}")
    expect(found["values"]["train_state.step"] == 2, f"{what}: step {found['values'].get('train_state.step')}")


SAVED_STEPS = 3


def words_of(mesh):
    """Returns the mesh's overrides. A mesh is a number of ranks, with a t if pairs of them share each layer."""
    return TENSOR if "t" in mesh else []


def model_of(saved):
    """Returns the overrides of the model that is saved on a mesh; with a w, its output projection is the embedding."""
    return [*FP32, *UNEVEN, *SHARED_HEADS, *(EVEN_HIDDEN if "t" in saved else []), *(TIED if "w" in saved else [])]


def batches_of(mesh):
    """Returns the number of batches that its ranks train on at once."""
    return int(mesh[0]) // (2 if "t" in mesh else 1)


for mesh in ("1", "2", "3", "4", "4t", "2w", "4tw"):
    ask(int(mesh[0]), f"saved {mesh}", [*model_of(mesh), *words_of(mesh)], SAVED_STEPS, seeded=False, state=True)


def check_ties(state, saved):
    """Checks that a tied parameter is stored under both names, and the optimizer's state under the first alone."""
    if "w" in saved:
        check_same_tensors({"it": state["output.weight"]}, {"it": state["tok_embeddings.weight"]}, saved)
    moments = {key for key in state if key.startswith("optimizer.") and ".output.weight." in key}
    expect(bool(moments) == ("w" not in saved), f"{saved}: {sorted(moments)}")
    expect("optimizer.state.tok_embeddings.weight.exp_avg" in state, f"{saved} has no moments of the embedding")


def check_fsdp2_read(context, saved, loading, row="saved", renamed=lambda state: state, said=""):
    """Checks that a run on the mesh `loading` starts from FSDP2's save on `saved`, and holds its bits.

    row: the kind of save. renamed: returns its state with our names. said: what each start must say, once.
    """
    steps = SAVED_STEPS
    ranks = int(loading[0])
    reference = answer(context, int(saved[0]), f"{row} {saved}")
    expected = renamed(read_state(reference.state))
    check_learned(expected, "FSDP2's")
    check_ties(expected, saved)
    shapes = {tuple(value.shape) for key, value in expected.items() if is_parameter(key) and hasattr(value, "shape")}
    hidden = 150 if "t" in saved else 149
    expect((UNEVEN_ARGS["vocab_size"], UNEVEN_ARGS["dim"]) in shapes and (hidden, 56) in shapes, f"shapes are {shapes}")
    common = [*model_of(saved), *words_of(loading), *SAVE, *STILL, "--checkpoint.initial_load_path", reference.state]
    # The weights alone, with fresh moments.
    name = f"weights_{saved}_{loading}"
    texts = [train(context, ranks, ["--config", write_job(context, name, steps=1), *common], name).text()]
    found = read_state(context.dump(name) / "checkpoint/step-1")
    check_same_tensors(
        {k: v for k, v in found.items() if is_parameter(k)},
        {k: v for k, v in expected.items() if is_parameter(k)},
        f"weights of {saved} on {loading}",
        zero_has_sign=False,
    )
    check_counts(found, 1, name)
    # Everything except the position in the data, which the reference does not have.
    name = f"full_{saved}_{loading}"
    full = ["--checkpoint.no-initial_load_model_only", "--checkpoint.exclude_from_loading", "dataloader"]
    texts.append(train(context, ranks, ["--config", write_job(context, name, steps=steps + 1), *common, *full], name).text())
    for text in texts:
        expect(not said or text.count(said) == 1, f"{name} says {text.count(said)} times: {said}\n{text}")
    found = read_state(context.dump(name) / f"checkpoint/step-{steps + 1}")
    check_same_tensors(found, expected, f"state of {saved} on {loading}", is_count, zero_has_sign=False)
    check_counts(found, steps + 1, name)
    rows = rows_by_step(context.dump(name) / "metrics.jsonl")
    expect(sorted(rows) == [steps + 1], f"{name}: steps {sorted(rows)}, expected {steps + 1} alone")
    # One new batch of data after the reference's count; the program sums over ranks what it restored on each.
    seen = rows[steps + 1]["tokens_seen"]
    wanted = (reference.rows[-1]["tokens_seen"] // batches_of(saved) + 2 * 64) * batches_of(loading)
    expect(seen == wanted, f"{name}: {seen} tokens seen, expected {wanted}")


@case(300)
def we_read_fsdp2(context):
    """Runs start from FSDP2's save on another mesh, uneven shards included, and hold its bits."""
    for saved, loading in ANOTHER_MESH:
        check_fsdp2_read(context, saved, loading)


@case(300, tier="long")
def we_read_fsdp2_all(context):
    """Tests the other pairs of a saving and a loading mesh."""
    for saved, loading in itertools.product(("1", "2", "3", "4", "4t"), ("1", "2", "3", "2t", "4t")):
        if saved != loading and (saved, loading) not in ANOTHER_MESH:
            check_fsdp2_read(context, saved, loading)
