"""Asks TorchTitan and transformers for the answers that the integration cases compare the program with.

    TITAN_PEER_PYTHON tests/golden/make.py [--program build/release/titan-train] [--output FOLDER] [PART ...]

TITAN_PEER_PYTHON is a Python with torchtitan 0.2.2 and transformers; README.md says how to make one. Without a PART all
but "evaluation" are made, which needs lm-eval; without --output they replace the committed ones. The questions are those of tests/integration/golden*.py.
"""
import argparse
import json
import os
import pathlib
import re
import tempfile

# This import lets the ones after it find tests/integration.
from peer_tools import ROOT, fill_by_formula, ours, peer_batches, saved_files, torchtitans, transformers_losses, write

import golden
import make_chat
import make_evaluation
import make_families
import make_pipeline
import make_qwen3
import torchtitan_configs
from checkpoint_tools import train
from harness import Context, end_all_jobs, expect

# ---------------------------------------------------------------------------------------------------- configuration

KINDS = {"bool": "boolean", "int": "integer", "float": "number", "str": "string"}
KINDS |= {"list[str]": "list of strings", "list[list[str]]": "list of lists of strings"}


def kind_of(annotation):
    """The program's name for a type of TorchTitan's."""
    name = re.sub(r"<class '(\w+)'>", r"\1", annotation)
    name = re.sub(r"typing.Optional\[(.*)\]", r"\1 | None", name)
    parts = [part.strip() for part in name.split("|")]
    optional = " or None" if "None" in parts else ""
    parts = ["str" if part.startswith(("typing.Literal", "Literal")) else part for part in parts if part != "None"]
    if parts == ["float", "int"]:
        parts = ["float"]
    if parts == ["list[str]", "str"]:
        parts = ["list[str]"]  # a file may give one string, too
    expect(len(parts) == 1 and parts[0] in KINDS, f"no name for the type {annotation}")
    return KINDS[parts[0]] + optional


def walk(table, prefix=""):
    """(key, value, annotation) of every key."""
    import dataclasses

    for field in dataclasses.fields(table):
        value = getattr(table, field.name)
        if dataclasses.is_dataclass(value):
            yield from walk(value, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, value, str(field.type)


def make_config(context, output):
    """Every key of JobConfig with its type and default; and of each command line what differs from the defaults."""
    from torchtitan.config import ConfigManager, JobConfig

    schema = {key: {"type": kind_of(annotation), "default": value} for key, value, annotation in walk(JobConfig())}
    command_lines = {}
    for name in torchtitan_configs.PUBLISHED:
        path = torchtitan_configs.write_published(context.folder, name)
        command_lines[name] = {}
        for words in torchtitan_configs.OVERRIDES:
            parsed = ConfigManager().parse_args(["--job.config_file", str(path), *words])
            changed = {key: value for key, value, _ in walk(parsed) if repr(value) != repr(schema[key]["default"])}
            expect(changed["job.config_file"] == str(path), f"job.config_file is {changed['job.config_file']}")
            command_lines[name][" ".join(words)] = changed | {"job.config_file": path.name}
    write(output / "config.json", {"schema": schema, "command_lines": command_lines})


# ------------------------------------------------------------------------------------------------------------- data


def make_batches(context, output):
    """The hashes of what each of one and two ranks gets, row by row."""
    tokens = [token for inputs, _ in peer_batches(1, 0, 20) for row in inputs for token in row]
    documents = len((golden.CORPUS / "data.jsonl").read_text().splitlines())
    expect(tokens.count(tokens[0]) > documents, "the data did not start again: use less of it")
    hashes = {
        str(ranks): [
            [golden.row_hash(*row) for batch in peer_batches(ranks, rank, 20) for row in zip(*batch)] for rank in range(ranks)
        ]
        for ranks in (1, 2)
    }
    write(output / "batches.json", hashes)


# ------------------------------------------------------------------------------------------------------------- jobs


def make_tensor(context, output):
    """TorchTitan's figures with tensor parallelism: going on from our checkpoint of a 2-D mesh on another one, alone on that
    mesh, and going on with tensor parallelism alone from our checkpoint of one rank. And its checkpoint of the 2-D mesh."""
    sizes = golden.TENSOR_SIZES

    def theirs(ranks, name, *more):
        return torchtitans(context, ranks, name, ["--job.config_file", golden.write_job(context, name), *more], sizes)

    ours(context, 4, "we_mesh", *golden.TENSOR, sizes=sizes)
    golden.hand_over(context, "we_mesh", "they_sharded")
    ours(context, 1, "we_single", sizes=sizes)
    golden.hand_over(context, "we_single", "they_tensor")
    answers = {
        "sharded_after_us": theirs(2, "they_sharded"),
        "tensor_after_us": theirs(2, "they_tensor", *golden.TENSOR, *golden.NEVER_CLIPPED),
        "alone": theirs(4, "they_mesh", *golden.TENSOR),
    }
    golden.pack_checkpoint(context.dump("they_mesh") / f"checkpoint/step-{golden.HALF}", output / "resume_tensor.zip")
    write(output / "tensor.json", answers)


def seed(context, sizes=None):
    """Has one rank of ours draw the weights. Returns the words with which both programs start from them."""
    job = golden.write_job(context, "seed")
    train(context, 1, ["--config", job, *golden.size_words(sizes or golden.SIZES), "--checkpoint.create_seed_checkpoint"], "seed")
    return ["--checkpoint.initial_load_path", context.dump("seed") / "checkpoint/step-0"]


def after_our_weights(context, mesh):
    """Lets ours train on a mesh of 2 and of 4 ranks. Returns a function that gives TorchTitan's figures of a job, and the
    words with which a job starts from the weights that one rank of ours draws."""
    start = seed(context)
    for ranks in (2, 4):
        ours(context, ranks, f"we_{ranks}", *mesh)
        golden.hand_over(context, f"we_{ranks}", f"they_after_us_{ranks}")

    def theirs(ranks, name, *more):
        return torchtitans(context, ranks, name, ["--job.config_file", golden.write_job(context, name), *more])

    return theirs, start


def make_context(context, output):
    """TorchTitan's figures with context parallelism, from the weights that one rank of ours draws: alone, and with
    fully_shard besides. Going on from our checkpoints of both meshes: on that mesh, and with fully_shard alone. And its
    checkpoint of the first."""
    theirs, start = after_our_weights(context, golden.CONTEXT)
    answers = {
        "alone": theirs(2, "they_2", *golden.CONTEXT, *start),
        "sharded": theirs(4, "they_4", *golden.CONTEXT, *start),
        "after_us": theirs(2, "they_after_us_2", *golden.CONTEXT),
        "without_after_us": theirs(2, "they_after_us_4"),
    }
    golden.pack_checkpoint(context.dump("they_2") / f"checkpoint/step-{golden.HALF}", output / "resume_context.zip")
    write(output / "context.json", answers)


def make_stages(context, output):
    """TorchTitan's figures with pipeline parallelism, from the weights that one rank of ours draws: alone, with two
    distant stages on each rank, and with fully_shard besides, also in bf16. Going on from our checkpoints of both
    meshes: on that mesh, and without a pipeline. And its checkpoint of the second mesh."""
    theirs, start = after_our_weights(context, golden.STAGES)
    answers = {
        "alone": theirs(2, "they_2", *golden.STAGES, *start),
        "interleaved": theirs(2, "they_interleaved", *golden.STAGES, *golden.INTERLEAVED, *start),
        "sharded": theirs(4, "they_4", *golden.STAGES, *start),
        "sharded_bf16": theirs(4, "they_bf16", *golden.STAGES, *golden.BF16, *start),
        "after_us": theirs(2, "they_after_us_2", *golden.STAGES),
        "without_after_us": theirs(2, "they_after_us_4", *golden.ALWAYS_CLIPPED),
    }
    golden.pack_checkpoint(context.dump("they_4") / f"checkpoint/step-{golden.HALF}", output / "resume_stages.zip")
    write(output / "stages.json", answers)


def make_float8(context, output):
    """The figures of TorchTitan with torchao's float8, from the weights that one rank of ours draws, by recipe
    and without float8: with float32 around the products on one rank, and with bfloat16 and fully_shard on two; there also
    with weights gathered in float8."""
    start = seed(context, golden.FLOAT8_SIZES)

    def theirs(ranks, name, *more):
        words = ["--job.config_file", golden.write_job(context, name), *golden.FLOAT8_STEPS, *start, *more]
        return torchtitans(context, ranks, name, words, golden.FLOAT8_SIZES)

    answers = {}
    for recipe in golden.FLOAT8_RECIPES:
        words = [*golden.FLOAT8, "--quantize.linear.float8.recipe_name", recipe]
        answers[recipe] = theirs(1, f"they_{recipe}", *words)
        answers[f"{recipe}, bfloat16"] = theirs(2, f"they_{recipe}_bf16", *words, *golden.BF16)
    answers["gathered, bfloat16"] = theirs(2, "they_gathered", *golden.FLOAT8, *golden.FLOAT8_GATHERED, *golden.BF16)
    for name, ranks, words in (("without", 1, []), ("without, bfloat16", 2, golden.BF16)):
        answers[name] = theirs(ranks, f"they_{ranks}", *words)
    write(output / "float8.json", answers)


def make_debug_toml(context, output):
    """TorchTitan's figures of its own debug_model.toml."""
    config = torchtitan_configs.write_published(context.folder, "debug_model")
    words = ["--job.config_file", config, *golden.DEBUG_WORDS, "--job.dump_folder", context.dump("theirs")]
    write(output / "debug_toml.json", torchtitans(context, 1, "theirs", words, sizes={}))


def make_tensorboard(context, output):
    """The tags of the scalars that TorchTitan writes for TensorBoard, of steps and of validation."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    words = ["--job.config_file", golden.write_job(context, "tags", steps=2), "--metrics.enable_tensorboard"]
    words += ["--validation.enable", "--validation.dataset", "c4_test", "--validation.dataset_path", golden.CORPUS]
    words += ["--validation.freq", "2", "--validation.steps", "1", "--validation.seq_len", "64", "--checkpoint.no-enable"]
    torchtitans(context, 1, "tags", words)
    tags = []
    for file in context.dump("tags").rglob("events.out.tfevents.*"):
        events = EventAccumulator(str(file)).Reload()
        tags += events.Tags()["scalars"]
    expect(len(tags) == len(set(tags)) > 0, f"TorchTitan's tags are {tags}")
    write(output / "tensorboard.json", {"scalars": sorted(tags)})


def make_resume(context, output):
    """TorchTitan's figures of a whole job and of one that goes on from our checkpoint; and TorchTitan's checkpoint."""
    answers = {}
    for ranks in (1, 2):
        folder = context.folder / f"ranks{ranks}"
        folder.mkdir()
        part = Context(program=context.program, folder=folder, fixtures=None)
        ours(part, ranks, "we_alone")
        golden.hand_over(part, "we_alone", "they_after_us")
        after_us = torchtitans(part, ranks, "they_after_us")
        alone = torchtitans(part, ranks, "they_alone")
        golden.pack_checkpoint(part.dump("they_alone") / f"checkpoint/step-{golden.HALF}", output / f"resume_{ranks}.zip")
        answers[str(ranks)] = {"alone": alone, "after_us": after_us}
    write(output / "resume.json", answers)


# ----------------------------------------------------------------------------------------------------- transformers


def transformers_tokenizer(folder):
    """Returns what AutoTokenizer makes of an export: its special tokens and the ids of a few texts."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = [tokenizer(text)["input_ids"] for text in golden.TEXTS]
    return {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id, "ids": ids}


def save_formula_weights(folder):
    """transformers' model of weights by formula, as save_pretrained writes it."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(1)
    config = LlamaConfig(
        **golden.HF_SIZES, rope_parameters=golden.HF_ROPE, tie_word_embeddings=False, attn_implementation="eager", dtype="float32"
    )
    model = LlamaForCausalLM(config)
    fill_by_formula(model)
    model.save_pretrained(folder, max_shard_size=golden.SHARD_BYTES)
    return model


def make_transformers(context, output):
    """Writes down what save_pretrained writes, and transformers' losses of that and of our exports."""
    import torch
    from transformers import LlamaForCausalLM

    folder = context.folder / "theirs"
    model = save_formula_weights(folder)
    answers = saved_files(folder, model)
    answers["losses"] = transformers_losses(LlamaForCausalLM.from_pretrained(folder, attn_implementation="eager"))
    answers["exports"] = {}
    for dtype in ("float32", "bfloat16"):
        export = golden.export(context, folder, dtype)
        read = LlamaForCausalLM.from_pretrained(export, dtype=torch.float32, attn_implementation="eager")
        answers["exports"][dtype] = {"config": golden.read_config(export), "losses": transformers_losses(read)}
        answers["exports"][dtype]["tokenizer"] = transformers_tokenizer(export)
    write(output / "transformers.json", answers)


def make_config_variants(context, output):
    """Writes what transformers makes of each config.json, as far as it decides a Llama's numbers."""
    import transformers

    answers = {}
    for variant in golden.CONFIG_VARIANTS:
        answer = None
        if not variant["refused"]:
            folder = context.folder / "variants" / variant["name"]
            folder.mkdir(parents=True)
            (folder / "config.json").write_text(json.dumps(variant["config"]))
            config = transformers.AutoConfig.from_pretrained(folder)
            rope = config.rope_parameters
            scaling = {name: value for name, value in rope.items() if name not in ("rope_theta", "type")}
            answer = {
                "heads": config.num_attention_heads, "kv_heads": config.num_key_value_heads, "head_dim": config.head_dim or 0,
                "eps": config.rms_norm_eps, "positions": config.max_position_embeddings, "theta": float(rope["rope_theta"]),
                "scaling": scaling if rope["rope_type"] != "default" else None,
            }  # fmt: skip
        answers[variant["name"]] = {"refused": variant["refused"], "config": variant["config"], "answer": answer}
    write(output / "config_variants.json", answers)


def continue_greedily(folder, prompt_ids):
    """Returns what transformers' generate() writes after each prompt, at most WRITTEN tokens."""
    import torch
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    written = []
    for ids in prompt_ids:
        result = model.generate(
            torch.tensor([ids]), do_sample=False, max_new_tokens=golden.WRITTEN, eos_token_id=golden.STOP_IDS,
            pad_token_id=0, return_dict_in_generate=True, output_logits=True
        )  # fmt: skip
        for logits in result.logits:
            best, next_best = logits[0].topk(2).values.tolist()
            expect(best - next_best > 1e-2, f"another machine may choose otherwise: {best}, {next_best}; take other prompts")
        written.append(result.sequences[0, len(ids) :].tolist())
    return written


def make_generate(context, output):
    """Writes down what transformers' generate() says with weights by formula; our export of them must not change it."""
    from transformers import PreTrainedTokenizerFast

    theirs = context.folder / "theirs"
    save_formula_weights(theirs)
    export = golden.convert_there_and_back(context, theirs)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(golden.TOKENIZER / "tokenizer.json"))
    prompt_ids = [[golden.BOS_ID, *tokenizer.encode(text, add_special_tokens=False)] for text in golden.PROMPTS]
    written = continue_greedily(theirs, prompt_ids)
    expect(continue_greedily(export, prompt_ids) == written, "transformers writes something else from our export")
    decode = [tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False) for ids in written]
    rows = zip(prompt_ids, written, decode)
    write(output / "generate.json", dict(zip(golden.PROMPTS, (dict(zip(("prompt_ids", "ids", "text"), row)) for row in rows))))


# ------------------------------------------------------------------------------------------------------------------


PARTS = {
    "config": make_config,
    "batches": make_batches,
    "debug_toml": make_debug_toml,
    "tensorboard": make_tensorboard,
    "resume": make_resume,
    "tensor": make_tensor,
    "context": make_context,
    "stages": make_stages,
    "float8": make_float8,
    "transformers": make_transformers,
    "generate": make_generate,
    "config_variants": make_config_variants,
    **make_qwen3.PARTS,
    **make_families.PARTS,
    **make_chat.PARTS,
    **make_pipeline.PARTS,
    **make_evaluation.PARTS,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=ROOT / "build/release/titan-train", type=pathlib.Path)
    parser.add_argument("--output", default=golden.GOLDEN, type=pathlib.Path)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "HF_HOME": f"{folder}/hf"}
        context = Context(program=options.program.resolve(), folder=pathlib.Path(folder), fixtures=None)
        try:
            for part in options.parts or (part for part in PARTS if part not in make_evaluation.PARTS):
                PARTS[part](context, options.output)
        finally:
            end_all_jobs()


if __name__ == "__main__":
    main()
