"""Tests --dry-run: its numbers against runs, its verdict on devices, and its two output forms."""
import json
import re

from fixtures import write_job
from harness import ROOT, case, expect, run, start

RING = ["--parallelism.context_parallel_rotate_method", "alltoall"]
PREDICTED = {
    "plain": (1, ["--activation_checkpoint.mode", "none"]),
    "full": (2, ["--activation_checkpoint.mode", "full"]),
    "every_second": (2, ["--activation_checkpoint.mode", "selective", "--activation_checkpoint.selective_ac_option", "2"]),
    "by_operator": (2, ["--activation_checkpoint.mode", "selective", "--activation_checkpoint.selective_ac_option", "op"]),
    "float32": (2, ["--activation_checkpoint.mode", "none", "--training.mixed_precision_param", "float32"]),
    "kept": (2, ["--activation_checkpoint.mode", "none", "--parallelism.fsdp_reshard_after_forward", "never"]),
    "copies": (2, ["--parallelism.data_parallel_replicate_degree", 2, "--parallelism.data_parallel_shard_degree", 1]),
    "tensor": (2, ["--parallelism.tensor_parallel_degree", 2, "--activation_checkpoint.mode", "none", "--validation.prompts="]),
    "tensor_full": (2, ["--parallelism.tensor_parallel_degree", 2, "--activation_checkpoint.mode", "full", "--validation.prompts="]),
    "context": (2, ["--parallelism.context_parallel_degree", 2, "--activation_checkpoint.mode", "none"]),
    "context_ring": (2, ["--parallelism.context_parallel_degree", 2, *RING, "--activation_checkpoint.mode", "none"]),
    "context_full": (2, ["--parallelism.context_parallel_degree", 2, "--activation_checkpoint.mode", "full"]),
    "accumulated": (2, ["--activation_checkpoint.mode", "none", "--training.global_batch_size", 8]),
}
# Longer than the others: the last stage of a shorter microbatch is as small as the workspaces of its operators.
PIPELINE = ["--training.local_batch_size", 4, "--training.seq_len", 256, "--validation.prompts=", "--activation_checkpoint.mode", "none", "--parallelism.pipeline_parallel_degree", 2]
PREDICTED |= {
    "pipeline": (2, PIPELINE),
    "pipeline_gpipe": (2, [*PIPELINE, "--parallelism.pipeline_parallel_schedule", "GPipe"]),
    "pipeline_full": (2, [*PIPELINE, "--activation_checkpoint.mode", "full"]),
    "pipeline_zero_bubble": (2, [*PIPELINE, "--parallelism.pipeline_parallel_schedule", "InterleavedZeroBubble"]),
    "pipeline_v": (2, [*PIPELINE, "--parallelism.pipeline_parallel_schedule", "ZBVZeroBubble"]),
    "pipeline_sharded": (4, PIPELINE),
    "pipeline_always": (4, [*PIPELINE, "--parallelism.fsdp_reshard_after_forward", "always"]),
    "pipeline_tensor": (4, [*PIPELINE, "--parallelism.tensor_parallel_degree", 2]),
    "pipeline_accumulated": (2, [*PIPELINE, "--training.global_batch_size", 8]),
}
UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
# Predictions have no workspaces. A product packs its operands, on processors without products in bfloat16 as float32: of
# 256 tokens and the output projection, 2048 x 256, which is the largest.
WORKSPACE = 4 * 256 * (256 + 2048)


# The ordinary tests run eight modes, which have every kind of memory that the others have.
WIDE = set(PREDICTED) - {"plain", "by_operator", "kept", "copies", "tensor", "context_ring", "pipeline", "pipeline_sharded"}


@case(60, mode=list(PREDICTED), wide=WIDE)
def dry_run_predicts_memory(context, mode):
    """The predicted peak of each rank is within 3 % of what its tensors then take from the allocator, but for a workspace, plus
    what ranks exchange in shared memory: at most what the prediction calls gathered and reductions. Stages that are alone exchange nothing so."""
    ranks, options = PREDICTED[mode]
    words = ["--config", ROOT / "configs/debug.toml", "--training.steps", 2, "--lr_scheduler.warmup_steps", 1, "--training.device", "cpu"]
    words += ["--training.local_batch_size", 2, "--training.seq_len", 128]
    words += ["--model.hf_assets_path", context.fixtures / "tokenizer", "--training.dataset_path", context.fixtures / "corpus"]
    words += ["--job.dump_folder", context.dump("run"), *options]
    predicted, _ = dry_run_of(context, "dry", *words, "--world-size", ranks)
    text = run(context, 1, ["--nproc", ranks, *words, "--log-rank", f"0-{ranks - 1}"], "none").text()
    found = {who: float(size) * UNITS[unit] for who, size, unit in re.findall(r"(root|rank \d+) - .*took at most +([\d.]+) (\w+)", text)}
    expect(len(found) == ranks, f"{len(found)} figures of {ranks} ranks in\n{text}")
    stages = predicted["pipeline"]["ranks"] if predicted["pipeline"] else [{"device_bytes": predicted["peak_bytes"]}]
    wrong = []
    for rank in range(ranks):
        measured = found[f"rank {rank}" if rank else "root"]
        most = stages[rank // (ranks // len(stages))]["device_bytes"]
        least = most - sum(predicted["peak_by_kind_bytes"][kind] for kind in ("gathered", "reductions") if ranks > len(stages))
        if not 0.97 * least < measured < 1.03 * most + WORKSPACE:
            wrong.append(f"rank {rank}: predicted {least / 2**20:.1f} to {most / 2**20:.1f} MiB, measured {measured / 2**20:.1f} MiB")
    expect(not wrong, "\n".join(wrong))


@case(60, processors=1)
def context_parallelism_divides_activations(context):
    """The bytes that forward keeps for backward are divided by the ranks that share a sequence. Documents and positions, some bytes
    a token, are not: 1 % covers them. That runs take what is predicted is dry_run_predicts_memory's."""
    kept = {}
    for mode in ("none", "full"):
        for degree in (1, 2, 4):
            words = ["--config", write_job(context, f"{mode}-{degree}"), "--world-size", 4, "--training.seq_len", 512]
            words += ["--parallelism.context_parallel_degree", degree, "--activation_checkpoint.mode", mode]
            kept[degree] = dry_run_of(context, f"{mode}-{degree}", *words)[0]["kept_by_forward_bytes"]
        expect(all(abs(kept[n] * n / kept[1] - 1) < 0.01 for n in kept), f"{mode}: kept bytes by degree {kept}")


@case(120, processors=1)
def dry_run(context):
    """Every job file of configs/ passes --dry-run for 8 ranks, or for those of its mesh, at its configured degrees, and
    nothing is written."""
    ranks_of = {"llama3_70b_4d": 256}
    files = sorted((ROOT / "configs").glob("*.toml"))
    expect(files, "configs/ holds no job file")
    for path in files:
        dump = context.dump(path.stem)
        job = start(context, 1, ["--config", path, "--dry-run", "--world-size", ranks_of.get(path.stem, 8), "--job.dump_folder", dump], name=path.stem)
        code = job.wait(60)
        expect(code == 0, f"{path.name}: --dry-run exited with {code}\n{job.tail()}")
        expect(not dump.exists(), f"{path.name}: --dry-run wrote {dump}")


DEVICES = {"H100": (79.1, True), "NVIDIA A100-PCIE-40GB": (39.4, True), "rtx 4090": (23.5, True), "24 GiB": (24, True), "1MiB": (2**-10, False)}


@case(60, processors=1)
def dry_run_device(context):
    """A rank is compared with a device given by name or by its memory; if it does not fit, the exit code is 1."""
    words = ["--config", write_job(context, "small"), "--dry-run", "--device"]
    for index, (device, (gib, fits)) in enumerate(DEVICES.items()):
        text = run(context, 1, [*words, device], name=f"device{index}", exit_code=0 if fits else 1).text()
        line = next(line for line in text.splitlines() if device in line)
        found = re.search(r"(does not fit|fits) \(([\d.]+) (\w+) is (\d+) % of ([\d.]+) (\w+)", line)
        expect(found, line)
        expect((found[1] == "fits") == fits, line)
        expect(abs(float(found[5]) * UNITS[found[6]] - gib * 2**30) <= 0.006 * UNITS[found[6]], line)  # printed to a hundredth
    job = run(context, 1, [*words, "H1000"], name="unknown", exit_code=2)
    expect('no device "H1000" is known' in job.text() and "MI300X" in job.text(), job.tail())


def dry_run_of(context, name, *words, exit_code=0):
    """Returns the object of --json, which is all of standard output, and the job."""
    job = run(context, 1, ["--dry-run", "--json", *words], "none", name=name, exit_code=exit_code)
    return json.loads(job.out_path.read_text()), job


@case(120, processors=1)
def dry_run_adds_up(context):
    """The parts of the peak add up to it and none is negative, on a GPU and a CPU; more ranks need less."""
    for config in ("llama7b", "llama3_8b", "llama3_70b"):
        for device, more in (("gpu", ["--device", "100TiB"]), ("cpu", ["--training.device", "cpu"])):
            peaks = []
            for ranks in (8, 64):
                words = ["--config", ROOT / f"configs/{config}.toml", "--world-size", ranks, *more]
                words += ["--parallelism.data_parallel_replicate_degree", 1, "--parallelism.data_parallel_shard_degree", -1]
                found, _ = dry_run_of(context, f"{config}-{device}-{ranks}", *words)
                parts = found["peak_by_kind_bytes"]
                expect(all(size >= 0 for size in parts.values()), f"{config} at {ranks}: {parts}")
                expect(sum(parts.values()) == found["peak_bytes"] > 0, f"{config} at {ranks}: {found}")
                peaks.append(found["peak_bytes"])
            expect(peaks[0] > peaks[1], f"{config}: {peaks} bytes at 8 and 64 ranks")


@case(60, processors=1)
def dry_run_json(context):
    """--json prints the table's numbers as one object; the log goes to standard error."""
    words = ["--config", ROOT / "configs/llama7b.toml", "--training.seq_len", 8192]
    on_device = ["--world-size", 8, "--device", "80GiB"]
    found, job = dry_run_of(context, "json", *words, *on_device)
    expect("is longer than the 4096 tokens" in job.errors(), f"no warning on standard error:\n{job.tail()}")
    expect(found["fits"] and found["suggestions"] == [], f"{found}")
    expect(found["tokens_per_step"] == found["sequences_per_step"] * 8192 == 8 * 8192, f"{found}")
    expect(found["flops_per_step"] == found["flops_per_token"] * found["tokens_per_step"], f"{found}")
    expect(found["total_bytes"] == sum(found[key] for key in ("peak_bytes", "pooled_bytes", "context_bytes", "communicator_bytes")), f"{found}")
    table = run(context, 1, [*words, "--dry-run", *on_device], "none", name="table").out_path.read_text()
    expect("longer than" not in table, f"a warning in the table:\n{table}")
    expect(f"{found['parameters']:,}" in table, f"{found['parameters']} parameters are not in\n{table}")
    for name, flags, message in (
        ("without", ["--json"], "--json is for --dry-run"),
        ("overwrite", ["--dry-run", "--overwrite"], "--overwrite is for a run"),
        ("world", ["--world-size", 2], "--world-size 2 is for --dry-run and --print-config"),
    ):
        job = run(context, 1, [*words, *flags], "none", name=name, exit_code=2)
        expect(message in job.errors(), f"{name}: '{message}' is not in\n{job.tail()}")


@case(60, processors=1)
def dry_run_suggests(context):
    """If a run does not fit, --dry-run says what to change; with the change, it needs what was predicted."""
    words = ["--config", ROOT / "configs/llama3_8b.toml", "--world-size", 64, "--device", "A100-40GB"]
    words += ["--activation_checkpoint.mode", "none", "--training.local_batch_size", 4]
    found, _ = dry_run_of(context, "large", *words, exit_code=1)
    expect(not found["fits"] and 1 <= len(found["suggestions"]) <= 4, f"{found}")
    fits = [suggestion["fits"] for suggestion in found["suggestions"]]
    expect(fits == sorted(fits, reverse=True), f"those that fit are not first: {found['suggestions']}")
    by_change = {suggestion["change"]: suggestion["bytes"] for suggestion in found["suggestions"]}
    expect(all(size < found["total_bytes"] for size in by_change.values()), f"{found}")
    both = 'activation_checkpoint.mode = "full" and training.local_batch_size = 1'
    expect(both in by_change, f"{found['suggestions']}")
    words += ["--activation_checkpoint.mode", "full", "--training.local_batch_size", 1]
    then, _ = dry_run_of(context, "changed", *words)
    expect(then["total_bytes"] == by_change[both], f"{then['total_bytes']} bytes, {by_change[both]} were predicted")
