"""Tests cpu.instructions: smaller instruction sets on larger processors; and the loops that no processor may reach."""
import itertools

from fixtures import write_job
from harness import ROOT, case, expect, file_of_build, read_rows, run

# A set that the processor lacks has no effect.
SETS = ["all", "avx512_bf16", "avx512", "avx2"]
ALL_KINDS = """
[validation]
enable = true
freq = 1
steps = 1
local_batch_size = 2
seq_len = 64
dataset = "c4_test"
dataset_path = "{corpus}"
"""
PROMPTS = 'prompts = ["import torch"]\nprompt_tokens = 4\n'  # under tensor parallelism there are none


def preload(context, name):
    return {"LD_PRELOAD": str(file_of_build(context, f"lib{name}.so"))}


@case(180, dtype=["float32", "bfloat16", "float16"], quick=["bfloat16"], wide=["float32", "float16"])
def no_reference_products(context, dtype):
    """No matmul of a training step, a validation or a generated token goes through ATen's reference loops, in any
    dtype, on any instruction set, alone or under tensor parallelism."""
    env = preload(context, "titan_reference_products")
    for name, ranks in itertools.product(SETS, (1, 2)):
        job = f"{name}-{ranks}"
        config = write_job(context, job, steps=2)
        validation = ALL_KINDS.format(corpus=context.fixtures / "corpus.jsonl") + (PROMPTS if ranks == 1 else "")
        config.write_text(config.read_text() + validation)
        words = ["--config", config, "--training.mixed_precision_param", dtype, "--cpu.instructions", name]
        text = run(context, ranks, [*words, "--parallelism.tensor_parallel_degree", ranks], name=job, env=env).text()
        expect(len(read_rows(context.dump(job) / "metrics.jsonl")) == 2, f"{job}: other steps")
        expect("validate step:  2" in text and (ranks > 1 or "sample after step 2" in text), f"{job}: {text}")


@case(60, processors=1)
def reference_products_are_seen(context):
    """The preloaded library ends the process on ATen's own matmul in float16, which no library has without AVX-512."""
    words = ["--config", write_job(context, "job", steps=1), "--training.mixed_precision_param", "float16"]
    words += ["--cpu.kernels", "aten", "--cpu.instructions", "avx2"]
    job = run(context, 1, words, env=preload(context, "titan_reference_products"), exit_code=98)
    expect("a product in Half reached ATen's reference loops" in job.text(), job.tail())


@case(60)
def slow_dtype_is_said(context):
    """A run whose dtype has no fast matmul on this processor says so in one line, with what to set; others do not."""
    def lines(name, *words):
        job = run(context, 2, ["--config", write_job(context, name, steps=1), "--cpu.instructions", "avx2", *words], name=name)
        return [line for line in job.text().splitlines() if "this processor has no instructions" in line]

    said = lines("slow", "--cpu.kernels", "aten", "--training.mixed_precision_param", "bfloat16")
    expect(len(said) == 1 and 'set cpu.kernels = "own", or training.mixed_precision_param = "float32"' in said[0], said)
    expect(lines("own", "--training.mixed_precision_param", "bfloat16") == [], "said with kernels of our own")
    expect(lines("float32", "--cpu.kernels", "aten", "--training.mixed_precision_param", "float32") == [], "said in float32")


@case(120, quick=True)
def default_run_on_avx2(context):
    """The default configuration trains on a processor with only AVX2, and its config.toml records the limit."""
    dump = context.dump("avx2")
    words = ["--config", ROOT / "configs/debug.toml", "--cpu.instructions", "avx2", "--training.steps", 4, "--metrics.log_freq", 1]
    words += ["--job.dump_folder", dump, "--checkpoint.no-enable", "--model.hf_assets_path", ROOT / "assets/tokenizer"]
    run(context, 2, [*words, "--training.dataset_path", ROOT / "assets/corpus/train"], name="avx2")
    losses = [float(row["loss"]) for row in read_rows(dump / "metrics.jsonl")]
    expect(len(losses) == 4 and losses[-1] < losses[0], f"losses {losses}")
    expect('instructions = "avx2"' in (dump / "config.toml").read_text(), "config.toml does not have the limit")
