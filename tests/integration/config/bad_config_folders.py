"""Makes `prepared/`, which cases of tests/bad_configs start from besides their own files, for each run of bad_configs.

It holds checkpoints that the program saved, as in parts/resume.toml, and copies of them with one fault each.
"""
import fcntl
import json
import pickle
import shutil
import subprocess

from harness import TIME_SCALE


def train(program, folder, environment, name, *words):
    """Runs two steps with the dump folder prepared/<name>."""
    command = [program, "--config", "parts/resume.toml", "--job.dump_folder", f"prepared/{name}", *words]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, timeout=60 * TIME_SCALE)


def edit(path, change):
    """Replaces a file's bytes by change(bytes)."""
    path.write_bytes(change(path.read_bytes()))


def without_key(key):
    def change(data):
        metadata = pickle.loads(data)
        del metadata.state_dict_metadata[key], metadata.planner_data[key]
        metadata.storage_data = {index: where for index, where in metadata.storage_data.items() if index.fqn != key}
        return pickle.dumps(metadata)

    return change


def with_version(version):
    def change(data):
        metadata = pickle.loads(data)
        metadata.version = version
        return pickle.dumps(metadata)

    return change


def rename_in_index(data):
    index = json.loads(data)
    index["weight_map"]["lm_head.weight"] = "model-00002-of-00002.safetensors"
    return json.dumps(index).encode()


def flip(data, at):
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


def prepare(program, folder, environment):
    """Fills folder/prepared. `folder` holds a copy of tests/bad_configs and is where the cases run.

    Returns a lock: while it is held, prepared/busy is a folder that another run trains into.
    """
    base = folder / "prepared"
    train(program, folder, environment, "full")
    train(program, folder, environment, "weights", "--checkpoint.last_save_model_only", "--training.steps=1")
    train(program, folder, environment, "hugging_face", "--checkpoint.last_save_model_only", "--checkpoint.last_save_in_hf")
    train(program, folder, environment, "torchtitan_order", "--training.data_order=torchtitan", "--nproc=2")

    def copy(name, of="full", step="checkpoint/step-2"):
        shutil.copytree(base / of, base / name)
        return base / name / step

    # A save that was killed: every file except the last one written.
    (copy("half_written") / ".metadata").unlink()
    for metadata in (copy("none_complete", step="checkpoint")).glob("step-*/.metadata"):
        metadata.unlink()
    edit(copy("truncated") / "__0_0.distcp", lambda data: data[:-100_000])
    (copy("shard_missing") / "__0_0.distcp").unlink()
    edit(copy("bit_flipped") / "__0_0.distcp", lambda data: flip(data, len(data) // 2))
    edit(copy("metadata_truncated") / ".metadata", lambda data: data[:1000])
    # Not damaged, but written by another program: without our checksums.
    for name, change in {"key_missing": without_key("norm.weight"), "newer": with_version("2.0.0"),
                         "no_moments": without_key("optimizer.state.norm.weight.exp_avg")}.items():  # fmt: skip
        step = copy(name)
        edit(step / ".metadata", change)
        (step / "titan.checksums.json").unlink()

    edit(copy("hf_shard_missing", "hugging_face") / "model.safetensors.index.json", rename_in_index)
    step = copy("hf_dtype", "hugging_face")
    edit(step / "model.safetensors", lambda data: data.replace(b'"F32"', b'"F4X"'))
    (step / "titan.checksums.json").unlink()
    step = copy("hf_pickle", "hugging_face")
    for path in step.glob("*.safetensors*"):
        path.unlink()
    (step / "titan.checksums.json").unlink()
    (step / "pytorch_model.bin").write_bytes(pickle.dumps({}))

    # The folder of a sweep over other values, which parts/sweep.toml names.
    sweep = [program, "sweep", "parts/sweep.toml"]
    subprocess.run(sweep, cwd=folder, env=environment, check=True, capture_output=True, timeout=60 * TIME_SCALE)

    (base / "busy").mkdir()
    lock = open(base / "busy/.run.lock", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock

