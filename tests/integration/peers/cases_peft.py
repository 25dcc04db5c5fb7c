"""Tests that PEFT loads the adapters of a run, and computes with them what the merged model computes."""
import json
import subprocess

import golden
import golden_families as families
from cases_convert import command
from cases_families import their_folder
from checkpoint_tools import SAVE, train
from harness import ROOT, TIME_SCALE, case, expect, peer_python, read_rows, relative_distance

LORA = ["--lora.rank", 4, "--lora.alpha", 12]
# fp32 on both sides; a logit is a sum of 32 products, after four residual sums: a hundred roundings of 2^-24.
TOLERANCE = 100 * 2**-24


def losses(context, folder, name, words):
    """Returns the losses of steps that change nothing, of the model that `folder` describes."""
    job = families.write_job(context, folder, name, golden.WEIGHT_STEPS)
    train(context, 2, ["--config", job, *golden.FP32, *golden.STILL, "--checkpoint.load_only", *words], name)
    return [row["loss"] for row in read_rows(context.dump(name) / "metrics.jsonl")]


@case(120, family=["llama31", "llama32", "qwen2", "qwen25", "qwen3", "smollm3"])
def peft_reads_ours(context, family):
    """PEFT's logits with an adapter are transformers' with the merged weights, which have the run's losses."""
    python = peer_python("peft")
    base, _ = their_folder(context, family)
    job = families.write_job(context, base, "run", 6)
    train(context, 2, ["--config", job, *golden.FP32, *LORA, *SAVE, "--optimizer.lr", "1e-2", "--lr_scheduler.warmup_steps", 1])
    step, adapter, merged = context.dump("run") / "checkpoint/step-6", context.folder / "adapter", context.folder / "merged"
    command(context, "convert", step, adapter, "--to", "hf")
    command(context, "convert", step, merged, "--to", "hf", "--merge")
    config = json.loads((adapter / "adapter_config.json").read_text())
    expect(config["base_model_name_or_path"] == str(base), f"{config}")
    script = ROOT / "tests/integration/peers/peft_peer.py"
    done = subprocess.run([python, script, base, adapter, merged], capture_output=True, text=True, timeout=100 * TIME_SCALE)
    expect(done.returncode == 0, done.stderr[-3000:])
    expect("adapter keys" not in done.stderr, done.stderr[-3000:])  # PEFT warns of those that it misses
    found = json.loads(done.stdout)
    expect(found["effect"] > 0.01 and not found["names"], f"{found}")
    expect(found["logits"] <= TOLERANCE * found["size"], f"logits: {found}")
    expect(found["weights"] <= 2**-20, f"merged weights: {found}")
    load = ["--checkpoint.enable", "--checkpoint.no-initial_load_in_hf", "--checkpoint.initial_load_path", step]
    for ours, other in zip(losses(context, base, "adapted", [*load, *LORA]), losses(context, merged, "of_merged", [])):
        expect(relative_distance(ours, other) < 1e-5, f"loss {ours} with adapters, {other} merged")
