"""Answers questions with a model's folder alone, by transformers, and prints prompts, tokens and texts as JSON.

    python chat_peer.py FOLDER QUESTION ...
"""
import json
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


@torch.no_grad()
def main(folder, *questions):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    answers = []
    for question in questions:
        messages = [{"role": "user", "content": question}]
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        written = model.generate(**prompt, max_new_tokens=60, do_sample=False)[0, prompt["input_ids"].shape[1] :].tolist()
        text = tokenizer.decode(written, skip_special_tokens=True)
        answers.append({"prompt_ids": prompt["input_ids"][0].tolist(), "ids": written, "text": text})
    print(json.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
