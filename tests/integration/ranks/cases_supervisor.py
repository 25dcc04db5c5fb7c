"""Tests --max-restarts and `supervise`: which ends are followed by another start, from which step and with how many ranks."""
import re
import signal

from cases_jobs import EQUAL_KEYS, FULL_CHECKPOINTS
from fixtures import write_job
from harness import (
    Gate, Job, at_row, case, check_identical, expect, faults, kill, launcher_words, read_rows, relative_distance, rows_by_step, run,
    start, wait_until,
)  # fmt: skip

SAVE = [*FULL_CHECKPOINTS, "--checkpoint.interval", 5]
STEPS = 12


def straight_rows(context, words=(), ranks=2):
    """Returns the rows of a run that nothing disturbs."""
    run(context, ranks, ["--config", write_job(context, "straight", steps=STEPS), *words], name="straight")
    return rows_by_step(context.dump("straight") / "metrics.jsonl", exact=True)


def supervised(context, restarts, words, rules, exit_code=0, name="run", ranks=2):
    """Runs a job with --max-restarts in which the rules' faults happen. Returns it."""
    words = ["--max-restarts", restarts, "--config", write_job(context, name, steps=STEPS), *SAVE, *words]
    env = faults(context, *rules) if rules else None
    return run(context, ranks, words, name=name, exit_code=exit_code, env=env, timeout_s=120)


def lines_of(job):
    """Returns the lines of the launcher about starts."""
    return [line for line in job.errors().splitlines() if re.match(r"titan-train: (start \d|gives up|the next start)", line)]


def check_lines(job, patterns):
    lines = lines_of(job)
    fits = len(lines) == len(patterns) and all(map(re.fullmatch, patterns, lines))
    expect(fits, "found\n" + "\n".join(lines) + "\nexpected\n" + "\n".join(patterns) + "\n" + job.tail(30))


def restarts_of(context, name="run"):
    return [row for row in read_rows(context.dump(name) / "events.jsonl") if row["event"] in ("restart", "gave_up")]


@case(120)
def restarted_by_nproc(context):
    """Ranks that are killed at a step and in a save are started again: rows, to the bit, and code of an undisturbed run."""
    straight = straight_rows(context)
    once = [context.folder / f"killed-{i}" for i in range(2)]
    rules = [f"{at_row(8)} do=kill once={once[0]}", f"rank=1 call=write path=*/step-10.tmp/* do=kill once={once[1]}"]
    job = supervised(context, 3, [], rules)
    begin = r"titan-train: start {} of at most 4: rank {} was ended by SIGKILL after step {}; resuming from step 5 with 2 ranks "
    check_lines(job, [
        begin.format(2, 0, 7) + r"\(2 steps lost\)",  # it was killed before it could write row 8
        begin.format(3, 1, r"\d+") + r"\(\d steps lost\), in 1 s",
    ])  # fmt: skip
    check_identical(rows_by_step(context.dump("run") / "metrics.jsonl", exact=True), straight, EQUAL_KEYS, "restarted")
    found = [[row[key] for key in ("event", "start", "exit_code", "rank", "resumed_step", "ranks", "wait_seconds")] for row in restarts_of(context)]
    expect(found == [["restart", 2, 137, 0, 5, 2, 0], ["restart", 3, 137, 1, 5, 2, 1]], found)
    last = read_rows(context.dump("run") / "metrics.jsonl")[-1]
    expect(last["lost_redone_seconds"] > 0 and last["lost_down_seconds"] > 1, last)


@case(60)
def restarted_before_the_first_save(context):
    """A run that is killed before it has saved begins anew, also after its last row; its history and lost time remain."""
    straight = straight_rows(context)
    rules = [f"rank=0 call=rename+mkdir+open path=*/checkpoint/* do=kill once={context.folder / 'killed'}"]
    job = supervised(context, 1, ["--checkpoint.interval", 1000], rules)
    check_lines(job, [rf"titan-train: start 2 of at most 2: rank 0 was ended by SIGKILL after step {STEPS}; beginning anew with 2 ranks \({STEPS} steps lost\), in 1 s"])
    check_identical(rows_by_step(context.dump("run") / "metrics.jsonl", exact=True), straight, EQUAL_KEYS, "begun anew")
    events = [row["event"] for row in read_rows(context.dump("run") / "events.jsonl")]
    expect(events == ["start", "restart", "start", "save", "end"], events)
    last = read_rows(context.dump("run") / "metrics.jsonl")[-1]
    expect(last["lost_redone_seconds"] > 0 and last["lost_down_seconds"] > 1, last)


@case(60)
def gives_up(context):
    """A run that is killed at its first row in every start is given up after three, with the reason and that code."""
    job = supervised(context, 9, [], [f"{at_row(1)} do=kill"], exit_code=137)
    begin = r"titan-train: start {} of at most 10: rank 0 was ended by SIGKILL before its first row; beginning anew with 2 ranks \(0 steps lost\), in {} s"
    end = r"titan-train: gives up after start 3 of at most 10: rank 0 was ended by SIGKILL before its first row; 3 starts in a row saved no step at all"
    check_lines(job, [begin.format(2, 1), begin.format(3, 2), end])
    expect([row["event"] for row in restarts_of(context)] == ["restart", "restart", "gave_up"], restarts_of(context))


@case(60)
def not_restarted(context):
    """Wrong input and diverged training are not started again; without the flag nothing is."""
    kinds = {
        "input": (2, ["--training.dataset_path", "/nonexistent/corpus.jsonl"], []),
        "diverged": (4, ["--optimizer.lr", "1e38", "--lr_scheduler.warmup_steps", 0], []),
        "without": (137, [], [f"{at_row(2)} do=kill"]),
    }
    for name, (code, words, rules) in kinds.items():
        job = supervised(context, 0 if name == "without" else 3, words, rules, exit_code=code, name=name)
        expect(not lines_of(job), f"{name}: {job.tail()}")


@case(60, processors=1)
def restarts_that_are_refused(context):
    """--max-restarts and --min-nproc with settings that cannot work are refused before a rank starts."""
    config = ["--config", write_job(context, "refused")]
    saves, batch = ["--checkpoint.enable"], ["--training.global_batch_size", 6]
    kinds = [
        (1, ["--max-restarts", 2, *saves], "--max-restarts goes with --nproc N"),
        (2, ["--min-nproc", 1, *saves], "--min-nproc goes with --max-restarts K"),
        (2, ["--max-restarts", -1, *saves], '--max-restarts: expected an integer, at least 0; found "-1"'),
        (2, ["--max-restarts", 2], "checkpoint.enable is false: set it to true"),
        (2, ["--max-restarts", 2, *saves, "--checkpoint.load_only"], "checkpoint.load_only is true"),
        (2, ["--max-restarts", 2, *saves, "--checkpoint.exclude_from_loading", "dataloader"], "leaves parts of it out"),
        (2, ["--max-restarts", 2, "--min-nproc", 3, *saves], "--min-nproc 3: expected at most --nproc, 2"),
        (2, ["--max-restarts", 2, "--min-nproc", 1, *saves], "set training.global_batch_size"),
        (2, ["--max-restarts", 2, "--min-nproc", 1, *saves, "--training.global_batch_size", 4], 'set training.data_order = "elastic"'),
        (3, ["--max-restarts", 2, "--min-nproc", 2, *saves, *batch, "--training.data_order", "elastic"], "fits no number from 2 to 2"),
    ]
    for index, (ranks, words, text) in enumerate(kinds):
        words = [*config, *words, "--training.local_batch_size", 2 if ranks == 3 else 1]
        job = run(context, ranks, words, name=f"refused-{index}", exit_code=2)
        expect(text in job.errors() and not context.dump("refused").exists(), f"no \"{text}\":\n{job.tail()}")


@case(120)
def restarted_after_a_hang(context):
    """Ranks of which one hangs end after comm.train_timeout_seconds, and are started again."""
    straight = straight_rows(context)
    gate = Gate(context, "hang")  # which is never opened
    words = ["--comm.train_timeout_seconds", 8, "--comm.init_timeout_seconds", 300]
    job = supervised(context, 9, words, [gate.rule(at_row(8))])
    expect(re.fullmatch(r"titan-train: start 2 of at most 10: rank.* after step 8; resuming from step 5 with 2 ranks \(3 steps lost\)", lines_of(job)[0]), job.tail())
    check_identical(rows_by_step(context.dump("run") / "metrics.jsonl", exact=True), straight, EQUAL_KEYS, "restarted")


@case(60)
def stopped_between_starts(context):
    """After SIGTERM to the launcher, between two starts, no further one follows."""
    words = ["--max-restarts", 9, "--config", write_job(context, "run", steps=STEPS), *SAVE]
    job = start(context, 2, words, env=faults(context, f"{at_row(1)} do=kill"))
    wait_until(lambda: "start 2 of at most 10" in job.errors(), 60, "there was no restart")
    kill(job.process.pid, signal.SIGTERM)
    code = job.wait()
    # If this process was held up meanwhile, the second start has begun: it ends by the signal or by the fault.
    expect(code in (143, 137), f"exit code {code}\n{job.tail()}")
    expect("start 3 of at most 10" not in job.errors() and "gives up" not in job.errors(), job.tail())


@case(120)
def restarted_with_fewer_ranks(context):
    """A rank that is killed in two starts in a row is left out with --min-nproc; the global batches stay the same."""
    batch = ["--training.dataset", "jsonl", "--training.global_batch_size", 4, "--training.local_batch_size", 1]
    batch += ["--training.mixed_precision_param", "float32"]
    straight = straight_rows(context, batch)
    job = supervised(context, 5, ["--min-nproc", 1, *batch], ["rank=1 call=write path=*/step-10.tmp/* do=kill"])
    begin = r"titan-train: start {} of at most 6: rank 1 was ended by SIGKILL after step \d+; resuming from step 5 with {} \(\d steps lost\)"
    check_lines(job, [
        begin.format(2, "2 ranks"),
        r"titan-train: the next start has 1 rank in place of 2: rank 1 ended by itself in 2 starts in a row",
        begin.format(3, "1 rank") + ", in 1 s",
    ])  # fmt: skip
    expect([row["ranks"] for row in restarts_of(context)] == [2, 1], restarts_of(context))
    shrunk = rows_by_step(context.dump("run") / "metrics.jsonl")
    expect(sorted(shrunk) == sorted(straight), f"steps {sorted(shrunk)}")
    for step in straight:  # as in elastic_smaller_world: the same sums in another grouping
        distance = relative_distance(shrunk[step]["loss"], float(straight[step]["loss"]))
        expect(distance < 1e-4, f"step {step}: loss {shrunk[step]['loss']}, undisturbed {straight[step]['loss']}")


def supervise(context, options, command, env=None, name="run"):
    return Job([context.program, "supervise", *options, "--", *command], context.folder / "logs", name, env)


@case(120)
def restarted_by_supervise(context):
    """mpirun's command is started again after one of its ranks was killed: rows, to the bit, and code of an undisturbed run."""
    straight = straight_rows(context)
    words = ["--config", write_job(context, "run", steps=STEPS), *SAVE]
    env = faults(context, f"rank=1 call=write path=*/step-10.tmp/* do=kill once={context.folder / 'killed'}")
    job = supervise(context, ["--max-restarts", 2], [*launcher_words("mpirun", 2), context.program, *words], env)
    code = job.wait(120)
    expect(code == 0, f"exit code {code}\n{job.tail()}")
    # The code is that of the killed rank, or of the one that has noticed it.
    check_lines(job, [r"titan-train: start 2 of at most 3: the ranks ended with exit code (137|3) after step \d+; resuming from step 5 \(\d steps lost\)"])
    check_identical(rows_by_step(context.dump("run") / "metrics.jsonl", exact=True), straight, EQUAL_KEYS, "restarted")
    found = [[row.get(key) for key in ("event", "start", "resumed_step", "ranks")] for row in restarts_of(context)]
    expect(found == [["restart", 2, 5, None]], found)


@case(90)
def supervise_passes_on(context):
    """A stop reaches the command, whose code is that of `supervise`; wrong input is not started again; a command that ends
    before the first save in every start is given up."""
    words = ["--config", write_job(context, "run", steps=STEPS), *SAVE]
    gate = Gate(context, "third-row")
    job = supervise(context, [], [context.program, *words], faults(context, gate.rule(at_row(3))), "stopped")
    gate.wait(job)
    kill(job.process.pid, signal.SIGTERM)
    wait_until(lambda: "SIGTERM" in job.errors() + job.text(), 60, "the command did not get SIGTERM")
    gate.open()
    code = job.wait()
    expect(code == 75 and not lines_of(job), f"stopped: exit code {code}\n{job.tail()}")
    job = supervise(context, [], [context.program, *words, "--training.dataset_path", "/nonexistent/corpus.jsonl"], name="input")
    code = job.wait()
    expect(code == 2 and not lines_of(job), f"input: exit code {code}\n{job.tail()}")
    words = ["--config", write_job(context, "killed", steps=STEPS), *SAVE]
    job = supervise(context, ["--max-restarts", 9], [context.program, *words], faults(context, f"{at_row(1)} do=kill"), "killed")
    code = job.wait()
    expect(code == 137 and len(lines_of(job)) == 3 and lines_of(job)[-1].startswith("titan-train: gives up after start 3"), job.tail())


@case(30, processors=1)
def supervise_refuses(context):
    """A command that it cannot look after is refused before anything starts."""
    job = ["--config", write_job(context, "refused")]
    own = context.program
    kinds = [
        ([], "COMMAND is required", {}),
        (["mpirun", "-n", 2, "train.sh"], "no word of the command is titan-train", {}),
        ([own, *job], "checkpoint.enable is false: set it to true", {}),
        ([own, *job, "--checkpoint.enabel"], "checkpoint.enable", {}),
        ([own, "--nproc", 2, "--max-restarts", 1, *job, "--checkpoint.enable"], "has --max-restarts itself", {}),
        ([own, "sweep", "sweep.toml"], "expected a training run", {}),
        (["no-such-launcher", own, *job, "--checkpoint.enable"], "cannot start no-such-launcher: No such file or directory", {}),
        ([own, *job, "--checkpoint.enable"], "has started this process as a rank", {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}),
    ]
    for index, (command, text, env) in enumerate(kinds):
        refused = supervise(context, [], command, env, f"refused-{index}")
        code = refused.wait()
        expect(code == 2 and text in refused.errors() and not context.dump("refused").exists(), f'no "{text}", {code}:\n{refused.tail()}')
