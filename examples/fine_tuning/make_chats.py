#!/usr/bin/env python3
"""Makes conversations about titan-train's own keys, and questions that test a model on them.

usage: titan-train --print-docs | python3 make_chats.py FOLDER

Each key gives two facts: what it does, and its default. The files in FOLDER are
  train.jsonl        conversations: each fact in ten wordings
  validation.jsonl   conversations: each fact in two other wordings
  questions.jsonl    multiple choice in those two wordings: the right answer, and those about three other keys

So the questions test whether a model has learned the facts, however they are asked for, and not whether it can guess
facts that it was never told. The files depend on nothing but the keys.
"""

import json
import re
import sys
from pathlib import Path

DEFAULT = [
    "What is the default of {}?",
    "Which value has {} by default?",
    "Tell me the default of {}.",
    "{} is not in my file. What is its value?",
    "What is {} if I do not set it?",
    "I leave out {}. Which value does it get?",
    "How is {} set by default?",
    "{}: which default?",
    "Say the default of {}.",
    "Nobody has set {}. What is it then?",
]
DEFAULT_HELD_OUT = ["What does {} default to?", "Which value is taken for {} if nothing is set?"]
PURPOSE = [
    "What does {} do?",
    "What is {} for?",
    "Explain {}.",
    "What can I say with {}?",
    "My file has {}. What does that mean?",
    "What is the meaning of {}?",
    "Why would I set {}?",
    "Tell me about {}.",
    "I found {} in a job. What is it?",
    "Which purpose has {}?",
]
PURPOSE_HELD_OUT = ["Describe {} to me.", "What do I set with {}?"]


def read_keys(docs):
    """Yields the name, type, default and description of each key that the tables call supported."""
    table = ""
    for line in docs:
        if heading := re.match(r"### \[(.+)\]$", line):
            table = heading[1]
        cells = [cell.strip().replace("\\", "") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 6 and cells[5] == "supported":
            name, kind, default, _, description, _ = cells
            yield f"{table}.{name.strip('`')}", kind.split()[0], default.strip("`").strip('"'), description


def first_statement(description):
    """Returns the first statement of a description as a sentence, and None if it says too little."""
    words = re.split(r"; |\. ", re.sub(r" \(.*?\)", "", description))[0]
    return f"{words[0].upper()}{words[1:]}." if len(words.split()) > 3 else None


def facts_of(name, kind, default, description):
    """Yields each fact: wordings, held-out wordings, answer, and the kind of the answer (None if it is not tested)."""
    # Most defaults are true, false or None: who always says false is often right.
    tested = kind in ("integer", "number", "string") and default not in ("", "None")
    number = "text" if kind == "string" else "number"
    yield DEFAULT, DEFAULT_HELD_OUT, f"The default is {default or 'empty'}.", number if tested else None
    if purpose := first_statement(description):
        yield PURPOSE, PURPOSE_HELD_OUT, purpose, "purpose"


def conversation(question, answer):
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


def multiple_choice(question, answer, answers, gold):
    """Returns a question in the form that chat_template.jinja gives it; wrong answers are those about the next keys."""
    at = answers.index(answer)
    choices = [answers[(at + step) % len(answers)] for step in (1, 2, 3)]
    choices.insert(gold, answer)
    return {"query": f"user: {question}\nassistant:", "choices": choices, "gold": gold}


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    print(f"{path}: {len(rows)} lines")


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: titan-train --print-docs | python3 make_chats.py FOLDER")
    folder = Path(sys.argv[1])
    facts = [(key[0], *fact) for key in read_keys(sys.stdin) for fact in facts_of(*key)]
    if not facts:
        sys.exit("make_chats.py: standard input has no table of keys; expected what titan-train --print-docs prints")
    folder.mkdir(parents=True, exist_ok=True)
    answers = {}  # kind -> all different answers of it, in the order of the keys
    for *_, answer, kind in facts:
        if answer not in answers.setdefault(kind, []):
            answers[kind].append(answer)
    train, validation, questions = [], [], []
    for name, wordings, held_out, answer, kind in facts:
        train += [conversation(wording.format(name), answer) for wording in wordings]
        validation += [conversation(wording.format(name), answer) for wording in held_out]
        if kind:
            wording = held_out[len(questions) // 4 % 2]
            questions.append(multiple_choice(wording.format(name), answer, answers[kind], len(questions) % 4))
    write(folder / "train.jsonl", train)
    write(folder / "validation.jsonl", validation)
    write(folder / "questions.jsonl", questions)


if __name__ == "__main__":
    main()
