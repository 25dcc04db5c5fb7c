"""Tests faults around the steps: a stop that one rank gets, or waits for data with, a clock that jumps, no token to train."""
import math
import pathlib
import re
import resource
import signal

from cases_chat_training import TEMPLATE, write_chats
from cases_failure import FOREVER, check_reason
from cases_jobs import EQUAL_KEYS, Stopped, is_pending
from checkpoint_tools import SAVE, check_intact
from fixtures import write_job
from harness import (
    Gate, at_row, case, check_identical, expect, faults, kill, rows_by_step, run, start, wait_until,
)  # fmt: skip


@case(90)
def one_rank_is_asked_to_stop(context):
    """A signal to one of two ranks is one to the job: both save after the step, and the same command goes on."""
    stopped = Stopped(context, 2)
    stopped.start(at_row(6))
    pid = stopped.job.ranks(context.program)[1]
    kill(pid, signal.SIGUSR1)
    wait_until(lambda: not is_pending(pid, signal.SIGUSR1), 30, "rank 1 did not take the signal")
    stopped.gate.open()
    stopped.job.wait()
    last = max(rows_by_step(stopped.metrics))
    expect(last in (7, 8), f"stopped after step {last}")  # rank 1 may have begun step 7 before the signal
    stopped.check(last, [last])


@case(90)
def stop_in_a_data_wait(context):
    """Ranks that are asked to stop while one of them waits for its data save once the data is there."""
    gate, now = Gate(context, "read"), context.folder / "now"
    words = ["--config", write_job(context, "run", steps=FOREVER), *SAVE, "--checkpoint.interval", FOREVER]
    env = faults(context, f"{at_row(3)} do=log:{now}", gate.rule(f"rank=1 call=read path=*/corpus.jsonl after={now}"))
    job = start(context, 2, words, env=env)
    gate.signal(context, job)
    code = job.wait()
    expect(code == 75, f"exit code {code}, expected 75\n{job.tail()}")
    last = max(rows_by_step(context.dump("run") / "metrics.jsonl"))
    saved = [path.name for path in (context.dump("run") / "checkpoint").iterdir()]
    expect(saved == [f"step-{last}"], f"stopped after step {last}, and saved are {saved}")
    check_intact(context.dump("run") / "checkpoint" / saved[0])


@case(90)
def clock_that_jumps(context):
    """A calendar clock that goes back by a year, and on by twenty, changes no row and no choice of a checkpoint."""
    jumps = [f"{at_row(2)} do=clock:-34560000", f"{at_row(5)} do=clock:630720000"]
    save = [*SAVE, "--checkpoint.interval", 1, "--checkpoint.keep_latest_k", 2, "--checkpoint.async_mode", "async"]
    words = ["--config", write_job(context, "run", steps=8), "--lr_scheduler.total_steps", 12]
    run(context, 2, [*words, *save], name="jumping", env=faults(context, *jumps))
    kept = sorted(path.name for path in (context.dump("run") / "checkpoint").iterdir())
    expect(kept == ["step-6", "step-7", "step-8"], f"the checkpoints are {kept}")  # the last save removes none
    job = run(context, 2, [*words, *save, "--training.steps", 12], name="again", env=faults(context, *jumps))
    expect("/checkpoint/step-8\n" in job.text(), job.tail())
    run(context, 2, ["--config", write_job(context, "still", steps=12)], name="still")
    found, expected = (rows_by_step(context.dump(name) / "metrics.jsonl", exact=True) for name in ("run", "still"))
    check_identical(found, expected, EQUAL_KEYS, "with a clock that jumps")


@case(60)
def conversations_without_a_trained_token(context):
    """No batch is without a trained token: conversations whose answers are cut off are left out, with their number, so
    that every loss is finite."""
    long = "import torch " * 200
    talks = [[{"role": "user", "content": long}, {"role": "assistant", "content": "Never seen."}]] * 8
    talks += [[{"role": "user", "content": "Which way?"}, {"role": "assistant", "content": "Left."}]]
    (context.folder / "template.jinja").write_text(TEMPLATE)
    data = write_chats(context.folder / "talks.jsonl", talks)
    words = ["--config", write_job(context, "run", steps=4), "--training.dataset", "chat", "--training.dataset_path", data]
    words += ["--chat.chat_template", context.folder / "template.jinja", "--chat.too_long", "cut", "--training.local_batch_size", 1]
    job = run(context, 2, words)
    check_reason(job.text(), r"9 conversations in 1 row of 65 tokens, .*; 8 without an answer left, dropped")
    rows = rows_by_step(context.dump("run") / "metrics.jsonl").values()
    expect(len(rows) == 4 and all(math.isfinite(row[key]) for row in rows for key in ("loss", "max_loss", "grad_norm")), f"{rows}")


HELD_OUT = ["--validation.enable", "--validation.dataset", "c4_test", "--validation.freq", 6, "--validation.steps", 1]
HELD_OUT += ["--validation.local_batch_size", 2048, "--validation.seq_len", 64]


@case(90)
def no_memory_for_validation(context):
    """A rank without memory for a validation pass says after which step, and how much; the checkpoints stay whole."""
    words = ["--config", write_job(context, "run", steps=8), *SAVE, "--checkpoint.interval", 4]
    words += ["--validation.dataset_path", context.fixtures / "corpus.jsonl"]
    run(context, 2, [*words, "--training.steps", 4, "--lr_scheduler.total_steps", 8])
    gate = Gate(context, "row")
    # Without the arena for tensors: it has its addresses from the start. malloc has one arena, since another one, for the
    # thread that reads the data, takes 128 MiB of addresses; without these, malloc gives that thread a page for each word.
    env = {**faults(context, gate.rule(at_row(1))), "TITAN_HOST_ARENA": "0", "MALLOC_ARENA_MAX": "1"}
    job = start(context, 2, [*words, *HELD_OUT], env=env, name="resumed")
    gate.wait(job)
    # Step 6 has room in 40 MiB more, twenty times what the parameters take. Its validation, the first of this start,
    # takes 200 MiB: its batch is 1,024 times a step's, and one tensor of its hidden states has 32 MiB. No save is due
    # with it.
    pid = job.ranks(context.program)[1]
    used = int(re.search(r"^VmSize:\s*(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)[1])
    resource.prlimit(pid, resource.RLIMIT_AS, (used * 1024 + (40 << 20), resource.RLIM_INFINITY))
    gate.open()
    code = job.wait()
    expect(code == 1, f"exit code {code}, expected 1\n{job.tail()}")
    reason = r"rank 1: out of memory in step 6: there is no room for a tensor of .* \(or validation\.local_batch_size\)"
    check_reason(job.errors(), reason)
    saved = sorted(path.name for path in (context.dump("run") / "checkpoint").iterdir())
    expect(saved == ["step-4"], f"the checkpoints are {saved}")
    check_intact(context.dump("run") / "checkpoint" / "step-4")
