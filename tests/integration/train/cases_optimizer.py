"""Tests the optimizer's own keys against torch.optim.AdamW, at several numbers of ranks and over a resume."""
from checkpoint_tools import FP32, SAVE, STILL, check_same_tensors, is_count, read_state, tensors_of, train
from fixtures import write_job
from harness import case, expect, read_rows
from oracle import KERNELS, answer, ask

STEPS = 20
ATEN = KERNELS["aten"][0]  # with PyTorch's kernels every value is FSDP2's to the bit
HALF = ["--optimizer.state_dtype", "bfloat16"]
MOMENTS = (".exp_avg", ".exp_avg_sq")

for ranks, tier in ((1, "wide"), (2, "integration")):
    ask(ranks, "moments in bfloat16", [*FP32, *HALF], STEPS, tier=tier, weights=True, state=True)
# Every kind, a pattern, a matrix with both, and two patterns for one parameter. The factors are powers of two, so that
# rate * factor * schedule is the same number in any order.
GROUPS = ["--optimizer.no_decay", "norm,bias,embedding,layers.*.attention.wo.*"]
GROUPS += ["--optimizer.lr_factors", "tok_embeddings.*=0.25,layers.1.*=0.5,layers.*.feed_forward.w2.weight=2"]

for ranks, tier in ((1, "wide"), (2, "integration")):
    ask(ranks, "parameter groups", [*FP32, *GROUPS], STEPS, tier=tier, weights=True, state=True)


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


@case(240, ranks=[1, 2], wide=["1"])
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


@case(120, tier="wide")
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


def check_torch_reads(folder, state):
    """Checks that PyTorch reads a checkpoint into an optimizer with the same groups, and what it does with one group."""
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions, get_optimizer_state_dict, set_optimizer_state_dict,
    )  # fmt: skip

    prefix = "optimizer.param_groups."
    model, by_rates = torch.nn.Module(), {}
    for key in [key for key in state if key.startswith(prefix) and key.endswith(".weight_decay")]:
        name = key.removeprefix(prefix).removesuffix(".weight_decay")
        *modules, last = name.split(".")
        module = model
        for part in modules:
            if part not in dict(module.named_children()):
                module.add_module(part, torch.nn.Module())
            module = module.get_submodule(part)
        module.register_parameter(last, torch.nn.Parameter(torch.zeros_like(state[name])))
        by_rates.setdefault((state[f"{prefix}{name}.initial_lr"], state[key]), []).append(module.get_parameter(last))
    flat = StateDictOptions(flatten_optimizer_state_dict=True)

    def read(groups):
        optimizer = torch.optim.AdamW(groups, lr=9.0, weight_decay=9.0)
        for group in optimizer.param_groups:
            group["initial_lr"] = 9.0
        saved = {"optimizer": get_optimizer_state_dict(model, optimizer, options=flat)}
        dcp.load(saved, checkpoint_id=str(folder), no_dist=True)
        set_optimizer_state_dict(model, optimizer, saved["optimizer"], options=flat)
        return optimizer

    optimizer = read([{"params": members} for members in by_rates.values()])
    found = [(group["initial_lr"], group["weight_decay"]) for group in optimizer.param_groups]
    expect(found == list(by_rates) and len(found) == 6, f"PyTorch reads {found}, expected {list(by_rates)}")
    moment = optimizer.state[model.get_parameter("norm.weight")]["exp_avg"]
    expect(torch.equal(moment, state["optimizer.state.norm.weight.exp_avg"]), "PyTorch reads other moments")
    # A program with one group takes the rates of its first parameter, as docs/optimizer.md says.
    (group,) = read([{"params": list(model.parameters())}]).param_groups
    first = next(name for name, _ in model.named_parameters())
    expect(group["weight_decay"] == state[f"{prefix}{first}.weight_decay"], f"PyTorch reads {group['weight_decay']}")


@case(240, ranks=[1, 2], wide=["1"])
def parameter_groups(context, ranks):
    """Twenty steps with rates by name are those of torch.optim.AdamW with parameter groups, to the bit."""
    found, theirs = check_as_torch(context, ranks, "parameter groups", GROUPS)
    check_same_tensors(found, theirs, f"state at {ranks} ranks")
    # Each parameter's entries are PyTorch's, except for those that say how it computes.
    entries = {key for key in theirs if key.startswith("optimizer.param_groups.")}
    rates = {key for key in entries if key.endswith((".lr", ".initial_lr", ".weight_decay"))}
    expect(rates and {key: found[key] for key in rates} == {key: theirs[key] for key in rates}, "rates differ")
    expect(entries == {key for key in found if key.startswith("optimizer.param_groups.")}, "other entries")
    wanted = {"tok_embeddings.weight": 0, "norm.weight": 0, "output.weight": 0.1, "layers.0.attention.wo.weight": 0}
    for name, decay in wanted.items():
        expect(found[f"optimizer.param_groups.{name}.weight_decay"] == decay, f"weight decay of {name}")
    if ranks == 1:
        check_torch_reads(context.dump("parameter_groups_1") / f"checkpoint/step-{STEPS}", found)
    # Half of the steps, and a resume, end in the same state.
    load = ["--checkpoint.initial_load_path", answer(context, ranks, "parameter groups").seed, *GROUPS, *ATEN]
    words = [*load, "--lr_scheduler.total_steps", STEPS]
    run_to(context, "halves", ranks, STEPS // 2, words)
    check_same_tensors(run_to(context, "halves", ranks, STEPS, words), found, f"resumed at {ranks} ranks")
    # PyTorch's state with groups is resumed, too; a still step shows what was read.
    still = ["--config", write_job(context, "theirs", steps=STEPS + 1), *FP32, *SAVE, *STILL, *GROUPS]
    still += ["--checkpoint.initial_load_path", answer(context, ranks, "parameter groups").state]
    still += ["--checkpoint.no-initial_load_model_only", "--checkpoint.exclude_from_loading", "dataloader"]
    text = train(context, ranks, still, "theirs").text()
    now = read_state(context.dump("theirs") / f"checkpoint/step-{STEPS + 1}")
    check_same_tensors(now, theirs, "PyTorch's state", is_count, zero_has_sign=False)
    expect("optimizer.lr of 1 parameter (tok_embeddings.weight)" in text, text)


@case(60, processors=1)
def parameter_groups_said(context):
    """The log and --dry-run say which groups there are, once; without the keys there is one, and no word of it."""
    import json

    from cases_convert import command

    job = ["--config", write_job(context, "run", steps=1)]
    wanted = "optimizer: 1 parameter (tok_embeddings.weight): learning rate times 0.25, weight decay 0"
    text = train(context, 2, [*job, *GROUPS], "run").text()
    expect(text.count(wanted) == 1 and text.count("learning rate times") == 6, text)
    text, _ = command(context, *job, "--dry-run", *GROUPS)
    expect(text.count(wanted) == 1, text)
    lines = json.loads(command(context, *job, "--dry-run", "--json", *GROUPS)[0])["optimizer_groups"]
    expect(len(lines) == 6 and wanted.removeprefix("optimizer: ") in lines, f"{lines}")
    expect(json.loads(command(context, *job, "--dry-run", "--json")[0])["optimizer_groups"] == [], "one group")
    plain = ["--config", write_job(context, "plain", steps=1)]
    expect("learning rate times" not in train(context, 1, plain, "plain").text(), "one group is named")
