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


@case(90, mesh=list(MESHES), wide=["replicated"])
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


MEMORY = [SHARD, 2, *SAVE, "--debug.memory_check_freq", 1]
MOMENT = "optimizer.state.layers.0.feed_forward.w2.weight.exp_avg_sq"
SHARDED = {"weight": "layers.1.attention.wo.weight", "moment": MOMENT}


def memory_job(context, every, rows, exit_code=0, key=MOMENT):
    """Runs two ranks, of which rank 0 flips a bit of a shard in its memory after each of the `rows` it writes. Returns
    the output, and the words that start the same run."""
    run(context, 2, ["--config", write_job(context, "straight", steps=5), *MEMORY, "--checkpoint.interval", 1], name="s")
    rules = []
    for row in rows:
        # A row that is written again has the same state: steps are counted as in the run without faults.
        step = row if row < 4 else row - 1
        pattern = context.folder / f"pattern-{row}"
        state = read_state(context.dump("straight") / f"checkpoint/step-{step}")
        pattern.write_bytes(state[key].numpy().tobytes()[:KEPT])
        rules.append(f"{at_row(row)} do=flip:{pattern}")
    words = ["--config", write_job(context, "run", steps=5), *MEMORY, "--checkpoint.interval", every]
    env = faults(context, *rules) | {"TITAN_HOST_ARENA": "0"}
    job = run(context, 2, words, name="flipped", exit_code=exit_code, env=env)
    return job, words


def expect_rows_of_straight(context, what):
    rows = [rows_by_step(context.dump(name) / "metrics.jsonl", exact=True) for name in ("run", "straight")]
    check_identical(*rows, EQUAL, what)


@case(90, of=list(SHARDED), wide=["moment"])
def changed_bit_in_a_shard(context, of):
    """debug.memory_check_freq: no other rank has a copy. The tensor is named, the step is not saved, and the run goes
    back in the same process and ends with the rows of a run that was never disturbed."""
    key = SHARDED[of]
    job, _ = memory_job(context, 2, [3], key=key)
    found = [line for line in job.text().splitlines() if "bits in memory have changed that nothing wrote" in line]
    expect(len(found) == 1, f"{len(found)} lines\n{job.tail()}")
    expect("step 4: " in found[0] and f": {named(key)} on rank 0 (" in found[0], found[0])
    expect("back at step 2 of 4: the steps after it run again, on the same data" in job.text(), job.tail())
    events = [(row["event"], row["step"]) for row in read_rows(context.dump("run") / "events.jsonl")]
    at = events.index(("memory_fault", 4))
    expect(events[at + 1] == ("rollback", 2) and events[-1][0] == "end", f"events: {events}")
    expect_rows_of_straight(context, of)


@case(90)
def changed_bit_before_a_save(context):
    """The checkpoint of the step after which the bit changed holds it: it is moved aside, and the one before is used."""
    job, _ = memory_job(context, 1, [2])
    folder = context.dump("run") / "checkpoint"
    expect(f"It is now {folder}/step-2.refused: no run resumes from it" in job.text(), job.tail())
    expect("back at step 1 of 3: " in job.text(), job.tail())
    expect_rows_of_straight(context, "saved with a changed bit")


@case(90)
def bits_change_twice(context):
    """The second fault of one rank ends the run, so that somebody tests the machine; the same command resumes."""
    job, words = memory_job(context, 2, [3, 4], exit_code=3)
    expect("because the memory of one rank has changed a second time" in job.text(), job.tail())
    run(context, 2, words, name="resumed")
    expect_rows_of_straight(context, "resumed")


@case(60)
def changed_bit_without_any_checkpoint(context):
    """The run ends with exit code 3, and says that the same command starts from the beginning."""
    run(context, 1, ["--config", write_job(context, "straight", steps=3), *SAVE, "--checkpoint.interval", 1], name="s")
    pattern = context.folder / "pattern"
    pattern.write_bytes(read_state(context.dump("straight") / "checkpoint/step-1")[MOMENT].numpy().tobytes()[:KEPT])
    words = ["--config", write_job(context, "run", steps=3), "--debug.memory_check_freq", 2]
    job = run(context, 1, words, exit_code=3, env=flips(context, 1, pattern))
    expect("step 2: bits in memory have changed" in job.text() and named(MOMENT) in job.text(), job.tail())
    expect("starts from the beginning: there is no good checkpoint" in job.text(), job.tail())
