"""Faults that fully_shard and saves once had on a GPU, none of which changes a value: each held more memory than FSDP2, or
made training wait. They are planted again in a copy of the source, so that the tests against them are known to find them."""
import contextlib
import dataclasses

from harness import expect

PARAM_GROUP = "src/parallel/fsdp/param_group.cpp"
COMM_CONTEXT = "src/parallel/fsdp/comm_context.cpp"
FSDP_STATE = "src/parallel/fsdp/fsdp_state.cpp"
DEVICE_COPIES = "src/checkpoint/device_copies.cpp"

FREES_AT_ONCE = "phase_ == Phase::kForward && context_->last_of_forward != this"


@dataclasses.dataclass
class Fault:
    """`changes`: for each file what stands in it once, and what takes its place. `report`: part of what the test that finds
    it, of that many ranks, says."""

    changes: dict
    ranks: int = 2
    report: str = "bytes gathered, bytes of reductions"


FAULTS = {
    "the last buffer of a forward lives through the loss": Fault(
        {
            PARAM_GROUP: (FREES_AT_ONCE, "phase_ == Phase::kForward"),
            FSDP_STATE: ("  context_->iter_forward_root = nullptr;\n  context_->release_retired();\n", "  context_->iter_forward_root = nullptr;\n"),
        }
    ),
    "a backward keeps one buffer more": Fault({PARAM_GROUP: (FREES_AT_ONCE, "context_->last_of_forward != this")}),
    "the inputs of two reduce-scatters are there at once": Fault(
        {COMM_CONTEXT: ("    advance_reductions();\n    auto reduction = make();\n", "    auto reduction = make();\n    advance_reductions();\n")}
    ),
    "the outputs of reduce-scatters wait for the end of backward": Fault(
        {COMM_CONTEXT: ("if (all_reduced_.size() >= 2 && !reduction->scatters_in_place()) {", "if (false) {")}, ranks=4
    ),
    "each tensor of a save makes training wait": Fault(
        {DEVICE_COPIES: ("to.copy_(from, /*non_blocking=*/true);", "to.copy_(from, /*non_blocking=*/false);")},
        report="SimulatedSaver.CopiesBesideTrainingWithoutStoppingIt",
    ),
}


def with_fault(folder, path, change):
    """Returns the text of a file with the fault in it."""
    text = (folder / path).read_text()
    old, new = change
    expect(text.count(old) == 1, f"{path} has not exactly once\n{old}")
    return text.replace(old, new)


@contextlib.contextmanager
def planted(folder, changes):
    """Holds the faults in the files of a folder as long as the block runs."""
    sound = {path: (folder / path).read_text() for path in changes}
    faulty = {path: with_fault(folder, path, change) for path, change in changes.items()}
    try:
        for path, text in faulty.items():
            (folder / path).write_text(text)
        yield
    finally:
        for path, text in sound.items():
            (folder / path).write_text(text)
