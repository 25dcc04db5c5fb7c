"""Asks transformers about conversations, as a part of make.py. The questions are tests/integration/golden_chat.py's."""
# This import lets the ones after it find tests/integration.
from peer_tools import write

import golden_chat as chat
import golden_families as families
from harness import expect
from make_families import build, read


def make_chat(context, output):
    """Writes down the tokens of each conversation, which of them the assistant wrote, and the mean loss of those, each
    conversation alone: over all tokens, and over the means of the conversations."""
    import torch
    from transformers import AutoTokenizer

    folder = context.folder / "chat"
    build(families.FAMILIES[chat.FAMILY], folder)
    model, tokenizer = read(folder), AutoTokenizer.from_pretrained(folder)
    rows, loss, labels, of_conversations = [], 0.0, 0, []
    for messages in chat.CONVERSATIONS:
        out = tokenizer.apply_chat_template(
            messages, chat_template=chat.MARKED, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
        )
        ids, mask = out["input_ids"], out["assistant_masks"]
        expect(sum(mask) > 0 and len(mask) == len(ids), f"mask {mask} of {ids}")
        rows.append({"ids": ids, "trained": mask})
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, :-1]
        each = torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]), reduction="none")
        of_answers = float((each.double() * torch.tensor(mask[1:])).sum())
        loss += of_answers
        labels += sum(mask[1:])
        of_conversations.append(of_answers / sum(mask[1:]))
    means = {"token": loss / labels, "sample": sum(of_conversations) / len(of_conversations)}
    write(output / "chat.json", {"conversations": rows, "labels": labels, "loss": means})


PARTS = {"chat": make_chat}
