"""Checks that TorchTitan and transformers ($TITAN_PEER_PYTHON) still give the answers in tests/golden."""
import golden
from checkpoint_tools import read_state
from harness import Job, case, expect, has_module, peer_python, skip

# Another machine sums in other orders: as much as cases_checkpoint_peers.py allows between the program and TorchTitan.
NEAR = {"loss": 2e-5, "losses": 2e-5, "grad_norm": 1e-4, "logits": 1e-4}
# The checkpoints that come with some answers.
CHECKPOINTS = {"resume": ["1", "2"], "tensor": ["tensor"], "context": ["context"], "stages": ["stages"],
               "qwen3_torchtitan": ["qwen3_seed", "qwen3_1", "qwen3_2"]}
PARTS = ["config", "batches", "debug_toml", "tensorboard", "resume", "tensor", "context", "stages", "float8", "pipeline", "transformers", "generate", "config_variants"]
PARTS += ["qwen3_torchtitan", "qwen3_full", "qwen3_after_us", "qwen3_transformers", "qwen3_exports"]


def check_same(found, committed, where, tolerance=0.0):
    """Checks that two JSON values are equal, numbers within the tolerance of their key."""
    if isinstance(committed, dict):
        expect(isinstance(found, dict) and list(found) == list(committed), f"{where}: {found}, committed {committed}")
        for key in committed:
            check_same(found[key], committed[key], f"{where}.{key}", NEAR.get(key, tolerance))
    elif isinstance(committed, list) and tolerance:
        expect(len(found) == len(committed), f"{where}: {found}, committed {committed}")
        for index, (mine, theirs) in enumerate(zip(found, committed)):
            check_same(mine, theirs, f"{where}[{index}]", tolerance)
    elif isinstance(committed, float) and tolerance:
        expect(abs(found - committed) <= tolerance, f"{where}: {found}, committed {committed}")
    else:
        expect(repr(found) == repr(committed), f"{where}: {found!r}, committed {committed!r}")


@case(400, tier="long", part=PARTS)
def golden_is_current(context, part):
    """make.py gives the committed answers again."""
    python = peer_python("torchtitan")
    if not has_module(python, "transformers"):
        skip(f"transformers beside torchtitan in {python}")
    made = context.folder / "golden"
    command = [python, golden.GOLDEN / "make.py", "--program", context.program, "--output", made, part]
    job = Job(command, context.folder / "logs", "make")
    code = job.wait(390)
    expect(code == 0, f"make.py failed with {code}\n{job.tail(40)}")
    check_same(golden.answers(part, made), golden.answers(part), part)
    for kind in CHECKPOINTS.get(part, []):
        check_same_checkpoint(context, made, kind)


def check_same_checkpoint(context, made, kind):
    """Checks that tensors are as close as those of two machines, and the rest equal."""
    import torch

    found, committed = (
        read_state(golden.unpack_checkpoint(kind, context.dump(f"{name}{kind}"), folder))
        for name, folder in (("made", made), ("committed", golden.GOLDEN))
    )
    expect(set(found) == set(committed), f"resume_{kind}: other keys: {sorted(set(found) ^ set(committed))}")
    for key, value in committed.items():
        same = golden.near(found[key], value) if torch.is_tensor(value) else found[key] == value
        expect(same, f"resume_{kind}: {key} is {found[key]}, committed {value}")
