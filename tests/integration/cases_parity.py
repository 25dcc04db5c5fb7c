"""The program against PyTorch's FSDP2, from the same weights, on the same data, step by step."""
import json

from fixtures import write_job
from harness import case, check_close, expect, import_reference, read_rows, relative_distance, run, run_reference

STEPS = 20
KEYS = ("loss", "max_loss", "grad_norm")
FP32 = ["--training.mixed_precision_param", "float32"]

# In fp32, two correct programs differ in the order of sums: 2^-24 = 6e-8 relative an operation, carried on by the
# optimizer. Changing PyTorch's own attention kernel moves the reference's losses and gradient norms by the distances
# that the case reference_rounding measures, 1e-7, two orders of magnitude below this bound; a missing 1/N, a wrong
# decay or one token more moves them by 1e-3 and more.
FP32_TOLERANCE = 1e-5

# Two correct bf16 programs differ in the order of sums before each rounding to 8 bits, and in the roundings that a
# fused operation leaves out (torch.compile does that too). How far that carries two runs apart is measured on PyTorch
# itself: the reference with its default kernels, with the plain attention formula, without oneDNN's matrix products,
# and with a fused SwiGLU. The largest distance so far in the run is the yardstick (single steps pass through zero), and
# the program may be three times as far: it may differ in every operation at once, each variant differs in one kind.
BF16_MARGIN = 3
# The first step's yardstick may be zero by luck; rounding one logit in bf16 once more moves a mean loss of some hundred
# tokens by about 2^-9 / sqrt(128) = 1.7e-4, and by less when most agree.
BF16_FLOOR = 1e-4
# Beyond this the yardstick would no longer tell a right program from a wrong one.
BF16_CEILING = {"loss": 5e-3, "max_loss": 5e-3, "grad_norm": 3e-2}


def make_seed_checkpoint(context, config):
    """The reference's own start, as a DCP folder that both programs load."""
    import torch.distributed.checkpoint as dcp

    init_weights, job_file = import_reference()
    folder = context.folder / "seed/step-0"
    dcp.save(init_weights.initial_weights(job_file.load_job(config)), checkpoint_id=str(folder), no_dist=True)
    return folder


def run_program(context, ranks, seed, words, name="program"):
    config = write_job(context, name, steps=STEPS)
    load = ["--checkpoint.enable", "--checkpoint.initial_load_path", seed, "--checkpoint.interval", "100000"]
    run(context, ranks, ["--config", config, *load, *words], name=name)
    return read_rows(context.dump(name) / "metrics.jsonl")


def compare(context, ranks, words, tolerance=FP32_TOLERANCE):
    config = write_job(context, "reference", steps=STEPS)
    seed = make_seed_checkpoint(context, config)
    expected = run_reference(context, ranks, ["--config", config, "--init-from", seed, *words])
    found = run_program(context, ranks, seed, words)
    check_close(found, expected, KEYS, tolerance, f"{ranks} ranks")
    check_close(found, expected, ["lr"], 1e-12, f"{ranks} ranks")
    check_close(found, expected, ["tokens_seen"], 0.0, f"{ranks} ranks")


@case(120, ranks=[1, 2, 3])
def parity_fp32(context, ranks):
    """fp32 losses, gradient norms and learning rates are FSDP2's; at 3 ranks the shards are uneven."""
    compare(context, ranks, FP32)


@case(120)
def parity_accumulation(context):
    """Four microbatches a step, normalized by the step's tokens, are what FSDP2 computes."""
    compare(context, 2, [*FP32, "--training.global_batch_size", "16"])


@case(120, mode=["always", "never"])
def parity_reshard(context, mode):
    """When weights are freed does not change a number."""
    compare(context, 2, [*FP32, "--parallelism.fsdp_reshard_after_forward", mode])


@case(120)
def parity_hsdp(context):
    """Two replicas of two shards."""
    compare(context, 4, [*FP32, "--parallelism.data_parallel_replicate_degree", "2"])


@case(120)
def parity_data_parallel(context):
    """Two replicas of one shard: gradients are summed over replicas as over shards."""
    compare(context, 2, [*FP32, "--parallelism.data_parallel_replicate_degree", "2"])


@case(120, mode=["full", "selective"])
def parity_recompute(context, mode):
    """Activation checkpointing changes no number; the reference runs without it."""
    config = write_job(context, "reference", steps=STEPS)
    seed = make_seed_checkpoint(context, config)
    expected = run_reference(context, 2, ["--config", config, "--init-from", seed, *FP32])
    recompute = ["--activation_checkpoint.mode", mode, "--activation_checkpoint.selective_ac_option", "2"]
    check_close(run_program(context, 2, seed, [*FP32, *recompute]), expected, KEYS, FP32_TOLERANCE, mode)


@case(120)
def parity_text_folder(context):
    """A folder of text files is read in the bytewise order of its relative paths, and split over ranks in blocks."""
    compare(context, 2, [*FP32, "--training.dataset", "text", "--training.dataset_path", context.fixtures / "corpus", "--training.data_order", "torchtitan"])


@case(120, decay=["cosine", "sqrt"])
def parity_schedule(context, decay):
    """The other decay shapes, with a floor, a total that is not the number of steps, and an odd ratio."""
    words = ["--lr_scheduler.decay_type", decay, "--lr_scheduler.min_lr_factor", "0.1"]
    compare(context, 1, [*FP32, *words, "--lr_scheduler.total_steps", "25", "--lr_scheduler.decay_ratio", "0.5"])


@case(120, ranks=[1, 2])
def parity_block_causal(context, ranks):
    """Attention within documents, with and without recomputation, is what FSDP2 computes with the mask."""
    # Short documents, so that most rows hold the ends of several.
    corpus = context.folder / "short.jsonl"
    with open(corpus, "w", encoding="utf-8") as file:
        for line in open(context.fixtures / "corpus.jsonl", encoding="utf-8"):
            text = json.loads(line)["text"]
            for begin in range(0, min(len(text), 4000), 61):
                print(json.dumps({"text": text[begin : begin + 61]}), file=file)
    config = write_job(context, "reference", steps=STEPS)
    seed = make_seed_checkpoint(context, config)
    words = [*FP32, "--training.dataset_path", corpus]
    mask = ["--model.args.attn_mask_type", "block_causal"]
    expected = run_reference(context, ranks, ["--config", config, "--init-from", seed, *words, *mask])
    check_close(run_program(context, ranks, seed, [*words, *mask]), expected, KEYS, FP32_TOLERANCE, "block_causal")
    recompute = ["--activation_checkpoint.mode", "selective", "--activation_checkpoint.selective_ac_option", "op"]
    found = run_program(context, ranks, seed, [*words, *mask, *recompute], name="recompute")
    check_close(found, expected, KEYS, FP32_TOLERANCE, "block_causal, recomputed")
    causal = run_program(context, ranks, seed, words, name="causal")
    distance = relative_distance(causal[-1]["loss"], expected[-1]["loss"])
    expect(distance > 1e-3, f"the mask makes no difference on this data: {distance:.1e}")


def bf16_tolerance(context, ranks, config, seed):
    """The reference's rows, and (index of the step, key) -> how far a correct program may be from them."""
    words = ["--config", config, "--init-from", seed]
    expected = run_reference(context, ranks, words)
    variants = [
        run_reference(context, ranks, [*words, *variant], name="-".join(variant).strip("-"))
        for variant in (["--sdpa", "math"], ["--gemm", "native"], ["--swiglu", "fused"])
    ]

    def largest(index, key):
        return max(relative_distance(rows[i][key], expected[i][key]) for rows in variants for i in range(index + 1))

    for key in KEYS:
        expect(largest(STEPS - 1, key) < BF16_CEILING[key], f"the yardstick for {key} is {largest(STEPS - 1, key):.2e}")
    return expected, lambda index, key: max(BF16_MARGIN * largest(index, key), BF16_FLOOR)


@case(180, ranks=[1, 2])
def parity_bf16(context, ranks):
    """bf16 losses and gradient norms stay as near to FSDP2's as FSDP2's own kernels are to each other, times three."""
    config = write_job(context, "reference", steps=STEPS)
    seed = make_seed_checkpoint(context, config)
    expected, tolerance = bf16_tolerance(context, ranks, config, seed)
    found = run_program(context, ranks, seed, [])
    check_close(found, expected, KEYS, tolerance, f"{ranks} ranks")
