"""Makes corpus, tokenizer and job file of the integration cases from torch's own sources, which every installation has.

    corpus.jsonl, corpus/      the same documents as JSON lines and as a folder of files
    short.jsonl                pieces of 61 characters of them
    tokenizer/tokenizer.model  SentencePiece BPE, 2,048 pieces, BOS and EOS
"""
import fcntl
import json
import os
import pathlib
import shutil
import sysconfig

VOCABULARY = 2048
CORPUS_CHARACTERS = 400_000
VERSION = "2"  # part of the folder's name: raise it when what is made here changes

# A few milliseconds per step: two layers, grouped heads, and sizes that three ranks cannot share evenly.
SMALL_MODEL = """\
[job]
dump_folder = "{dump}"
[model]
name = "llama3"
flavor = "debugmodel"
hf_assets_path = "{fixtures}/tokenizer"
[model.args]
dim = 64
n_layers = 2
n_heads = 4
n_kv_heads = 2
vocab_size = 2048
multiple_of = 64
[metrics]
log_freq = 1
[optimizer]
name = "AdamW"
lr = 3e-3
[lr_scheduler]
warmup_steps = 4
decay_ratio = 0.5
decay_type = "linear"
[training]
dataset = "c4_test"
dataset_path = "{fixtures}/corpus.jsonl"
local_batch_size = 2
seq_len = 64
steps = {steps}
[activation_checkpoint]
mode = "none"
[debug]
seed = 42
"""

# The same sizes of a Qwen3, whose heads are not dim / n_heads wide. Its flavor ties the output projection.
QWEN3_MODEL = SMALL_MODEL.replace('"llama3"', '"qwen3"').replace("multiple_of = 64\n", "head_dim = 24\nhidden_dim = 192\n")

# The sizes of TorchTitan's debug_model.toml, on a batch that a CPU can take.
DEBUG_MODEL = """\
[job]
dump_folder = "{dump}"
[model]
name = "llama3"
flavor = "debugmodel"
hf_assets_path = "{fixtures}/tokenizer"
[metrics]
log_freq = 1
[training]
dataset = "c4_test"
dataset_path = "{fixtures}/corpus.jsonl"
local_batch_size = 4
seq_len = 256
steps = {steps}
[activation_checkpoint]
mode = "none"
[debug]
seed = 42
"""

# For a process under `ulimit -v`: each thread takes addresses, and a machine may have many processors.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}


def documents():
    """Yields Python files of the torch package by path, up to CORPUS_CHARACTERS."""
    package = pathlib.Path(sysconfig.get_paths()["purelib"], "torch")
    total = 0
    for path in sorted(package.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if len(text) < 200:
            continue
        yield text
        total += len(text)
        if total > CORPUS_CHARACTERS:
            return


def write_fixtures(folder):
    import sentencepiece

    texts = list(documents())
    with open(folder / "corpus.jsonl", "w", encoding="utf-8") as file:
        for text in texts:
            print(json.dumps({"text": text}), file=file)
    with open(folder / "short.jsonl", "w", encoding="utf-8") as file:
        for text in texts:
            for begin in range(0, min(len(text), 4000), 61):
                print(json.dumps({"text": text[begin : begin + 61]}), file=file)
    for index, text in enumerate(texts):
        # Two levels, and names whose bytewise order is not the order of creation.
        path = folder / "corpus" / f"part{index % 3}" / f"{index * 7919 % 1000:03d}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
    (folder / "tokenizer").mkdir()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for text in texts for line in text.splitlines() if line),
        model_prefix=str(folder / "tokenizer/tokenizer"),
        model_type="bpe",
        vocab_size=VOCABULARY,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        num_threads=1,
        minloglevel=2,
    )


def once(work, name, key, make):
    """Returns the folder work/NAME-KEY, which make(folder) fills on first use. Cases may run at once: the others wait,
    and nobody sees an incomplete folder. Folders of other keys are removed."""
    work = pathlib.Path(work).resolve()
    folder = work / f"{name}-{key}"
    if folder.exists():
        return folder
    locks = work / "locks"  # separate, because a name may be the beginning of another
    locks.mkdir(parents=True, exist_ok=True)
    with open(locks / name, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return folder
        for other in work.iterdir():
            if other.is_dir() and other.name.rpartition("-")[0] == name:
                shutil.rmtree(other)
        temporary = work / f"{name}-{key}.tmp"
        temporary.mkdir()
        make(temporary)
        os.rename(temporary, folder)
    return folder


def make_fixtures(work):
    return once(work, "fixtures", VERSION, write_fixtures)


def write_job(context, name, template=SMALL_MODEL, steps=20):
    """Writes a job file whose dump folder is context.dump(name). Returns its path."""
    path = context.folder / f"{name}.toml"
    path.write_text(template.format(dump=context.dump(name), fixtures=context.fixtures, steps=steps))
    return path
