"""Asks the peers about Qwen3, as parts of make.py. The questions are tests/integration/golden_qwen3.py's."""
# This import lets the ones after it find tests/integration.
from peer_tools import fill_by_formula, ours, peer_batches, saved_files, torchtitans, transformers_losses, write

import golden
import golden_qwen3 as qwen3
from harness import Context, expect


def theirs(context, ranks, name, *more, sizes=qwen3.SIZES):
    return torchtitans(context, ranks, name, ["--job.config_file", qwen3.write_job(context, name), *more], sizes)


def make_torchtitan(context, output):
    """Writes TorchTitan's seed checkpoint, its figures from there at one and two ranks, and its checkpoints."""
    theirs(context, 1, "seed", "--checkpoint.create_seed_checkpoint", "--checkpoint.last_save_model_only")
    golden.pack_checkpoint(context.dump("seed") / "checkpoint/step-0", output / f"resume_{qwen3.SEED}.zip")
    start = ["--checkpoint.initial_load_path", context.dump("seed") / "checkpoint/step-0"]
    answers = {}
    for ranks in (1, 2):
        answers[str(ranks)] = theirs(context, ranks, f"alone{ranks}", *start)
        half = context.dump(f"alone{ranks}") / f"checkpoint/step-{qwen3.HALF}"
        golden.pack_checkpoint(half, output / f"resume_qwen3_{ranks}.zip")
    write(output / "qwen3_torchtitan.json", answers)


def make_full(context, output):
    """Writes TorchTitan's figures of the full debugmodel, from its seed."""
    write(output / "qwen3_full.json", theirs(context, 1, "full", *qwen3.FULL, sizes={}))


def make_after_us(context, output):
    """Writes TorchTitan's figures from our checkpoints of step HALF on: those of one rank and of two, and, on two ranks,
    that of two pairs that share each layer. Starts from the committed seed checkpoint."""
    answers = {}
    for name, (giving, taking, words) in qwen3.HANDED_OVER.items():
        folder = context.folder / name
        folder.mkdir()
        part = Context(program=context.program, folder=folder, fixtures=None)
        start = qwen3.start_words(part)
        ours(part, giving, "we", *start, *words, sizes=qwen3.SIZES, job=qwen3.write_job(part, "we"))
        golden.hand_over(part, "we", "they", qwen3.HALF)
        answers[name] = theirs(part, taking, "they")
    write(output / "qwen3_after_us.json", answers)


def build(tie, folder):
    """Returns transformers' model of weights by formula, after save_pretrained has written it to `folder`."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.set_num_threads(1)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            **qwen3.HF_SIZES, rope_parameters=qwen3.HF_ROPE, tie_word_embeddings=qwen3.TIES[tie],
            attn_implementation="eager", dtype="float32"
        )
    )  # fmt: skip
    fill_by_formula(model)
    model.save_pretrained(folder, max_shard_size=qwen3.SHARD_BYTES)
    return model


def read(folder):
    import torch
    from transformers import Qwen3ForCausalLM

    return Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def last_logits(model):
    """Returns the first row of rank 0's first batch, and the logits of what follows it."""
    import torch

    ((tokens, _),) = peer_batches(golden.RANKS, 0, 1)
    with torch.no_grad():
        logits = model(torch.tensor(tokens[:1])).logits[0, -1]
    return {"tokens": tokens[0], "logits": [round(value, 6) for value in logits.tolist()]}


def make_transformers(context, output):
    """Writes down what save_pretrained writes of weights by formula, and transformers' losses and logits of it."""
    answers = {}
    for tie in qwen3.TIES:
        folder = context.folder / tie
        model = build(tie, folder)
        answers[tie] = saved_files(folder, model)
        expect(len(answers[tie]["files"]) > 1, f"{tie}: one file only")
        answers[tie] |= {"losses": transformers_losses(read(folder)), **last_logits(read(folder))}
    write(output / "qwen3_transformers.json", answers)


def make_exports(context, output):
    """Writes the config that transformers reads from our exports, and its losses of them."""
    answers = {}
    for tie, ours_of in qwen3.MODELS.items():
        part = Context(program=context.program, folder=context.folder / f"export_{tie}", fixtures=None)
        part.folder.mkdir()
        build(tie, part.folder / "theirs")
        answers[tie] = {}
        for dtype in ("float32", "bfloat16"):
            export = golden.export(part, part.folder / "theirs", dtype, ours_of)
            model = read(export)
            tied = model.lm_head.weight is model.model.embed_tokens.weight
            expect(tied == qwen3.TIES[tie], f"transformers reads our {tie} export as tied: {tied}")
            answers[tie][dtype] = {"config": golden.read_config(export), "losses": transformers_losses(model)}
    write(output / "qwen3_exports.json", answers)


PARTS = {
    "qwen3_torchtitan": make_torchtitan,
    "qwen3_full": make_full,
    "qwen3_after_us": make_after_us,
    "qwen3_transformers": make_transformers,
    "qwen3_exports": make_exports,
}
