"""Loads adapters with PEFT and the merged model with transformers, and prints how far they are apart, as JSON.

    python peft_peer.py BASE ADAPTER MERGED
"""
import json
import sys

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


@torch.no_grad()
def main(base, adapter, merged):
    theirs = load(merged)
    tokens = torch.randint(theirs.config.vocab_size, (2, 48), generator=torch.Generator().manual_seed(1))
    plain, wanted = load(base)(tokens).logits, theirs(tokens).logits
    model = PeftModel.from_pretrained(load(base), adapter).eval()
    found = model(tokens).logits
    weights = model.merge_and_unload().state_dict()
    names = set(weights) ^ set(theirs.state_dict())
    answers = {"logits": (found - wanted).abs().max().item(), "effect": (found - plain).abs().max().item()}
    answers |= {"size": wanted.abs().max().item(), "names": sorted(names)}
    answers |= {"weights": max((weights[name] - value).abs().max().item() for name, value in theirs.state_dict().items())}
    print(json.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
