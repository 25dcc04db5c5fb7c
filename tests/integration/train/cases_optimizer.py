"""Tests the optimizer's own keys against torch.optim.AdamW, at several numbers of ranks and over a resume."""
from checkpoint_tools import FP32, SAVE, STILL, check_same_tensors, is_count, read_state, tensors_of, train
from fixtures import write_job
from harness import case, expect, read_rows
from oracle import KERNELS, answer, ask

STEPS = 20
ATEN = KERNELS["aten"][0]  # with PyTorch's kernels every value is FSDP2's to the bit
HALF = ["--optimizer.state_dtype", "bfloat16"]
MOMENTS = (".exp_avg", ".exp_avg_sq")

for ranks in (1, 2):
    ask(ranks, "moments in bfloat16", [*FP32, *HALF], STEPS, weights=True, state=True)


def run_to(context, name, ranks, steps, words):
    """Returns the state that a run saved after `steps` steps."""
    train(context, ranks, ["--config", write_job(context, name, steps=steps), *FP32, *SAVE, *words], name)
    return read_state(context.dump(name) / f"checkpoint/step-{steps}")


def with_moments_of(state, dtype):
    """Returns a state with moments in another dtype, rounded to the nearest as PyTorch does."""
    return {key: value.to(dtype) if key.endswith(MOMENTS) else value for key, value in tensors_of(state).items()}


def check_as_torch(context, ranks, row, words):
    """Checks that a run computes what PyTorch does in `row`, to the bit; returns its state and PyTorch's."""
    reference = answer(context, ranks, row)
    load = ["--checkpoint.initial_load_path", reference.seed]
    found = run_to(context, f"{row.replace(' ', '_')}_{ranks}", ranks, STEPS, [*words, *ATEN, *load])
    rows = read_rows(context.dump(f"{row.replace(' ', '_')}_{ranks}") / "metrics.jsonl")
    for key in ("loss", "grad_norm"):
        ours, theirs = ([each[key] for each in steps] for steps in (rows, reference.rows))
        expect(ours == theirs, f"{row} at {ranks} ranks: {key} is {ours}, PyTorch's {theirs}")
    weights = reference.weights
    check_same_tensors({key: found[key] for key in weights}, weights, f"{row} at {ranks} ranks")
    return found, read_state(reference.state)


@case(240, ranks=[1, 2])
def moments_in_bfloat16(context, ranks):
    """Twenty steps with moments in bfloat16 are those of torch.optim.AdamW that rounds them after each, to the bit."""
    import torch

    found, theirs = check_as_torch(context, ranks, "moments in bfloat16", HALF)
    moments = {key for key in found if key.endswith(MOMENTS)}
    expect(moments and all(found[key].dtype == torch.bfloat16 for key in moments), "moments are not bfloat16")
    check_same_tensors(found, with_moments_of(theirs, torch.bfloat16), f"state at {ranks} ranks")
    # A run that stops half way and resumes ends in the same state.
    load = ["--checkpoint.initial_load_path", answer(context, ranks, "moments in bfloat16").seed, *HALF, *ATEN]
    job = ["--lr_scheduler.total_steps", STEPS]
    run_to(context, "halves", ranks, STEPS // 2, [*load, *job])
    again = run_to(context, "halves", ranks, STEPS, [*load, *job])
    check_same_tensors(again, found, f"resumed at {ranks} ranks")


@case(120)
def moments_change_dtype(context):
    """A resume with another optimizer.state_dtype converts the moments, rounded to the nearest, and says so."""
    import torch

    words = ["--optimizer.beta2", "0.95"]
    before = run_to(context, "run", 2, 3, words)
    for step, (dtype, name) in enumerate(((torch.bfloat16, "bfloat16"), (torch.float32, "float32")), start=4):
        # A still step shows what was loaded; it runs at another number of ranks than the save.
        job = ["--config", write_job(context, "run", steps=step), *FP32, *SAVE, *STILL, "--optimizer.state_dtype", name]
        job += ["--checkpoint.exclude_from_loading", "dataloader"]
        text = train(context, step - 3, job, f"as_{name}").text()
        found = read_state(context.dump("run") / f"checkpoint/step-{step}")
        check_same_tensors(found, with_moments_of(before, dtype), name, is_count, zero_has_sign=False)
        expect(f"loaded as {name}" in text and "optimizer.state_dtype was" in text, text)
        before = found


@case(60, processors=1)
def moments_in_bfloat16_planned(context):
    """--dry-run counts moments in bfloat16 with half the bytes, and a beta2 that they cannot hold gives a warning."""
    import json

    from cases_convert import command

    job = ["--config", write_job(context, "run", steps=3), "--dry-run", "--json"]
    plans = [json.loads(command(context, *job, *words)[0]) for words in ([], HALF)]
    full, half = (plan["peak_by_kind_bytes"]["optimizer"] for plan in plans)
    expect(0.49 < half / full <= 0.51, f"{full} and {half} bytes")
    _, warned = command(context, *job, *HALF, "--optimizer.beta2", "0.999")
    expect("optimizer.beta2 (0.999) is above 0.996" in warned, warned)
    _, quiet = command(context, *job, *HALF, "--optimizer.beta2", "0.99")
    expect("optimizer.beta2" not in quiet, quiet)
