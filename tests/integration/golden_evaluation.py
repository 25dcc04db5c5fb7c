"""The questions about scores on tasks that tests/golden answers: golden.py has what they share.

One tiny Llama in transformers' format, with a tokenizer that has every byte, and a few records of our own in the
formats of the data sets. tests/golden/make_evaluation.py asks lm-evaluation-harness about them.
"""
import json

import golden

CONTEXT = 192  # tokens; some records are longer
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32, "intermediate_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 320, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "max_position_embeddings": CONTEXT, "tie_word_embeddings": False, "hidden_act": "silu",
    "bos_token_id": 288, "eos_token_id": 289, "dtype": "float32",
}  # fmt: skip


def _bytes():
    """Returns the characters that stand for the 256 bytes in a byte-level vocabulary."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return [chr(byte) for byte in plain] + [chr(256 + index) for index in range(len(others))]


def write_tokenizer(folder):
    """Writes golden.TOKENIZER with the bytes that it lacks; BOS and EOS follow them."""
    tokenizer = json.loads((golden.TOKENIZER / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    missing = [character for character in _bytes() if character not in vocabulary]
    vocabulary |= {character: len(vocabulary) + index for index, character in enumerate(missing)}
    for index, token in enumerate(tokenizer["added_tokens"]):
        token["id"] = len(vocabulary) + index
    template = tokenizer["post_processor"]["processors"][1]
    template["special_tokens"]["<|begin_of_text|>"]["ids"] = [len(vocabulary)]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
    config = json.loads((golden.TOKENIZER / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"tokenizer_class": "PreTrainedTokenizerFast"}))


def write_model(folder, context=CONTEXT):
    """Writes the model and its tokenizer in transformers' format; weights are by golden.weight()."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(LLAMA | {"max_position_embeddings": context}))
    write_tokenizer(folder)
    dim, hidden, vocabulary, head = LLAMA["hidden_size"], LLAMA["intermediate_size"], LLAMA["vocab_size"], 8
    shapes = {"model.embed_tokens.weight": [vocabulary, dim], "model.norm.weight": [dim], "lm_head.weight": [vocabulary, dim]}
    for layer in range(LLAMA["num_hidden_layers"]):
        name = f"model.layers.{layer}"
        shapes |= {f"{name}.{norm}.weight": [dim] for norm in ("input_layernorm", "post_attention_layernorm")}
        shapes |= {f"{name}.self_attn.{which}_proj.weight": [dim, dim] for which in ("q", "o")}
        shapes |= {f"{name}.self_attn.{which}_proj.weight": [2 * head, dim] for which in ("k", "v")}
        shapes |= {f"{name}.mlp.{which}_proj.weight": [hidden, dim] for which in ("gate", "up")}
        shapes[f"{name}.mlp.down_proj.weight"] = [dim, hidden]
    golden.write_safetensors(folder / "model.safetensors", shapes)


# Records of our own. They have what the formats do to a text: marks of WikiHow's pages, capitals, several blanks,
# letters and digits as labels, answers of several lengths, letters of two bytes, and texts that are too long.
HELLASWAG = [
    {"activity_label": "Baking bread", "ctx_a": "A baker puts flour on a table.", "ctx_b": "the BAKER then",
     "endings": ["kneads the dough.", "sings a song about  rivers.", "[title] climbs the oven.", "reads."], "label": "0"},
    {"activity_label": "Mowing the lawn", "ctx_a": "[header] How to mow [title] Check the blades. [step] Turn it over.", "ctx_b": "",
     "endings": ["Look at [substeps] each one.", "Fill the pond.", "Call the mill, and wait.", "Never mind [the] rest [of it."], "label": "2"},
    {"activity_label": "Ropes", "ctx_a": " Two sailors pull  at a rope.", "ctx_b": "élan and ÖL, they",
     "endings": ["let go.", "tie it to the mast [step] and rest.", "cut it in two, three and four pieces.", "eat."], "label": "3"},
    {"activity_label": "Rain", "ctx_a": "It rains on the mill.", "ctx_b": "a hen",
     "endings": ["walks under the cart.", "swims.", "sees the sun; it is late.", "is not a hen\nbut [a\nduck]."], "label": 1},
]  # fmt: skip
ARC = [
    {"id": "a", "question": "Which of these is water when it is cold?", "answerKey": "C",
     "choices": {"text": ["steam", "a cloud over the hills", "ice", "the sea"], "label": ["A", "B", "C", "D"]}},
    {"id": "b", "question": "What does a mill need?", "answerKey": "2",
     "choices": {"text": ["light", "wind or water", "two hens"], "label": ["1", "2", "3"]}},
    {"id": "c", "question": "The miller has " + "one sack, and then " * 24 + "how many?", "answerKey": "A",
     "choices": {"text": ["fifteen", "two", "none at all"], "label": ["A", "B", "C"]}},
    {"id": "d", "question": "Who made it? ", "answerKey": "E",
     "choices": {"text": ["a", "b", "Zoë", "no one", "the smith"], "label": ["A", "B", "C", "D", "E"]}},
]  # fmt: skip
MMLU = [
    {"subject": "anatomy", "question": "How many hands has a man?", "choices": ["one", "two", "three", "four"], "answer": 0},
    {"subject": "anatomy", "question": " Where is the heart? \n", "choices": ["left", "right", "in the mill", "it is not"], "answer": 0},
    {"subject": "abstract_algebra", "question": "What is 2 + 2?", "choices": ["1", "2", "3", "4"], "answer": 3},
    {"subject": "abstract_algebra", "question": "Is it a ring?", "choices": ["Yes, it is", "No", "At times", "A field"], "answer": 3},
    {"subject": "abstract_algebra", "question": "Is it a group?", "choices": ["No", "Yes", "Both", "None"], "answer": 1},
]  # fmt: skip
CHOICE = [
    {"query": "the rain falls on the ", "choices": ["mill", "hen and the cart"], "gold": 0},
    {"query": "", "choices": ["the", "a note", "öäü ß"], "gold": 2},
    {"query": "one, two,\n\n", "choices": ["three", "3", "drei", "three and four"], "gold": 3},
    {"query": "<|begin_of_text|>the mill", "choices": ["stands", "is"], "gold": 1},
]  # fmt: skip
TEXTS = [
    {"text": "the mill stands by the water, and the water turns the wheel."},
    {"text": "The smith has two hammers; one of them is new.\n\n" * 24},
    {"text": "  blanks before,  and after \u00a0 it \n"},
    {"text": "<|begin_of_text|>x"},
    {"text": "a" * CONTEXT + " note"},
]
RECORDS = {"hellaswag": HELLASWAG, "arc": ARC, "mmlu": MMLU, "choice": CHOICE, "jsonl": TEXTS}

# Solved questions. A question is among them twice: it is left out where lm-evaluation-harness leaves it out. There are
# more than 21 of ARC, from where on Python draws in another way.
_THINGS = ("mill", "cart", "hen", "rope", "oven", "river", "smith")
HELLASWAG_EXAMPLES = [HELLASWAG[0]] + [
    {"activity_label": f"Seeing a {thing}", "ctx_a": f"Someone [header] looks at a {thing}.", "ctx_b": "THEY see",
     "endings": [f"that the {thing} is old.", "[title] nothing.", f"a {other}  and a {thing}.", "it."], "label": str(index)}
    for index, (thing, other) in enumerate(zip(_THINGS[:3], _THINGS[3:]))
] + [HELLASWAG[0]]  # fmt: skip
ARC_EXAMPLES = [
    {"id": f"{number}", "question": f"What is {number} and {number}? ", "answerKey": "ABC"[number % 3],
     "choices": {"text": [f"{2 * number}", _THINGS[number % 7], "it  is " + "very " * (number % 4) + "much"], "label": ["A", "B", "C"]}}
    for number in range(30)
]  # fmt: skip
MMLU_EXAMPLES = [
    {"subject": subject, "question": f" Which {thing} is first? ", "choices": [f"the {thing}", "none", f"{number}", " all"], "answer": number % 4}
    for number, (thing, subject) in enumerate((thing, subject) for thing in _THINGS[:3] for subject in ("anatomy", "abstract_algebra"))
]  # fmt: skip
EXAMPLES = {"hellaswag": HELLASWAG_EXAMPLES, "arc": ARC_EXAMPLES, "mmlu": MMLU_EXAMPLES}
FEW_SHOT_CONTEXT = 768  # tokens: enough for most
# Name -> kind, file with examples and how many of them. A file of questions may hold the examples too.
FEW_SHOT = {
    "hellaswag": ("hellaswag", "examples", 3), "arc": ("arc", "examples", 4), "mmlu": ("mmlu", "examples", 2),
    "arc_many": ("arc", "examples", 7), "choice": ("choice", "questions", 2), "mmlu_itself": ("mmlu", "questions", 1),
}  # fmt: skip


def write_few_shot(folder):
    """Writes files of questions and of examples. Returns the words of evaluation.tasks by name."""
    write_records(folder)
    write_records(folder / "examples", EXAMPLES)
    tasks = {}
    for name, (kind, file, count) in FEW_SHOT.items():
        path = folder / f"{kind}.jsonl"
        examples = folder / "examples" / path.name if file == "examples" else path
        tasks[name] = f"{name}={kind} {path} fewshot={count}:{examples}"
    return tasks


def write_records(folder, of_kinds=RECORDS):
    """Writes a file for each kind. Returns the words of evaluation.tasks by kind."""
    folder.mkdir(parents=True, exist_ok=True)
    tasks = {}
    for kind, records in of_kinds.items():
        path = folder / f"{kind}.jsonl"
        path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
        tasks[kind] = f"{kind} {path}"
    return tasks
