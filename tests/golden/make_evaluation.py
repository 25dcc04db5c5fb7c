"""Asks lm-evaluation-harness for scores, as a part of make.py. The questions are tests/integration/golden_evaluation.py's.

It needs a Python with lm-eval 0.4.13 besides transformers, and runs only if it is named.
"""
import os
import pathlib

# This import lets the ones after it find tests/integration.
from peer_tools import write

import golden_evaluation as questions
from harness import expect

# Choices must differ by more than the two programs may: a score must not depend on rounding.
LEAST_MARGIN = 1e-2
PLAIN = {"dataset_path": "json", "dataset_name": None, "training_split": None, "validation_split": None, "test_split": "test"}
ACC = [{"metric": name, "aggregation": "mean", "higher_is_better": True} for name in ("acc", "acc_norm")]
PERPLEXITY = [{"metric": name} for name in ("word_perplexity", "byte_perplexity", "bits_per_byte")]


def tasks(folder):
    """Returns their tasks on our records: (kind of ours, task). MMLU's are by subject."""
    import lm_eval.tasks
    from lm_eval.tasks._yaml_loader import load_yaml

    def local(path, theirs=None, **more):
        config = load_yaml(pathlib.Path(lm_eval.tasks.__file__).parent / theirs) if theirs else {}
        config.pop("tag", None)
        return config | PLAIN | {"dataset_kwargs": {"data_files": {"test": str(path)}}, **more}

    yield "hellaswag", local(folder / "hellaswag.jsonl", "hellaswag/hellaswag.yaml")
    yield "arc", local(folder / "arc.jsonl", "arc/arc_easy.yaml")
    for subject in ("anatomy", "abstract_algebra"):
        records = [record for record in questions.MMLU if record["subject"] == subject]
        questions.RECORDS[subject] = records
        yield "mmlu", local(folder / f"{subject}.jsonl", f"mmlu/default/mmlu_{subject}.yaml", fewshot_split="test", metric_list=ACC)
    shared = {"output_type": "multiple_choice", "doc_to_text": "{{query}}", "doc_to_choice": "choices", "doc_to_target": "{{gold}}"}
    yield "choice", local(folder / "choice.jsonl", task="choice", metric_list=ACC, **shared)
    rolling = {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{text}}"}
    yield "jsonl", local(folder / "jsonl.jsonl", task="jsonl", metric_list=PERPLEXITY, **rolling)


def few_shot_tasks(folder):
    """Returns their tasks with examples: (name of ours, number of examples, task). Splits are those of the data sets."""
    import lm_eval.tasks
    from lm_eval.tasks._yaml_loader import load_yaml

    def local(files, theirs=None, **more):
        config = load_yaml(pathlib.Path(lm_eval.tasks.__file__).parent / theirs) if theirs else {}
        config.pop("tag", None)
        files = {split: str(path) for split, path in files.items()}
        return config | {"dataset_path": "json", "dataset_name": None, "dataset_kwargs": {"data_files": files}, **more}

    def written(name, records):
        questions.write_records(folder / name, {"records": records})
        return folder / name / "records.jsonl"

    kinds = ("hellaswag", "arc", "mmlu", "choice")
    asked = {kind: written(f"{kind}_questions", questions.RECORDS[kind]) for kind in kinds}
    solved = {kind: written(f"{kind}_examples", questions.EXAMPLES[kind]) for kind in questions.EXAMPLES}
    count = {name: number for name, (_, _, number) in questions.FEW_SHOT.items()}
    files = {"train": solved["hellaswag"], "validation": asked["hellaswag"]}
    yield "hellaswag", count["hellaswag"], local(files, "hellaswag/hellaswag.yaml")
    for name in ("arc", "arc_many"):
        yield name, count[name], local({"train": solved["arc"], "test": asked["arc"]}, "arc/arc_easy.yaml")
    for subject in ("anatomy", "abstract_algebra"):
        test = written(subject, [record for record in questions.MMLU if record["subject"] == subject])
        dev = written(f"{subject}_dev", [record for record in questions.MMLU_EXAMPLES if record["subject"] == subject])
        theirs = f"mmlu/default/mmlu_{subject}.yaml"
        yield "mmlu", count["mmlu"], local({"dev": dev, "test": test}, theirs, metric_list=ACC)
        yield "mmlu_itself", count["mmlu_itself"], local({"test": test}, theirs, metric_list=ACC, fewshot_split="test")
    shared = {"output_type": "multiple_choice", "doc_to_text": "{{query}}", "doc_to_choice": "choices", "doc_to_target": "{{gold}}"}
    splits = {"test_split": "test", "fewshot_split": "test"}
    yield "choice", count["choice"], local({"test": asked["choice"]}, task="choice", metric_list=ACC, **splits, **shared)


def check_margins(task, samples):
    for sample in samples:
        sums = [response[0] for response in sample["filtered_resps"]]
        lengths = [len(arguments[1]) - 1 for arguments in sample["arguments"]]  # without the blank before each choice
        for values in (sums, [total / length for total, length in zip(sums, lengths)]):
            best, second = sorted(values)[-1], sorted(values)[-2]
            expect(best - second > LEAST_MARGIN, f"{task}: {sample['doc']} has two best choices: {values}")


def make_evaluation(context, output):
    """Writes down log-likelihoods, in the order of our texts, and scores."""
    os.environ |= {"HF_DATASETS_OFFLINE": "1", "HF_DATASETS_CACHE": str(context.folder / "datasets")}
    import torch
    from lm_eval import simple_evaluate
    from lm_eval.models.huggingface import HFLM
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    torch.set_num_threads(1)
    folder = context.folder / "evaluation"
    questions.write_model(folder / "model")
    wanted = list(tasks(folder / "records"))
    questions.write_records(folder / "records")
    model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32, attn_implementation="eager").eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder / "model")
    peer = HFLM(pretrained=model, tokenizer=tokenizer, max_length=questions.CONTEXT, batch_size=3)
    answers = {}
    for kind, task in wanted:
        found = simple_evaluate(model=peer, tasks=[task], num_fewshot=0, log_samples=True, bootstrap_iters=9)
        name, scores = next(iter(found["results"].items()))
        samples = sorted(found["samples"][name], key=lambda sample: sample["doc_id"])
        answer = answers.setdefault(kind, {"log_likelihoods": [], "scores": {}})
        responses = [sample["filtered_resps"] for sample in samples]
        if kind == "jsonl":
            answer["log_likelihoods"] += [response[0] for response in responses]
            answer["scores"] = {key.removesuffix(",none"): value for key, value in scores.items() if key.endswith(",none") and "_stderr" not in key}
            continue
        check_margins(name, samples)
        answer["log_likelihoods"] += [each[0] for response in responses for each in response]
        for score in ("acc", "acc_norm"):  # one mean over all records of the kind
            right = answer["scores"].get(score, 0) * len(questions.RECORDS[kind]) + scores[f"{score},none"] * len(samples)
            answer["scores"][score] = right / len(questions.RECORDS[kind])
            if kind != "mmlu":
                answer["scores"][f"{score}_stderr"] = scores[f"{score}_stderr,none"]
    write(output / "evaluation.json", answers)
    peer = HFLM(pretrained=model, tokenizer=tokenizer, max_length=questions.FEW_SHOT_CONTEXT, batch_size=3)
    write(output / "few_shot.json", few_shot_answers(peer, folder / "few_shot"))


def few_shot_answers(peer, folder):
    """Returns log-likelihoods and the number of right answers by the name of our task."""
    from lm_eval import simple_evaluate

    answers = {}
    for name, count, task in few_shot_tasks(folder):
        found = simple_evaluate(model=peer, tasks=[task], num_fewshot=count, log_samples=True, bootstrap_iters=9)
        (theirs, scores), = found["results"].items()
        samples = sorted(found["samples"][theirs], key=lambda sample: sample["doc_id"])
        check_margins(theirs, samples)
        answer = answers.setdefault(name, {"log_likelihoods": [], "acc": 0, "acc_norm": 0})
        answer["log_likelihoods"] += [each[0] for sample in samples for each in sample["filtered_resps"]]
        for score in ("acc", "acc_norm"):
            answer[score] += round(scores[f"{score},none"] * len(samples))
    return answers


PARTS = {"evaluation": make_evaluation}
