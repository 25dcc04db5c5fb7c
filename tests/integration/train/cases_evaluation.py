"""Tests scores on tasks ([evaluation], titan-train eval) against lm-evaluation-harness, whose answers are in tests/golden."""
import json
import math

import golden
import golden_evaluation as questions
import golden_families as families
from cases_convert import command
from checkpoint_tools import FP32, SAVE, STILL, train
from cases_metrics import events_of
from harness import case, check_identical, expect, peer_python, read_rows, rows_by_step

# Both sides compute in fp32 and differ in the order of sums: some 2^-24 of logits of about 10, which the layers amplify
# to less than 1e-5 of each token's log-probability. A text that is one token longer or shorter, or has another blank,
# differs by 1e-1 and more, and the two best choices of every question by 1e-2 (make_evaluation.py).
PER_TOKEN = 1e-5


def model(context):
    folder = context.folder / "model"
    questions.write_model(folder)
    return folder


def tasks(context):
    return list(questions.write_records(context.folder / "records").values())


def with_flag(flag, words):
    return [word for each in words for word in (flag, each)]


def evaluate(context, path, *words):
    """Returns the scores of `titan-train eval` by task."""
    out, _ = command(context, "eval", path, "--json", "--quiet", "--device", "cpu", *words, env={"OMP_NUM_THREADS": "1"})
    return json.loads(out)["tasks"]


def check_scores(found, expected, what):
    """Checks the scores of a task. Counts of right answers must be equal; perplexities are e to a mean."""
    for name, theirs in expected.items():
        mine = found[name]
        if "perplexity" in name:
            mine, theirs = math.log(mine), math.log(theirs)
        expect(abs(mine - theirs) <= PER_TOKEN * abs(theirs), f"{what}: {name} is {mine}, lm-evaluation-harness's {theirs}")


def job(context, folder, name, steps=2, freq=1):
    """Returns the words of a run that is scored every `freq` steps. Its tasks are in the file."""
    path = families.write_job(context, folder, name, steps)
    text = path.read_text().replace("seq_len = 64", f"seq_len = {questions.CONTEXT}")
    path.write_text(text + f"[evaluation]\ntasks = {json.dumps(tasks(context))}\nfreq = {freq}\nlocal_batch_size = 3\n")
    return ["--config", path, *FP32]


def scores_in(row):
    """Returns the scores of a row of evaluation.jsonl by task."""
    out = {}
    for key, value in row.items():
        if "/" in key:
            task, _, score = key.partition("/")
            out.setdefault(task, {})[score] = value
    return out


@case(60, ranks=[1, 2], quick=True)
def eval_as_lm_eval(context, ranks):
    """Every log-likelihood and every score is that of lm-evaluation-harness, also with batches of other sizes."""
    folder, words = model(context), with_flag("--task", tasks(context))
    answers = golden.answers("evaluation")
    more = ["--nproc", ranks, "--oversubscribe"] if ranks > 1 else []
    for size in (1, 8):
        path = context.folder / f"texts-{size}.jsonl"
        found = evaluate(context, folder, *words, *more, "--batch-size", size, "--log-likelihoods", path)
        texts = read_rows(path)
        for kind, answer in answers.items():
            check_scores(found[kind], answer["scores"], kind)
            expect(found[kind]["items"] == len(questions.RECORDS[kind]), f"{kind}: {found[kind]['items']} items")
            mine = [text for text in texts if text["task"] == kind]
            if kind == "jsonl":  # lm-evaluation-harness gives sums of documents, and here are their windows
                expect(len(mine) > len(answer["log_likelihoods"]), "no document has several windows")
                continue
            expect(len(mine) == len(answer["log_likelihoods"]), f"{kind}: {len(mine)} texts")
            for text, theirs in zip(mine, answer["log_likelihoods"]):
                expect(abs(text["log_likelihood"] - theirs) <= PER_TOKEN * text["scored"], f"{kind}: {text}, lm-eval's {theirs}")


@case(60, quick=True)
def eval_few_shot_as_lm_eval(context):
    """With solved questions before each question, every log-likelihood is that of lm-evaluation-harness: it gets the
    same examples in the same order, and leaves out the question itself where that does."""
    folder = context.folder / "model"
    questions.write_model(folder, questions.FEW_SHOT_CONTEXT)
    tasks_of = questions.write_few_shot(context.folder / "records")
    path = context.folder / "texts.jsonl"
    found = evaluate(context, folder, *with_flag("--task", tasks_of.values()), "--log-likelihoods", path)
    texts = read_rows(path)
    for name, answer in golden.answers("few_shot").items():
        mine = [text for text in texts if text["task"] == name]
        expect(len(mine) == len(answer["log_likelihoods"]), f"{name}: {len(mine)} texts")
        for text, theirs in zip(mine, answer["log_likelihoods"]):
            expect(abs(text["log_likelihood"] - theirs) <= PER_TOKEN * text["scored"], f"{name}: {text}, lm-eval's {theirs}")
        for score in ("acc", "acc_norm"):
            right = found[name][score] * found[name]["items"]
            expect(round(right) == answer[score] and math.isclose(right, answer[score]), f"{name}: {score} is {found[name][score]}")
        expect(found[name]["num_fewshot"] == questions.FEW_SHOT[name][2], f"{name}: {found[name]}")
    # One number for all tasks, and only the first items: the same texts as without a limit.
    name, words = "hellaswag", tasks_of["hellaswag"].replace("fewshot=3:", "fewshot=")
    evaluate(context, folder, "--task", words, "--num-fewshot", 3, "--limit", 2, "--log-likelihoods", path)
    first = [text["log_likelihood"] for text in read_rows(path)]
    all_of_them = [text["log_likelihood"] for text in texts if text["task"] == name]
    expect(len(first) == 8, f"{len(first)} texts of two items")
    expect(all(abs(a - b) <= 2 * PER_TOKEN * 99 for a, b in zip(first, all_of_them)), f"{first}, without a limit {all_of_them}")


@case(60)
def eval_is_the_same_at_any_ranks(context):
    """Ranks change nothing, to the last bit: the texts of a call are the same."""
    folder, words = model(context), with_flag("--task", tasks(context))
    files = [context.folder / f"texts-{ranks}.jsonl" for ranks in (1, 2, 3)]
    for ranks, path in enumerate(files, 1):
        more = ["--nproc", ranks, "--oversubscribe"] if ranks > 1 else []
        evaluate(context, folder, *words, *more, "--log-likelihoods", path)
    for path in files[1:]:
        expect(path.read_bytes() == files[0].read_bytes(), f"{path.name} differs from {files[0].name}")


@case(90, mesh=["1", "2", "tp2", "gathered", "pp2"], quick=["2"], wide=["1", "gathered"])
def evaluation_in_the_loop(context, mesh):
    """A run's scores are lm-evaluation-harness's on one rank, with fully_shard, with tensor parallelism and with a
    pipeline, and `eval` says the same of the run, of a step and of an export."""
    folder = model(context)
    tensor = ["--parallelism.tensor_parallel_degree", "2"]
    pipeline = ["--parallelism.pipeline_parallel_degree", "2", "--parallelism.pipeline_parallel_schedule", "GPipe"]
    of_mesh = {"tp2": tensor, "gathered": [*tensor, "--parallelism.disable_loss_parallel"], "pp2": pipeline}
    words = of_mesh.get(mesh, [])
    still = [*job(context, folder, "run"), *STILL, *SAVE, *words]
    log = train(context, 1 if mesh == "1" else 2, still, "run").text()
    rows = read_rows(context.dump("run") / "evaluation.jsonl")
    expect([row["step"] for row in rows] == [1, 2], f"rows of {rows}")
    expect("arc: acc 0.2500 +- 0.2500, acc_norm 0.5000 +- 0.2887 (4 items)" in log, "no line of the scores in the log")
    expect("evaluation.tasks: 3 of 15 texts of arc are longer" in log, "no warning of texts that are too long")
    for row in rows:
        for kind, answer in golden.answers("evaluation").items():
            check_scores(scores_in(row)[kind], answer["scores"], f"step {row['step']}, {kind}")
    if mesh != "2":
        return
    step = context.dump("run") / "checkpoint/step-2"
    command(context, "convert", step, context.folder / "hf", "--tokenizer", folder)
    for path in (context.dump("run"), step, context.folder / "hf"):
        found = evaluate(context, path, *with_flag("--task", tasks(context)), "--context", questions.CONTEXT)
        for kind, scores in scores_in(rows[-1]).items():
            check_scores(found[kind], scores, f"{path.name}: {kind}")
            expect(list(found[kind]) == ["items", "num_fewshot", *[name for name in scores if name != "items"]], f"{found[kind]}")


@case(60)
def evaluation_with_examples(context):
    """A run puts evaluation.num_fewshot solved questions before each question, and scores as `eval` does."""
    folder = model(context)
    words = [*job(context, folder, "run", steps=1), *STILL, *SAVE, "--evaluation.limit", 4]
    tasks_of = questions.write_few_shot(context.folder / "records")
    task = tasks_of["mmlu"].replace("fewshot=2:", "fewshot=")
    train(context, 2, [*words, "--evaluation.tasks", task, "--evaluation.num_fewshot", 2], "run")
    (row,) = read_rows(context.dump("run") / "evaluation.jsonl")
    found = evaluate(context, context.dump("run"), "--task", tasks_of["mmlu"], "--limit", 4)["mmlu"]
    without = evaluate(context, context.dump("run"), "--task", tasks_of["mmlu"].partition(" fewshot=")[0], "--limit", 4)["mmlu"]
    expect((found["num_fewshot"], without["num_fewshot"]) == (2, 0), f"{found}, {without}")
    expect((scores_in(row)["mmlu"]["items"], found["items"]) == (4, 4), f"{row}, {found}")
    expect(found["acc"] != without["acc"], f"the examples change nothing: {found}, {without}")
    check_scores(scores_in(row)["mmlu"], {name: found[name] for name in ("items", "acc", "acc_norm")}, "a run")


@case(90, ranks=[1, 2], wide=["1"])
def evaluation_changes_nothing(context, ranks):
    """Losses and checksums of weights and gradients are the same to the last bit with tasks and without."""
    folder = model(context)
    # Dropout draws random numbers, but not while the model is scored.
    dropout = ["--lora.rank", 4, "--lora.dropout", 0.5]
    words = [*job(context, folder, "with", steps=4), *dropout, "--debug.checksum_freq", 1]
    train(context, ranks, words, "with")
    train(context, ranks, [*words, "--job.dump_folder", context.dump("without"), "--evaluation.tasks", ""], "without")
    expect(not (context.dump("without") / "evaluation.jsonl").exists(), "scores without tasks")
    ours, theirs = (rows_by_step(context.dump(name) / "metrics.jsonl", exact=True) for name in ("with", "without"))
    check_identical(ours, theirs, ("loss", "grad_norm"), "with tasks")
    sums = [(context.dump(name) / "checksums.jsonl").read_text() for name in ("with", "without")]
    expect(sums[0] == sums[1] and sums[0], "other checksums with tasks")


@case(90)
def evaluation_catches_up(context):
    """A run that ended between its last checkpoint and the scores after it makes them up; earlier rows stay."""
    folder = model(context)
    words = [*job(context, folder, "run", steps=4, freq=2), *SAVE, "--checkpoint.interval", 2]
    train(context, 2, words, "first")
    path = context.dump("run") / "evaluation.jsonl"
    rows = read_rows(path)
    path.write_text(json.dumps(rows[0]) + "\n")
    train(context, 2, words, "second")
    again = read_rows(path)
    expect([row["step"] for row in again] == [2, 4], f"rows {again}")
    expect(scores_in(again[-1]) == scores_in(rows[-1]), f"{again[-1]}, the first time {rows[-1]}")
    expect(scores_in(rows[0]) != scores_in(rows[-1]), "two steps have the same scores")
    train(context, 2, words, "third")
    expect(read_rows(path) == again, "a run with nothing left to do has made further rows")


@case(60)
def evaluation_refusals(context):
    """Records that do not fit are named by file, line and field, by a run and by `eval`."""
    folder, path = model(context), context.folder / "bad.jsonl"
    arc, mmlu, hellaswag = (dict(records[0]) for records in (questions.ARC, questions.MMLU, questions.HELLASWAG))
    bad = [
        ("arc", {**arc, "answerKey": "F"}, '"answerKey": expected one of the labels A, B, C, D; found "F"'),
        ("arc", {"question": "x"}, 'the object has no "choices" (its fields: question)'),
        ("arc", {**arc, "choices": {"text": ["x"], "label": [1]}}, '"choices.label": expected a list of strings, found [1]'),
        ("mmlu", {**mmlu, "answer": 4}, '"answer": expected the index of a choice, 0 to 3; found 4'),
        ("mmlu", {**mmlu, "choices": ["x"]}, '"choices": expected four, found 1'),
        ("hellaswag", {**hellaswag, "label": ""}, '"label": expected an integer, found ""'),
        ("choice", {"query": "x", "choices": ["y"], "gold": 0}, "expected at least two choices, found 1"),
        ("choice", {"query": " ", "choices": ["y" * 999, "z"], "gold": 0}, "an answer has 1"),
        ("choice", [1], "expected a JSON object, found array"),
        ("jsonl:body", {"text": "x"}, 'the object has no "body"'),
    ]  # fmt: skip
    for kind, record, message in bad:
        good = {"choice": questions.CHOICE, "jsonl:body": [{"body": "y"}]}.get(kind) or questions.RECORDS[kind]
        path.write_text("".join(json.dumps(each) + "\n" for each in (good[0], record)))
        _, err = command(context, "eval", folder, "--task", f"{kind} {path}", "--device", "cpu", exit_code=2)
        expect(f"{path}:2: {message}" in err, f"{kind}: {err}")
    path.write_text('{"query": "x"\n')
    _, err = command(context, "eval", folder, "--task", f"choice {path}", "--device", "cpu", exit_code=2)
    expect(f"{path}:1:14: not a JSON object" in err, err)
    path.write_text(json.dumps({**mmlu, "answer": "B"}) + "\n")
    words = [*job(context, folder, "run"), "--evaluation.tasks", f"mmlu {path}"]
    log = train(context, 2, words, "run", exit_code=2).text()
    expect(f'evaluation.tasks: {path}:1: "answer": expected an integer, found "B"' in log, log)
    for words, message in (
        (["--task", "mmul x"], '--task: unknown kind of task "mmul" in "mmul x". Did you mean "mmlu"?'),
        (["--task", "arc"], 'found "arc": it has no path'),
        (["--task", "arc x", "--task", "arc y"], '--task: two tasks are named "arc"'),
        (["--task", f"arc {context.folder}/none"], f"{context.folder}/none"),
        (["--task", "arc x", "--num-fewshot", "5"], '"arc x" has no file of solved questions, of which --num-fewshot puts 5'),
        (["--task", "arc x fewshot=y"], "write fewshot=N:PATH, or set --num-fewshot"),
        (["--task", f"choice {context.folder}/records/choice.jsonl fewshot=9:{context.folder}/records/choice.jsonl"], "expected at least 10 different"),
        (["--task", "arc x", "--limit", "0"], "--limit: expected an integer, at least 1"),
        ([], "--task is required"),
    ):
        _, err = command(context, "eval", folder, *words, exit_code=2)
        expect(message in err, err)
    _, err = command(context, "eval", context.folder / "nowhere", "--task", "arc x", exit_code=2)
    expect(f"titan-train eval: error: {context.folder}/nowhere does not exist" in err, err)


@case(60)
def evaluation_in_tensorboard(context):
    """TensorBoard has each score of each pass under a tag of its own, and no standard errors."""
    python = peer_python("tensorboard")
    words = [*job(context, model(context), "run", steps=2), *STILL, "--metrics.enable_tensorboard"]
    train(context, 2, words, "run")
    scalars = events_of(python, context.dump("run") / "tb")["scalars"]
    rows = rows_by_step(context.dump("run") / "evaluation.jsonl")
    names = {key for key in rows[1] if "/" in key and not key.endswith(("_stderr", "/items"))}
    expect({tag for tag in scalars if tag.startswith("evaluation/")} == {f"evaluation/{name}" for name in names}, f"tags {sorted(scalars)}")
    for name in names:
        for step, value in scalars[f"evaluation/{name}"]:
            expect(math.isclose(value, rows[step][name], rel_tol=1e-6), f"{name} of step {step} is {value}")  # a float32
        expect([step for step, _ in scalars[f"evaluation/{name}"]] == [1, 2], f"steps of {name}")


@case(120)
def sweep_by_a_score(context):
    """Trials are ranked by a score on a task, of which more is better, after their last step."""
    base = job(context, model(context), "base", steps=2, freq=5)[1]
    words = ["sweep", "--grid", "optimizer.lr=1e-30,1", "--objective", "evaluation.mmlu/acc", "--config", base]
    command(context, *words, "--folder", context.folder / "sweep", env={"OMP_NUM_THREADS": "1"})
    found = json.loads((context.folder / "sweep/sweep.json").read_text())
    for trial in found["trials"]:
        (row,) = read_rows(context.folder / "sweep" / trial["name"] / "evaluation.jsonl")
        expect(row["step"] == 2 and trial["objective"] == row["mmlu/acc"], f"{trial}, its row is {row}")
    still = found["trials"][0]["objective"]
    expect(still == golden.answers("evaluation")["mmlu"]["scores"]["acc"], f"the trial that learns nothing has {still}")
    runs = [context.folder / "sweep" / trial["name"] for trial in found["trials"]]
    command(context, "report", *runs, "--output", context.folder / "page.html")
    page = (context.folder / "page.html").read_text(encoding="utf-8")
    expect("evaluation.mmlu/acc_norm" in page, "the page has no curve of a score")
    out, _ = command(context, "plot", runs[0], "--metric", "evaluation.mmlu/acc")
    expect("evaluation.mmlu/acc" in out, out)
