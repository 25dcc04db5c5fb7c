"""Compares the program with PyTorch's FSDP2, from the same weights, on the same data, step by step."""
import dataclasses
import itertools

from fixtures import SMALL_MODEL, write_job
from harness import case, check_close, expect, read_rows, relative_distance, run
from oracle import KERNELS, answer, ask, ask_variants, variants_of

STEPS = 20
KEYS = ("loss", "max_loss", "grad_norm")
FP32 = ["--training.mixed_precision_param", "float32"]

# In fp32, two correct programs differ in the order of sums: 2^-24 = 6e-8 relative per operation, amplified by the
# optimizer. Changing PyTorch's own attention kernel moves the reference's losses and gradient norms by the distances
# that the case reference_rounding measures, 1e-7, two orders of magnitude below this bound; a missing 1/N, a wrong
# decay or one token more moves them by 1e-3 and more.
FP32_TOLERANCE = 1e-5

# Two correct bf16 programs differ in the order of sums before each rounding to 8 bits, and in the roundings that a
# fused operation skips (torch.compile does that too). How far that moves two runs apart is measured on PyTorch
# itself: the reference with its default kernels, with the plain attention formula, without oneDNN's matmuls, with a
# fused SwiGLU, and, to judge the program's own kernels, with attention in float32, which is what they compute. The
# yardstick is the largest distance of any two of them so far in the run (single steps pass through zero). The program
# may be three times as far: it may differ in every operation at once, each variant differs in one kind.
BF16_MARGIN = 3
# The yardstick may be near zero by luck, or because two variants are the same kernel on this processor. The floor is
# the effect of one rounding that two programs do differently: it is off by 2^-9 relatively at most, evenly spread, so
# two of them differ with a standard deviation of 2^-9 sqrt(2 / 3), and the mean over 128 tokens, the smallest batch
# here, with 2^-9 sqrt(2 / 3 / 128) = 1.4e-4. A machine compares a thousand numbers (rows, steps, losses and norms),
# and each order of summation is a new draw: five standard deviations are passed once in a thousand such machines. A
# bf16 run that computes in fp32 is beyond the floor by its gradient norms (7.8e-4 to 2.2e-3 in the tables' rows of
# two ranks), but not by its losses.
BF16_FLOOR = 5 * 1.4e-4
# No bound is above this, whatever the yardstick says: a larger one could not tell a right program from a wrong one.
BF16_CEILING = {"loss": 5e-3, "max_loss": 5e-3, "grad_norm": 3e-2}


def run_program(context, ranks, reference, words=(), name="program", template=SMALL_MODEL):
    """Returns the rows of the program from the reference's start, with its overrides and `words`."""
    config = write_job(context, name, template, STEPS)
    load = ["--checkpoint.enable", "--checkpoint.initial_load_path", reference.seed, "--checkpoint.interval", "100000"]
    run(context, ranks, ["--config", config, *load, *reference.words, *words], name=name)
    return read_rows(context.dump(name) / "metrics.jsonl")


def compare(context, ranks, name, template=SMALL_MODEL):
    reference = answer(context, ranks, name)
    found, expected = run_program(context, ranks, reference, template=template), reference.rows
    check_close(found, expected, KEYS, FP32_TOLERANCE, f"{ranks} ranks")
    check_close(found, expected, ["lr"], 1e-12, f"{ranks} ranks")
    check_close(found, expected, ["tokens_seen"], 0.0, f"{ranks} ranks")


for ranks in (1, 2, 3):
    ask(ranks, "fp32", FP32, STEPS)


@case(120, ranks=[1, 2, 3], quick=[2])
def parity_fp32(context, ranks):
    """fp32 losses, gradient norms and learning rates are FSDP2's; at 3 ranks the shards are uneven."""
    compare(context, ranks, "fp32")


ask(2, "accumulation", [*FP32, "--training.global_batch_size", "16"], STEPS)


@case(120)
def parity_accumulation(context):
    """Four microbatches per step, normalized by the step's tokens, are what FSDP2 computes."""
    compare(context, 2, "accumulation")


for mode in ("always", "never"):
    ask(2, f"reshard {mode}", [*FP32, "--parallelism.fsdp_reshard_after_forward", mode], STEPS)


@case(120, mode=["always", "never"])
def parity_reshard(context, mode):
    """The time at which weights are freed changes no number."""
    compare(context, 2, f"reshard {mode}")


for ranks in (2, 4):
    ask(ranks, "two replicas", [*FP32, "--parallelism.data_parallel_replicate_degree", "2"], STEPS)


@case(120)
def parity_hsdp(context):
    """Two replicas of two shards have FSDP2's numbers."""
    compare(context, 4, "two replicas")


@case(120)
def parity_data_parallel(context):
    """Two replicas of one shard: gradients are summed over replicas as over shards."""
    compare(context, 2, "two replicas")


@case(120, mode=["full", "selective"])
def parity_recompute(context, mode):
    """Activation checkpointing changes no number; the reference runs without it."""
    reference = answer(context, 2, "fp32")
    recompute = ["--activation_checkpoint.mode", mode, "--activation_checkpoint.selective_ac_option", "2"]
    check_close(run_program(context, 2, reference, recompute), reference.rows, KEYS, FP32_TOLERANCE, mode)


TEXT_FOLDER = ["--training.dataset", "text", "--training.dataset_path", "{fixtures}/corpus", "--training.data_order", "torchtitan"]
ask(2, "text folder", [*FP32, *TEXT_FOLDER], STEPS)


@case(120)
def parity_text_folder(context):
    """A folder of text files is read in the bytewise order of its relative paths, and split over ranks in blocks."""
    compare(context, 2, "text folder")


for decay in ("cosine", "sqrt"):
    shape = ["--lr_scheduler.decay_type", decay, "--lr_scheduler.min_lr_factor", "0.1"]
    ask(1, decay, [*FP32, *shape, "--lr_scheduler.total_steps", "25", "--lr_scheduler.decay_ratio", "0.5"], STEPS)


@case(120, decay=["cosine", "sqrt"], processors=1)
def parity_schedule(context, decay):
    """The other decay shapes, with a floor, a total that is not the number of steps, and an odd ratio."""
    compare(context, 1, decay)


MASK = "--model.args.attn_mask_type"
for ranks, tier in ((1, "wide"), (2, "integration")):
    # Short documents, so that most rows hold the ends of several.
    ask(ranks, "block causal", [*FP32, "--training.dataset_path", "{fixtures}/short.jsonl", MASK, "block_causal"], STEPS, tier=tier)


@case(120, ranks=[1, 2], wide=["1"])
def parity_block_causal(context, ranks):
    """Attention within documents, with and without recomputation, is what FSDP2 computes with the mask."""
    reference = answer(context, ranks, "block causal")
    expected = reference.rows
    check_close(run_program(context, ranks, reference), expected, KEYS, FP32_TOLERANCE, "block_causal")
    recompute = ["--activation_checkpoint.mode", "selective", "--activation_checkpoint.selective_ac_option", "op"]
    found = run_program(context, ranks, reference, recompute, name="recompute")
    check_close(found, expected, KEYS, FP32_TOLERANCE, "block_causal, recomputed")
    unmasked = dataclasses.replace(reference, words=reference.words[: reference.words.index(MASK)])
    causal = run_program(context, ranks, unmasked, name="causal")
    distance = relative_distance(causal[-1]["loss"], expected[-1]["loss"])
    expect(distance > 1e-3, f"the mask makes no difference on this data: {distance:.1e}")


for ranks in (1, 2):
    ask(ranks, "bf16", [], STEPS)
    ask_variants(ranks, "bf16")


def bf16_bound(yardstick, floor, ceiling):
    return min(max(BF16_MARGIN * yardstick, floor), ceiling)


def bf16_tolerance(context, ranks, kernels="own", name="bf16"):
    """Returns the reference's rows, and (index of the step, key) -> how far a correct program may be from them."""
    expected = answer(context, ranks, name).rows
    runs = [expected, *(variant.rows for variant in variants_of(context, ranks, name, KERNELS[kernels][1]))]

    def tolerance(index, key):
        pairs = itertools.combinations(runs, 2)
        yardstick = max(relative_distance(a[i][key], b[i][key]) for a, b in pairs for i in range(index + 1))
        return bf16_bound(yardstick, BF16_FLOOR, BF16_CEILING[key])

    return expected, tolerance


@case(180, ranks=[1, 2], kernels=list(KERNELS))
def parity_bf16(context, ranks, kernels):
    """bf16 losses and gradient norms are at most three times as far from FSDP2's as its own kernels are apart."""
    expected, tolerance = bf16_tolerance(context, ranks, kernels)
    found = run_program(context, ranks, answer(context, ranks, "bf16"), KERNELS[kernels][0])
    check_close(found, expected, KEYS, tolerance, f"{ranks} ranks, {kernels} kernels")
