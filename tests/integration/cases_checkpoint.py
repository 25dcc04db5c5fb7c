"""Checkpoints against PyTorch's own: what FSDP2 and torch.distributed.checkpoint write and read at other world sizes."""
import json

from cases_hugging_face import read_folder
from checkpoint_tools import (
    FP32, SAVE, STILL, UNEVEN, UNEVEN_ARGS, check_counts, check_learned, check_same_tensors, is_count, read_state, train,
)  # fmt: skip
from fixtures import write_job
from harness import REFERENCE, VENV, Job, case, expect, free_port, rows_by_step

# Ranks and mesh that save: ZeRO-3 on one axis, HSDP on two, DDP, where nothing is sharded.
LAYOUTS = {
    "zero3_1": (1, []),
    "zero3_2": (2, []),
    "zero3_3": (3, []),
    "hsdp_4": (4, ["--parallelism.data_parallel_replicate_degree", 2, "--parallelism.data_parallel_shard_degree", 2]),
    "ddp_2": (2, ["--parallelism.data_parallel_replicate_degree", 2, "--parallelism.data_parallel_shard_degree", 1]),
}


def torchrun(context, ranks, script, words, name, timeout_s=120):
    command = [VENV / "torchrun", "--nproc-per-node", ranks, "--master-port", free_port(), REFERENCE / script, *words]
    job = Job(command, context.folder / "logs", name)
    code = job.wait(timeout_s)
    expect(code == 0, f"{script} failed with {code}\n{job.tail(30)}")
    return job


def rotate_rows(weight, heads):
    """A query or key weight in transformers' row order -> in ours: a pair turns together."""
    rows, columns = weight.shape
    return weight.view(heads, 2, rows // heads // 2, columns).transpose(1, 2).reshape(rows, columns)


NAMES = {
    "model.embed_tokens": "tok_embeddings", "model.norm": "norm", "lm_head": "output", "model.layers": "layers",
    "self_attn.q_proj": "attention.wq", "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv",
    "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1", "mlp.down_proj": "feed_forward.w2",
    "mlp.up_proj": "feed_forward.w3", "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip


def exported_weights(folder):
    """Our names and row order of a folder in Hugging Face's format."""
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


@case(240, ranks=[1, 2, 3])
def dcp_reads_ours(context, ranks):
    """torch.distributed.checkpoint reads at any world size what any of our meshes saved, to the last bit.

    Held against the pieces on disk, read one by one, and (at 2 ranks) the weights against a safetensors export of the
    same run.
    """
    import torch

    sources = LAYOUTS if ranks == 2 else {name: LAYOUTS[name] for name in ("zero3_2", "zero3_3", "hsdp_4")}
    folders = {}
    for name, (saving, words) in sources.items():
        config = write_job(context, name, steps=2)
        common = ["--config", config, *FP32, *UNEVEN, *words]
        train(context, saving, [*common, *SAVE], name)
        folders[name] = context.dump(name) / "checkpoint/step-2"
        if ranks != 2:
            continue
        export = ["--checkpoint.enable", "--checkpoint.last_save_in_hf", "--job.dump_folder", context.dump(f"{name}_hf")]
        train(context, saving, [*common, *export], f"{name}_hf")
    output = context.folder / "loaded.pt"
    torchrun(context, ranks, "dcp_load.py", ["--output", output, *folders.values()], "load")
    loaded = torch.load(output, weights_only=False)
    for name, folder in folders.items():
        found, expected = loaded[str(folder)], read_state(folder)
        check_learned(expected, name)
        check_counts(expected, 2, name)
        for split in ("rows", "columns"):
            check_same_tensors(found[split], expected, f"{name} at {ranks} ranks, split by {split}")
        for key, value in found["values"].items():
            expect(value == expected[key], f"{name}: {key} is {value}, expected {expected[key]}")
        expect(found["values"]["train_state.step"] == 2, f"{name}: step {found['values'].get('train_state.step')}")
        if ranks != 2:
            continue
        parameters = {key: tensor for key, tensor in found["rows"].items() if is_parameter(key)}
        check_same_tensors(parameters, exported_weights(context.dump(f"{name}_hf") / "checkpoint/step-2"), f"{name}, exported")


def save_reference(context, ranks, steps=3):
    """What FSDP2 holds after some steps: the folder, and the last row."""
    folder = context.folder / f"fsdp2_{ranks}"
    config = write_job(context, f"fsdp2_job_{ranks}", steps=steps)
    words = ["--folder", folder, "--config", config, *FP32, *UNEVEN]
    job = torchrun(context, ranks, "dcp_save.py", words, f"fsdp2_{ranks}")
    return folder, json.loads(job.out_path.read_text().splitlines()[-1])


@case(300, saved=[1, 2, 3, 4])
def we_read_fsdp2(context, saved):
    """A run at 1, 2 and 3 ranks starts from what FSDP2 saved at 1 to 4, uneven shards included, and holds its bits."""
    steps = 3
    folder, last = save_reference(context, saved, steps)
    expected = read_state(folder)
    check_learned(expected, "FSDP2's")
    shapes = {tuple(value.shape) for key, value in expected.items() if is_parameter(key) and hasattr(value, "shape")}
    expect((UNEVEN_ARGS["vocab_size"], UNEVEN_ARGS["dim"]) in shapes and (149, 56) in shapes, f"shapes are {shapes}")
    for ranks in (1, 2, 3):
        common = [*FP32, *UNEVEN, *SAVE, *STILL, "--checkpoint.initial_load_path", folder]
        # The weights alone, with fresh moments.
        name = f"weights_{ranks}"
        train(context, ranks, ["--config", write_job(context, name, steps=1), *common], name)
        found = read_state(context.dump(name) / "checkpoint/step-1")
        check_same_tensors(
            {k: v for k, v in found.items() if is_parameter(k)},
            {k: v for k, v in expected.items() if is_parameter(k)},
            f"weights of {saved} ranks at {ranks}",
            zero_has_sign=False,
        )
        check_counts(found, 1, name)
        # Everything but the position in the data, which the reference does not have.
        name = f"full_{ranks}"
        full = ["--checkpoint.no-initial_load_model_only", "--checkpoint.exclude_from_loading", "dataloader"]
        train(context, ranks, ["--config", write_job(context, name, steps=steps + 1), *common, *full], name)
        found = read_state(context.dump(name) / f"checkpoint/step-{steps + 1}")
        check_same_tensors(found, expected, f"state of {saved} ranks at {ranks}", is_count, zero_has_sign=False)
        check_counts(found, steps + 1, name)
        rows = rows_by_step(context.dump(name) / "metrics.jsonl")
        expect(sorted(rows) == [steps + 1], f"{name}: steps {sorted(rows)}, expected {steps + 1} alone")
        # One batch of data anew after the reference's count; the program sums over ranks what it restored on each.
        seen = rows[steps + 1]["tokens_seen"]
        wanted = (last["tokens_seen"] // saved + 2 * 64) * ranks
        expect(seen == wanted, f"{name}: {seen} tokens seen, expected {wanted}")
