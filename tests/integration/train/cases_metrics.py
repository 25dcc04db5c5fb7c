"""Tests what a run writes besides metrics.jsonl: TensorBoard's event files and tables, over restarts too."""
import csv
import json
import math
import signal
import subprocess

import golden
from fixtures import write_job
from harness import REFERENCE, at_row, case, expect, faults, peer_python, read_rows, run

SAVE = ["--checkpoint.enable", "--checkpoint.no-last_save_model_only", "--checkpoint.interval", "2"]
TENSORBOARD = ["--metrics.enable_tensorboard"]


def validation(context):
    words = ["--validation.enable", "--validation.dataset", "c4_test", "--validation.freq", "2", "--validation.steps", "1"]
    words += ["--validation.local_batch_size", "2", "--validation.seq_len", "64"]
    return [*words, "--validation.dataset_path", context.fixtures / "corpus.jsonl"]


def events_of(python, folder):
    """Returns what TensorBoard reads there."""
    command = [python, REFERENCE / "tensorboard_events.py", folder]
    job = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    expect(job.returncode == 0, f"TensorBoard cannot read {folder}:\n{job.stderr}")
    return json.loads(job.stdout)


def steps_of(events, tag):
    return [step for step, _ in events["scalars"][tag]]


@case(120, processors=1)
def tensorboard(context):
    """TensorBoard opens the files: TorchTitan's tags and no others except titan/, the numbers of metrics.jsonl, each
    step once, also after a kill and a resume; the configuration and the histograms are there."""
    python = peer_python("tensorboard")
    config, folder = write_job(context, "run", steps=6), context.dump("run")
    words = ["--config", config, *SAVE, *TENSORBOARD, "--metrics.gradient_histograms", *validation(context)]
    # It has written the row of step 5; the newest checkpoint is of step 4.
    kill = faults(context, at_row(5) + " do=kill")
    run(context, 1, words, name="killed", exit_code=-signal.SIGKILL, env=kill)
    run(context, 1, words, name="resumed")
    events = events_of(python, folder / "tb")
    ours = {tag for tag in events["scalars"] if tag.startswith("titan/")}
    expect(ours == {"titan/communication(s)", "titan/goodput(%)", "titan/validation_perplexity"}, f"tags of ours are {sorted(ours)}")
    theirs = set(golden.answers("tensorboard")["scalars"])
    expect(set(events["scalars"]) - ours == theirs, f"not TorchTitan's tags: {sorted(set(events['scalars']) - ours ^ theirs)}")
    rows = {row["step"]: row for row in read_rows(folder / "metrics.jsonl")}
    for tag, key in (("loss_metrics/global_avg_loss", "loss"), ("grad_norm", "grad_norm"), ("lr", "lr"), ("n_tokens_seen", "tokens_seen")):
        expect(steps_of(events, tag) == [1, 2, 3, 4, 5, 6], f"{tag} has the steps {steps_of(events, tag)}")
        for step, value in events["scalars"][tag]:
            same = math.isclose(value, rows[step][key], rel_tol=1e-6)  # a float32
            expect(same, f"step {step}: {tag} is {value}, {key} in metrics.jsonl {rows[step][key]}")
    expect(steps_of(events, "validation_metrics/loss") == [1, 2, 4, 6], f"validation: {events['scalars']['validation_metrics/loss']}")
    # Embedding, two layers, last norm, output.
    wanted = [[step, 5.0] for step in range(1, 7)]
    expect(events["histograms"] == {"grad_norm_by_layer": wanted}, f"the histograms are {events['histograms']}")
    texts = events["texts"].get("config/text_summary", [])
    expect([step for step, _ in texts] == [0, 4] and "seq_len = 64" in texts[0][1], f"the configurations are {texts}")


@case(120)
def tensorboard_of_all_ranks(context):
    """metrics.save_for_all_ranks: one folder per rank; ranks missing in a later start keep no repeated step."""
    python = peer_python("tensorboard")
    config, folder = write_job(context, "run", steps=4), context.dump("run")
    words = ["--config", config, *SAVE, *TENSORBOARD, "--training.global_batch_size", "4", "--training.data_order", "elastic"]
    every = [*words, "--metrics.save_for_all_ranks", "--metrics.save_tb_folder", "events"]
    run(context, 2, every, name="two")
    names = sorted(path.name for path in (folder / "events").iterdir())
    expect(names == ["rank_0", "rank_1"], f"the folders are {names}")
    first, second = (events_of(python, folder / "events" / name) for name in names)
    for tag in ("loss_metrics/global_avg_loss", "loss_metrics/global_max_loss", "grad_norm", "n_tokens_seen"):
        expect(first["scalars"][tag] == second["scalars"][tag], f"{tag} differs among ranks")
    (folder / "checkpoint/step-4").rename(context.folder / "gone")
    run(context, 1, every, name="one")
    expect(steps_of(events_of(python, folder / "events/rank_0"), "lr") == [1, 2, 3, 4], "rank 0 has not every step once")
    left = steps_of(events_of(python, folder / "events/rank_1"), "lr")
    expect(left == [1, 2], f"rank 1, which the second start does not have, has the steps {left}")


@case(60, processors=1)
def tables(context):
    """metrics.csv and validation.csv hold the rows of the JSON lines, each step once after a restart, always the same columns."""
    config, folder = write_job(context, "run", steps=5), context.dump("run")
    words = ["--config", config, *SAVE, "--metrics.enable_csv", *validation(context)]
    run(context, 1, words, name="killed", exit_code=-signal.SIGKILL, env=faults(context, at_row(4) + " do=kill"))
    run(context, 1, words, name="resumed")
    for name in ("metrics", "validation"):
        lines = read_rows(folder / f"{name}.jsonl")
        with open(folder / f"{name}.csv", newline="") as file:
            table = list(csv.DictReader(file))
        expect([int(row["step"]) for row in table] == [row["step"] for row in lines], f"{name}.csv has other steps")
        for row, line in zip(table, lines):
            expect(None not in row and None not in row.values(), f"{name}.csv: another number of cells in {row}")
            expect(set(line) <= set(row), f"{name}.csv lacks {sorted(set(line) - set(row))}")
            for key, value in line.items():
                found = "" if value is None else value if isinstance(value, str) else json.loads(row[key])
                expect(found == (value if value is not None else ""), f"{name}.csv, step {row['step']}: {key} is {row[key]}, not {value}")


@case(60, processors=1)
def goodput(context):
    """The time by cause adds up over starts: repeated steps, and the time that the run was down, are lost."""
    config, folder = write_job(context, "run", steps=6), context.dump("run")
    words = ["--config", config, *SAVE, *validation(context)]
    run(context, 1, words, name="killed", exit_code=-signal.SIGKILL, env=faults(context, at_row(6) + " do=kill"))
    before = {row["step"]: row for row in read_rows(folder / "metrics.jsonl")}
    job = run(context, 1, words, name="resumed")
    rows = {row["step"]: row for row in read_rows(folder / "metrics.jsonl")}
    causes = [key for key in rows[6] if key.startswith("lost_")]
    for row in rows.values():
        total = row["productive_seconds"] + sum(row[key] for key in causes)
        percent = 100 * row["productive_seconds"] / total
        expect(math.isclose(row["goodput_percent"], percent, rel_tol=1e-9), f"goodput {row['goodput_percent']} of {row}")
    for key in ("lost_redone_seconds", "lost_down_seconds"):
        expect(rows[4][key] == 0, f"{key} before the restart is {rows[4][key]}")
    redone = max(before)  # the last row that came out
    if redone > 4:
        wanted = before[redone]["unix_time"] - before[4]["unix_time"]
        expect(math.isclose(rows[5]["lost_redone_seconds"], wanted, rel_tol=1e-6), f"redone {rows[5]['lost_redone_seconds']}, not {wanted}")
    expect(rows[5]["lost_down_seconds"] > 0, "the run was not down")
    for key in ("productive_seconds", "lost_start_seconds", "lost_validation_seconds", "lost_checkpoint_seconds"):
        expect(rows[5][key] > rows[4][key] > 0 or key == "lost_validation_seconds", f"{key}: {rows[4][key]}, then {rows[5][key]}")
    expect("goodput " in job.text() and "; lost: " in job.text(), job.tail())


@case(60)
def rank_logs(context):
    """Each rank logs from level info on to a file of its own, which restarts add to; what it prints is unchanged."""
    config, logs = write_job(context, "run", steps=4), context.dump("run") / "logs"
    words = ["--config", config, *SAVE]
    refused = run(context, 2, [*words, "--training.dataset", "parquet"], name="refused", exit_code=2)
    expect(not logs.exists(), f"a start that was refused has a log\n{refused.tail()}")
    job = run(context, 2, [*words, "--training.steps", "2", "--lr_scheduler.total_steps", "4"], name="first")
    first = {rank: (logs / f"rank_{rank}.log").read_text() for rank in (0, 1)}
    printed = job.out_path.read_text().splitlines()
    missing = [line for line in printed if line.startswith("[titan]") and line not in first[0] + first[1]]
    expect(not missing, f"printed, and not in the logs: {missing}")
    expect("step:  2  loss:" in first[0], f"rank 0's log is\n{first[0]}")
    expect(" - rank 1 - INFO - " in first[1] and " - rank 1 - INFO - " not in job.text(), f"rank 1's log is\n{first[1]}")
    run(context, 2, words, name="second")
    for rank, before in first.items():
        after = (logs / f"rank_{rank}.log").read_text()
        expect(after.startswith(before) and len(after) > len(before), f"rank {rank}'s log was not added to")
