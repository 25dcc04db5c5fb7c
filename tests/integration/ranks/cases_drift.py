"""Tests that copies of weights and moments which differ between ranks are noticed: one bit changes in memory."""
import re

from checkpoint_tools import SAVE, read_state, steps_of
from fixtures import write_job
from harness import at_row, case, check_identical, expect, faults, read_rows, rows_by_step, run

SHARD, REPLICATE = ("--parallelism.data_parallel_shard_degree", "--parallelism.data_parallel_replicate_degree")
# name -> ranks, words, the tensor of rank 0 that is changed, what is said of it
MESHES = {
    "hybrid": (4, [REPLICATE, 2, SHARD, 2], "layers.1.attention.wo.weight", "rank 2 differs from rank 0; either may be"),
    "replicated": (3, [REPLICATE, 3, SHARD, 1], "optimizer.state.layers.0.feed_forward.w2.weight.exp_avg", "rank 0 differs from ranks 1, 2"),
    "tensor": (2, ["--parallelism.tensor_parallel_degree", 2], "layers.0.ffn_norm.weight", "rank 1 differs from rank 0; either may be"),
}  # fmt: skip
EQUAL = ("loss", "grad_norm", "lr", "tokens_seen")
KEPT = 256  # bytes of the tensor that are looked for in memory: as many as a norm's weight has


def words_of(context, mesh, name, every):
    return ["--config", write_job(context, name, steps=4), *MESHES[mesh][1], *SAVE, "--checkpoint.interval", every]


def named(key):
    """Returns how messages call the tensor that checkpoints store under `key`."""
    moment = re.fullmatch(r"optimizer\.state\.(.*)\.(\w+)", key)
    return f"{moment[2]} of {moment[1]}" if moment else key


@case(90, mesh=list(MESHES))
def changed_bit_in_memory(context, mesh):
    """It is found before the next save; the tensor and the ranks are named. The last checkpoint is from before, and a
    start from it ends with the rows of a run that was never disturbed."""
    ranks, _, key, said = MESHES[mesh]
    run(context, ranks, words_of(context, mesh, "straight", every=1), name="straight")
    state = read_state(context.dump("straight") / "checkpoint/step-3")
    pattern = context.folder / "pattern"
    pattern.write_bytes(state[key].numpy().tobytes()[:KEPT])

    env = flips(context, 3, pattern)
    job = run(context, ranks, words_of(context, mesh, "run", every=2), name="flipped", exit_code=3, env=env)
    folder = context.dump("run")
    found = [line for line in job.text().splitlines() if "ranks hold different copies of what must be equal" in line]
    expect(len(found) == 1, f"{len(found)} lines\n{job.tail()}")
    expect("step 4: " in found[0] and f"{named(key)} ({said}" in found[0], found[0])
    expect(f"resumes from {folder}/checkpoint/step-2" in found[0], found[0])
    expect(steps_of(folder / "checkpoint") == [2], f"saved: {steps_of(folder / 'checkpoint')}")
    events = [row["event"] for row in read_rows(folder / "events.jsonl")]
    expect(events[-2:] == ["drift", "drifted"], f"events: {events}")

    run(context, ranks, words_of(context, mesh, "run", every=2), name="resumed")
    rows = [rows_by_step(context.dump(name) / "metrics.jsonl", exact=True) for name in ("run", "straight")]
    check_identical(*rows, EQUAL, f"{mesh}, resumed")


def flips(context, row, pattern):
    """Returns variables of a run in which rank 0 flips a bit of `pattern` in its memory after a row."""
    return faults(context, f"{at_row(row)} do=flip:{pattern}") | {"TITAN_HOST_ARENA": "0"}


@case(60)
def changed_bit_without_checkpoints(context):
    """debug.checksum_freq finds it without saves, at the first of its steps."""
    ranks, mesh, key, said = MESHES["replicated"]
    run(context, ranks, words_of(context, "replicated", "straight", every=2), name="straight")
    pattern = context.folder / "pattern"
    pattern.write_bytes(read_state(context.dump("straight") / "checkpoint/step-2")[key].numpy().tobytes()[:KEPT])
    words = ["--config", write_job(context, "run", steps=4), *mesh, "--debug.checksum_freq", 3]
    job = run(context, ranks, words, exit_code=3, env=flips(context, 2, pattern))
    expect("step 3: ranks hold different copies of what must be equal: " in job.text(), job.tail())
    expect(f"{named(key)} ({said}" in job.text(), job.tail())
    expect("There is no checkpoint: the same command starts from the beginning" in job.text(), job.tail())
