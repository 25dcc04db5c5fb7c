"""Tests adapters of low rank ([lora]) against the same model in PyTorch, over resumes and meshes."""
import json

from cases_convert import command
from cases_optimizer import ATEN, STEPS, check_as_torch, run_to
from checkpoint_tools import FP32, SAVE, STILL, check_same_tensors, is_count, read_state, tensors_of, train
from fixtures import write_job
from harness import case, check_close, expect, read_rows
from oracle import answer, ask

LORA = ["--lora.rank", "4", "--lora.alpha", "12", "--lora.targets", "wq,wv,wo,layers.*.feed_forward.w2,layers.1.feed_forward.w1"]
DROPOUT = [*LORA, "--lora.dropout", "0.25"]
# The frozen weights are rounded once, to bfloat16, and computed with in float32.
ROUNDED = [*LORA, "--lora.base_dtype", "bfloat16"]
# In fp32 two orders of sums differ by 2^-24 = 6e-8 relatively per operation. cases_parity.py measures 1e-7 over a run;
# a gradient of A or B without the terms of another rank is off by its half.
TOLERANCE = 1e-5
KEYS = ("loss", "grad_norm")

for ranks in (1, 2):
    ask(ranks, "lora", [*FP32, *LORA], STEPS, weights=True, state=True)
    tier = "long" if ranks == 1 else "integration"
    ask(ranks, "lora with dropout", [*FP32, *DROPOUT], STEPS, tier="long" if ranks == 1 else "wide", weights=True, state=True)
    ask(ranks, "lora on bfloat16", [*FP32, *ROUNDED], STEPS, tier=tier, weights=True, state=True)


# Products in bfloat16 of frozen weights that are kept so, two replicas of two shards, and four microbatches per step.
HALF = [*ROUNDED, "--training.mixed_precision_param", "bfloat16"]
ask(2, "lora in bfloat16", HALF, STEPS, weights=True, state=True)
ask(4, "lora on replicas", [*FP32, *LORA, "--parallelism.data_parallel_replicate_degree", "2"], STEPS, weights=True)
ask(2, "lora, four microbatches", [*FP32, *LORA, "--training.global_batch_size", "16"], STEPS, weights=True)


def is_adapter(key):
    return key.endswith((".lora_A", ".lora_B"))


def frozen(state):
    """Returns the weights of a state that are not adapters."""
    return {key: value for key, value in tensors_of(state).items() if not key.startswith("optimizer.") and not is_adapter(key)}


def check_only_adapters_trained(state, start, what):
    """Checks that adapters alone changed and have moments. `start`: the weights of the start."""
    check_same_tensors(frozen(state), {key: start[key].to(state[key].dtype) for key in frozen(state)}, f"frozen, {what}")
    adapters = {key for key in state if is_adapter(key) and not key.startswith("optimizer.")}
    expect(len(adapters) == 2 * 9, f"{what}: {sorted(adapters)}")
    still = [key for key in adapters if bool((state[key] == start[key]).all())]
    expect(not still, f"{what}: {still} did not change")
    trained = {key.removeprefix("optimizer.state.").rpartition(".")[0] for key in state if key.endswith(".exp_avg")}
    expect(trained == adapters, f"{what}: there are moments of {sorted(trained)}")


def check_resume(context, ranks, seed, words, found):
    """Checks that a run that stops half way and resumes ends in the state `found`."""
    job = ["--checkpoint.initial_load_path", seed, *words, *ATEN, "--lr_scheduler.total_steps", STEPS]
    run_to(context, "halves", ranks, STEPS // 2, job)
    again = run_to(context, "halves", ranks, STEPS, job)
    check_same_tensors(again, found, f"resumed at {ranks} ranks")


@case(240, ranks=[1, 2], wide=["1"])
def lora(context, ranks):
    """Twenty steps with adapters are those of the same model in PyTorch, to the bit; nothing else changes or has
    moments; a run that stops half way and resumes ends in the same state."""
    found, theirs = check_as_torch(context, ranks, "lora", LORA)
    check_same_tensors(found, theirs, f"state at {ranks} ranks", but=lambda key: key not in theirs)
    seed = answer(context, ranks, "lora").seed
    check_only_adapters_trained(found, read_state(seed), f"{ranks} ranks")
    check_resume(context, ranks, seed, LORA, found)


@case(240, tier="long", ranks=[1])
@case(240, tier="wide", ranks=[2])
def lora_with_dropout(context, ranks):
    """Dropout before the adapters draws what torch.nn.Dropout draws from the same seed, also over a resume."""
    found, _ = check_as_torch(context, ranks, "lora with dropout", DROPOUT)
    check_resume(context, ranks, answer(context, ranks, "lora with dropout").seed, DROPOUT, found)


@case(240, tier="long", ranks=[1])
@case(240, ranks=[2])
def lora_on_bfloat16(context, ranks):
    """Frozen weights in bfloat16 beside adapters in float32 have PyTorch's numbers, in checkpoints too."""
    import torch

    found, _ = check_as_torch(context, ranks, "lora on bfloat16", ROUNDED)
    check_only_adapters_trained(found, read_state(answer(context, ranks, "lora on bfloat16").seed), f"{ranks} ranks")
    dtypes = {key: value.dtype for key, value in tensors_of(found).items() if not is_count(key)}
    wrong = [key for key in dtypes if dtypes[key] != (torch.float32 if "lora_" in key else torch.bfloat16)]
    expect(not wrong, f"stored in another dtype: {wrong}")


@case(240)
def lora_in_bfloat16(context):
    """Mixed precision over frozen weights in bfloat16 has PyTorch's numbers, to the bit."""
    row = "lora in bfloat16"
    reference = answer(context, 2, row)
    load = ["--checkpoint.initial_load_path", reference.seed]
    train(context, 2, ["--config", write_job(context, "run", steps=STEPS), *SAVE, *HALF, *ATEN, *load], "run")
    found = [[each[key] for key in KEYS] for each in read_rows(context.dump("run") / "metrics.jsonl")]
    theirs = [[each[key] for key in KEYS] for each in reference.rows]
    expect(found == theirs, f"{found}, PyTorch's {theirs}")
    state, weights = read_state(context.dump("run") / f"checkpoint/step-{STEPS}"), reference.weights
    check_same_tensors({key: state[key] for key in weights}, weights, row)


@case(120)
def lora_on_other_ranks(context):
    """A run with adapters that goes on at another number of ranks has read every bit."""
    before = run_to(context, "run", 1, 3, LORA)
    for step, ranks in ((4, 2), (5, 3)):
        job = ["--config", write_job(context, "run", steps=step), *FP32, *SAVE, *STILL, *LORA]
        train(context, ranks, [*job, "--checkpoint.exclude_from_loading", "dataloader"], f"at_{ranks}")
        found = read_state(context.dump("run") / f"checkpoint/step-{step}")
        check_same_tensors(found, tensors_of(before), f"{ranks} ranks", is_count, zero_has_sign=False)
        before = found


MESHES = {"tp": (2, 1, []), "tp_fsdp": (4, 2, []), "tp_logits": (2, 1, ["--parallelism.disable_loss_parallel"])}
RECOMPUTE = {"full": ["full"], "by_op": ["selective", "--activation_checkpoint.selective_ac_option", "op"]}


def check_as_reference(context, name, ranks, reference, words=()):
    load = ["--checkpoint.enable", "--checkpoint.initial_load_path", reference.seed]
    job = ["--config", write_job(context, name, steps=STEPS), *reference.words, *load, *SAVE[1:], *words]
    train(context, ranks, job, name)
    check_close(read_rows(context.dump(name) / "metrics.jsonl"), reference.rows, KEYS, TOLERANCE, name)
    state = read_state(context.dump(name) / f"checkpoint/step-{STEPS}")
    check_only_adapters_trained(state, read_state(reference.seed), name)


@case(240, mesh=list(MESHES), wide=["tp", "tp_logits"])
def lora_tensor_parallel(context, mesh):
    """Adapters split by tensor parallelism have the numbers of PyTorch's without it."""
    ranks, of_ranks, words = MESHES[mesh]
    words = ["--parallelism.tensor_parallel_degree", 2, *words]
    check_as_reference(context, "split", ranks, answer(context, of_ranks, "lora"), words)


@case(120, mode=list(RECOMPUTE), wide=["by_op"])
def lora_recompute(context, mode):
    """Recomputed blocks have the same numbers, also the first one, whose input has no gradient."""
    words = ["--activation_checkpoint.mode", *RECOMPUTE[mode]]
    check_as_reference(context, "recomputed", 2, answer(context, 2, "lora"), words)


@case(240)
def lora_accumulates(context):
    """Adapters on replicas, and with several microbatches per step, have PyTorch's numbers."""
    check_as_reference(context, "replicas", 4, answer(context, 4, "lora on replicas"))
    check_as_reference(context, "microbatches", 2, answer(context, 2, "lora, four microbatches"))


@case(60, processors=1)
def lora_planned(context):
    """--dry-run counts moments and gradients of adapters alone, frozen weights by their dtype, and no product for the
    gradient of a frozen weight."""
    job = ["--config", write_job(context, "run", steps=3), *FP32, "--dry-run", "--json"]
    whole, plan, half = (json.loads(command(context, *job, *words)[0]) for words in ([], LORA, ROUNDED))
    frozen, trained = whole["parameters"], plan["trained_parameters"]
    # w1 and w2 are [192, 64] and [64, 192], wq and wo [64, 64], wv [32, 64].
    expect(trained == 4 * (2 * (2 * (64 + 64) + (64 + 32) + (64 + 192)) + (64 + 192)), f"{trained} are trained")
    expect(plan["parameters"] == frozen + trained and whole["trained_parameters"] == frozen, f"{plan['parameters']}")
    for name, kinds, of_frozen in (("float32", plan["peak_by_kind_bytes"], 4), ("bfloat16", half["peak_by_kind_bytes"], 2)):
        # A count of steps for each of the 18 parameters is 4 bytes.
        expect(kinds["optimizer"] == 8 * trained + 4 * 18, f"{name}: moments take {kinds['optimizer']} bytes")
        expect(kinds["parameters"] == of_frozen * frozen + 4 * trained, f"{name}: parameters take {kinds['parameters']} bytes")
        expect(kinds["gradients"] + kinds["reductions"] <= 8 * trained, f"{name}: gradients take {kinds['gradients']} bytes")
    products = frozen - 2048 * 64  # without the embedding
    expect(plan["flops_per_token"] == whole["flops_per_token"] - 2 * products + 6 * trained, f"{plan['flops_per_token']} FLOPs")
    expect(plan["checkpoint_bytes"] == 4 * frozen + 12 * trained, f"{plan['checkpoint_bytes']} bytes on disk")
    expect(half["checkpoint_bytes"] == 2 * frozen + 12 * trained, f"{half['checkpoint_bytes']} bytes on disk")
    table, _ = command(context, *job[:-1], *ROUNDED)
    expect(f"{trained:,}" in table and "of them trained" in table and "frozen ones bfloat16" in table, table)
