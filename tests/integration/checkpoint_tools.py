"""Shared by the checkpoint cases: runs that save, a step that changes nothing, and a reader of checkpoint folders.

The reader goes through the files piece by piece with pickle, zipfile and torch.load. It shares no code with the
program, nor with the planner of torch.distributed.checkpoint, which some cases test.
"""
import io
import math
import pickle
import zipfile

from harness import Failure, expect, run

SAVE = ["--checkpoint.enable", "--checkpoint.no-last_save_model_only"]
FP32 = ["--training.mixed_precision_param", "float32"]

# No dimension that 2, 3 and 4 ranks share evenly: 149 hidden rows, 14 of a key, 2,050 of the vocabulary, 56 columns.
UNEVEN_ARGS = {"dim": 56, "n_heads": 4, "n_kv_heads": 1, "multiple_of": 1, "vocab_size": 2050, "n_layers": 2}
UNEVEN = [word for key, value in UNEVEN_ARGS.items() for word in (f"--model.args.{key}", value)]

# One step after a load that leaves every weight and moment unchanged, so that the program's save shows what it read.
# The gradient is scaled to 1e-30, and 1 - beta is 1e-16, far below fp32's 6e-8 of the old value. A zero stays zero, as
# 1e-46 underflows, except for its sign: -0 + 0 is 0. The update, 1e-30 / 1e-16 * m / (sqrt(v) * 1e8), is below 1e-20.
STILL = ["--optimizer.lr", "1e-30", "--optimizer.weight_decay", "0", "--training.max_norm", "1e-30"]
STILL += ["--optimizer.beta1", "0.9999999999999999", "--optimizer.beta2", "0.9999999999999999"]


def train(context, ranks, words, name="run", timeout_s=60, exit_code=0, env=None):
    """Runs the program at `ranks` ranks that it starts itself."""
    return run(context, ranks, words, name=name, timeout_s=timeout_s, exit_code=exit_code, env=env)


def steps_of(folder):
    """Returns the steps with a complete checkpoint, ascending."""
    return sorted(int(path.parent.name[5:]) for path in folder.glob("step-*/.metadata") if path.parent.name[5:].isdigit())


def load_item(data):
    import torch

    return torch.load(io.BytesIO(data), weights_only=False)


def items(folder):
    """Returns the metadata, and (key, offsets or None, archive bytes) of every piece that it names."""
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    files = {}
    pieces = []
    for index, info in metadata.storage_data.items():
        if info.relative_path not in files:
            files[info.relative_path] = (folder / info.relative_path).read_bytes()
        data = files[info.relative_path][info.offset : info.offset + info.length]
        expect(len(data) == info.length, f"{folder}: {info.relative_path} ends within {index.fqn}")
        pieces.append((index.fqn, index.offset, data))
    return metadata, pieces


def read_state(folder):
    """Returns the full checkpoint as {key: tensor or value}."""
    import torch

    metadata, pieces = items(folder)
    state, filled = {}, {}
    for key, offsets, data in pieces:
        value = load_item(data)
        if offsets is None or not torch.is_tensor(value):
            state[key] = value
            continue
        entry = metadata.state_dict_metadata[key]
        whole = state.setdefault(key, torch.zeros(entry.size, dtype=entry.properties.dtype))
        box = tuple(slice(start, start + size) for start, size in zip(offsets, value.shape))
        whole[box] = value
        filled[key] = filled.get(key, 0) + value.numel()
    for key, count in filled.items():
        expect(count == state[key].numel(), f"{folder}: the pieces of {key} hold {count} of {state[key].numel()} values")
    expect(set(state) == set(metadata.state_dict_metadata), f"{folder}: keys without any piece")
    return state


def check_intact(folder):
    """Checks that every piece is there and that every record of it passes its checksum."""
    try:
        _, pieces = items(folder)
        for key, _, data in pieces:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                expect(archive.testzip() is None, f"{folder}: a record of {key} fails its checksum")
    except (zipfile.BadZipFile, OSError, EOFError, pickle.UnpicklingError, KeyError) as error:
        raise Failure(f"{folder} is torn: {type(error).__name__}: {error}") from error


def tensors_of(state):
    import torch

    return {key: value for key, value in state.items() if torch.is_tensor(value)}


def check_same_tensors(found, expected, what, but=lambda key: False, zero_has_sign=True):
    """Checks that both have the same tensors to the last bit; `but`: keys to skip."""
    import torch

    one, other = ({k: v for k, v in tensors_of(state).items() if not but(k)} for state in (found, expected))
    expect(one and set(one) == set(other), f"{what}: the keys differ: {sorted(set(one) ^ set(other))[:5]}")
    for key, tensor in other.items():
        mine = one[key]
        if not zero_has_sign:
            mine, tensor = mine + 0.0, tensor + 0.0
        same = (mine.dtype, mine.shape) == (tensor.dtype, tensor.shape)
        # Compared as bytes, so that NaN equals itself and -0 is not 0.
        same = same and torch.equal(mine.contiguous().view(-1).view(torch.uint8), tensor.contiguous().view(-1).view(torch.uint8))
        expect(same, f"{what}: {key} differs: {mine.dtype} {tuple(mine.shape)}, {(mine != tensor).sum() if mine.shape == tensor.shape else ''}")


def is_count(key):
    """True for optimizer.state.<P>.step, the one tensor that STILL changes."""
    return key.startswith("optimizer.state.") and key.endswith(".step")


def check_counts(state, steps, what):
    counts = {float(value) for key, value in state.items() if is_count(key)}
    expect(counts == {float(steps)}, f"{what}: optimizer steps are {counts}, expected {steps}")


def check_learned(state, what):
    """Checks that both kinds of moments are there and not only zeros: two empty states would be equal, too."""
    moments = {key: value for key, value in state.items() if key.endswith((".exp_avg", ".exp_avg_sq"))}
    expect(moments and all(value.abs().max() > 0 for value in moments.values()), f"{what}: moments are zero")
    expect(all(math.isfinite(value.double().sum()) for value in tensors_of(state).values()), f"{what}: not finite")
