"""PyTorch's answers: what the reference (tests/reference) computes for the cases, all of a world size and tier in one
start.

A case's file registers rows with ask() when it is imported; the case gets them with answer(). The first call computes
all rows of that world size and tier and keeps them in the work folder; later cases and later runs read them, as long as the
reference, the rows, the data and the processor are the same.
"""
import dataclasses
import hashlib
import json
import os
import pathlib
import signal

import case_files
from fixtures import SMALL_MODEL, once
from harness import REFERENCE, ROOT, VENV, Job, expect, read_rows

# Exit codes of forked.py for crashes of native code; SIGKILL is not among them, because others send it.
CRASHES = {128 + number: number.name for number in (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV)}
FILES = {"weights": ".pt", "state": ".state", "trace": ".trace"}  # beside the metrics, for rows that ask for them
# Variables that PyTorch's libraries read, as the case found them: importing parts of torch sets some in this process.
LIBRARIES = ("ATEN_", "DNNL_", "KMP_", "MKL_", "ONEDNN_", "OMP_", "TORCH")
VARIABLES = {name: value for name, value in os.environ.items() if name.startswith(LIBRARIES)}
ROWS = {}  # (ranks, tier of the cases that ask) -> name -> what was asked

# Other kernels of PyTorch for the same formulas. How far they move two correct runs is bf16's yardstick.
VARIANTS = {
    "plain attention": {"sdpa": "math"},
    "float32 attention": {"sdpa": "float32"},
    "plain products": {"gemm": "native"},
    "fused SwiGLU": {"swiglu": "fused"},
}

# The CPU kernels that a run uses -> the program's words for them, and the variants that its bf16 bounds follow from.
KERNELS = {
    "own": ([], list(VARIANTS)),
    "aten": (["--cpu.kernels", "aten", "--cpu.mkl_path", "by_vendor"], [v for v in VARIANTS if v != "float32 attention"]),
}


def ask(ranks, name, words, steps=20, template=SMALL_MODEL, tier="integration", **more):
    """Registers a row. `words`: overrides of the job; "{fixtures}" is replaced by that folder.

    more: seeded=False (each rank draws the weights, and there is no folder with them), and weights=True, state=True,
    trace=True, main=True, ddp, arithmetic, as tests/reference/table.py has them.
    """
    rows = ROWS.setdefault((ranks, tier), {})
    expect(not any(name in asked for (size, _), asked in ROWS.items() if size == ranks), f"two rows of {ranks} ranks are called {name}")
    rows[name] = {"words": [str(word) for word in words], "steps": steps, "template": template, **more}


def ask_variants(ranks, name, variants=VARIANTS):
    """Registers the row `name` once more with each of PyTorch's other kernels."""
    tier = tier_of(ranks, name)
    for variant in variants:
        ask(ranks, f"{name}, {variant}", tier=tier, **{**ROWS[ranks, tier][name], "arithmetic": VARIANTS[variant]})


def tier_of(ranks, name):
    return next(tier for (size, tier), rows in ROWS.items() if size == ranks and name in rows)


@dataclasses.dataclass
class Answer:
    stem: pathlib.Path  # path of table.py's files, without suffix
    words: list  # the row's overrides, for the program too
    seed: pathlib.Path  # DCP folder with the weights of the start

    @property
    def rows(self):
        return read_rows(self.stem.with_suffix(".jsonl"))

    @property
    def weights(self):
        """Returns {name: tensor} after the last step."""
        import torch

        return torch.load(self.stem.with_suffix(FILES["weights"]))

    @property
    def state(self):
        return self.stem.with_suffix(FILES["state"])

    @property
    def trace(self):
        return self.stem.with_suffix(FILES["trace"]).read_text().splitlines()


def answer(context, ranks, name):
    """Returns what PyTorch computed for a row."""
    case_files.import_all()  # all rows of a world size are computed together
    asked = ranks, tier_of(ranks, name)
    folder = once(context.fixtures.parent, title(asked), key(context, asked), lambda new: compute(context, asked, new))
    row = ROWS[asked][name]
    seed = folder / seed_name(row) if row.get("seeded", True) else None
    return Answer(folder / stem_name(name), words_of(context, row), seed)


def variants_of(context, ranks, name, variants=VARIANTS):
    """Returns the answers of ask_variants()."""
    return [answer(context, ranks, f"{name}, {variant}") for variant in variants]


def words_of(context, row):
    return [word.replace("{fixtures}", str(context.fixtures)) for word in row["words"]]


def stem_name(name):
    return name.replace(" ", "_").replace(",", "")


def sizes(row):
    """Returns the overrides of the model's sizes, adapters included: with the template, all that its first weights
    depend on."""
    found = []
    for word, following in zip(row["words"], [*row["words"][1:], ""]):
        is_size = word.startswith("--model.args.") and "attn" not in word
        if is_size or word.startswith(("--lora.rank", "--lora.targets")):
            found += [word] if "=" in word else [word, following]
    return found


def seed_name(row):
    return "seed-" + digest(row["template"], sizes(row))[:8] + "/step-0"


def digest(*parts):
    hashed = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else json.dumps(part).encode()
        hashed.update(len(data).to_bytes(8) + data)
    return hashed.hexdigest()


def title(asked):
    ranks, tier = asked
    return f"oracle-{ranks}" if tier == "integration" else f"oracle-{ranks}-{tier}"


def key(context, asked):
    """Returns a hash of everything that the answers depend on."""
    sources = [pathlib.Path(__file__), ROOT / "requirements.txt", *sorted(REFERENCE.glob("*.py"))]
    data = [*sorted(context.fixtures.glob("*.jsonl")), context.fixtures / "tokenizer/tokenizer.model"]
    processor = {line for line in open("/proc/cpuinfo") if line.startswith(("model name", "flags"))}
    files = [path.read_bytes() for path in [*sources, *data]]
    return digest(sorted(ROWS[asked].items()), sorted(processor), sorted(VARIABLES.items()), *files)[:16]


def compute(context, asked, folder):
    """Has table.py write all answers of a key of ROWS into `folder`."""
    seeds, rows = {}, []
    for name, row in sorted(ROWS[asked].items()):  # the same plan in whatever order the files were imported
        text = row["template"].format(dump="unused", fixtures=context.fixtures, steps=row["steps"])
        config = folder / f"{digest(text)[:8]}.toml"
        config.write_text(text)
        stem = folder / stem_name(name)
        planned = {"config": str(config), "words": words_of(context, row), "output": str(stem.with_suffix(".jsonl"))}
        planned |= {file: str(stem.with_suffix(end)) for file, end in FILES.items() if row.get(file)}
        planned |= {word: row[word] for word in ("ddp", "arithmetic", "main") if word in row}
        if row.get("seeded", True):
            planned["init_from"] = seed = str(folder / seed_name(row))
            seeds[seed] = {"config": str(config), "words": sizes(row), "folder": seed}
        rows.append(planned)
    plan = folder / "plan.json"
    plan.write_text(json.dumps({"seeds": list(seeds.values()), "rows": rows}))
    run_reference(context, title(asked), [REFERENCE / "table.py", asked[0], plan])


def run_reference(context, name, words):
    """Runs a script whose ranks forked.py makes. It contains no code of the program, and PyTorch itself was seen to
    damage its heap ("free(): invalid size", once, at 4 ranks). A crash is not an answer: the script runs once more, and
    scripts/test.sh counts and prints the line that says so. An exception is an answer."""
    for is_last in (False, True):
        job = Job([VENV / "python", *words], context.folder / "logs", name)
        code = job.wait(180)
        if code in CRASHES and not is_last:
            print(f"FLAKY {name}: PyTorch itself died of {CRASHES[code]}, computed again\n{job.tail(60)}", flush=True)
            continue
        expect(code == 0, f"the reference failed with {code}\n{job.tail(30)}")
        return
