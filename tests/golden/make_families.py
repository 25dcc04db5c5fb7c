"""Asks transformers about the families of models, as parts of make.py. The questions are
tests/integration/golden_families.py's."""
import shutil

# This import lets the ones after it find tests/integration.
from peer_tools import fill_by_formula, saved_files, transformers_losses, write

import golden
import golden_families as families
from harness import Context, expect


def build(family, folder):
    """Returns transformers' model of weights by formula, after save_pretrained has written it to `folder`."""
    import torch
    import transformers

    torch.set_num_threads(1)
    config = getattr(transformers, family.config)(
        **family.all_sizes, rope_parameters=dict(family.rope), tie_word_embeddings=family.tied,
        attn_implementation="eager", dtype="float32"
    )  # fmt: skip
    model = getattr(transformers, family.model)(config)
    fill_by_formula(model)
    model.save_pretrained(folder, max_shard_size=families.SHARD_BYTES)
    for file in golden.TOKENIZER.iterdir():
        shutil.copy(file, folder)
    return model


def read(folder):
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def log_probabilities(folder):
    """Returns the tokens of each prompt, and transformers' log-probabilities of every token behind it."""
    import torch
    from transformers import AutoTokenizer

    model, tokenizer, answers = read(folder), AutoTokenizer.from_pretrained(folder), []
    for prompt in families.PROMPTS:
        ids = tokenizer(prompt)["input_ids"]
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, -1]
        answers.append({"ids": ids, "log_probs": [round(x, 7) for x in logits.double().log_softmax(0).tolist()]})
    return answers


def make_families(context, output):
    """Writes down what save_pretrained writes of weights by formula, transformers' logits of that, and its losses of
    that and of our export."""
    answers = {}
    for name, family in families.FAMILIES.items():
        part = Context(program=context.program, folder=context.folder / name, fixtures=None)
        part.folder.mkdir()
        folder = part.folder / "theirs"
        answer = saved_files(folder, build(family, folder))
        expect(len(answer["files"]) > 1, f"{name}: one file only")
        answer["losses"] = transformers_losses(read(folder))
        answer["prompts"] = log_probabilities(folder)
        export = families.export(part, folder, "float32")
        ours = transformers_losses(read(export))
        expect(max(abs(a - b) for a, b in zip(ours, answer["losses"])) < 1e-6, f"{name}: the export has other losses")
        answers[name] = answer | {"export": golden.read_config(export)}
    write(output / "families.json", answers)


PARTS = {"families": make_families}
