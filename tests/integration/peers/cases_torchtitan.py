"""Tests that TorchTitan's configurations and batches mean the same here; its own answers are in tests/golden."""
import json
import pathlib
import re

import golden
from cases_config import resolve
from harness import ROOT, case, expect, run, start
from torchtitan_configs import OVERRIDES, PUBLISHED, write_published


def all_keys(context):
    """Returns {key: (type, default)} from the program's own documentation."""
    docs = run(context, 1, ["--print-docs"], name="docs").out_path.read_text()
    keys, table = {}, ""
    for line in docs.splitlines():
        if line.startswith("### ["):
            table = line[5:-1]
        row = re.match(r"\| `(\w+)` \| ([^|]+) \| `(.*?)` \|", line)
        if row and table:
            keys[f"{table}.{row[1]}"] = (row[2], row[3])
    return keys


def equal(mine, theirs):
    if isinstance(theirs, float) and isinstance(mine, (int, float)):
        return float(mine) == theirs  # the same double, not about the same
    return type(mine) is type(theirs) and mine == theirs


@case(60, processors=1)
def torchtitan_schema(context):
    """Every key of TorchTitan 0.2.2's JobConfig exists here, with the same type and default; our other keys say so."""
    mine, theirs = all_keys(context), golden.answers("config")["schema"]
    missing = sorted(set(theirs) - set(mine))
    expect(len(theirs) >= 149 and not missing, f"{len(theirs)} keys there; not here: {missing}")
    values = resolve(context, [], "defaults")
    for key, entry in theirs.items():
        expect(mine[key][0] == entry["type"], f"{key} is {mine[key][0]} here, {entry['type']} there")
        if key == "model.hf_assets_path":  # theirs is a folder of their own tests
            continue
        default = entry["default"]
        same = equal(values.get(key), default) if default is not None else key not in values
        expect(same, f"{key} is {values.get(key)!r} here by default, {default!r} there")
    tables = {part.partition("]")[0]: part for part in (ROOT / "docs/config.md").read_text().split("\n### [")[1:]}
    for key in set(mine) - set(theirs):
        table, _, name = key.rpartition(".")
        row = next(line for line in tables[table].splitlines() if line.startswith(f"| `{name}` |"))
        marked = "not a key of TorchTitan" in row or "not a table of TorchTitan" in tables[table].partition("|")[0]
        marked = marked or key.startswith("model.args.")
        expect(marked, f"{key} is not TorchTitan's, and docs/config.md does not say so")


@case(120, processors=1)
def torchtitan_published(context):
    """TorchTitan's llama3 configurations pass an unchanged dry run, on the meshes that they name; that nothing is compiled is
    said."""
    for name, (world_size, tables) in PUBLISHED.items():
        words = ["--config", write_published(context.folder, name), "--dry-run", "--world-size", world_size]
        job = run(context, 1, words, launcher="none", name=name)
        expect("warning: a run would be refused" not in job.errors(), f"{name}: its dry run is not that of a run\n{job.tail(30)}")
        job = run(context, 1, [*words[:2], "--print-config", *words[3:]], launcher="none", name=f"{name}-run")
        noted = re.findall(r"^note: ([\w.]+): nothing is compiled; ", job.errors(), re.MULTILINE)
        expect(noted == (["compile.enable"] if tables["compile"]["enable"] else []), f"{name}: {noted}\n{job.tail(30)}")


@case(120, processors=1)
def torchtitan_values(context):
    """One TOML file and command line mean the same to TorchTitan and here, for every key that they share."""
    answers = golden.answers("config")
    defaults = {key: entry["default"] for key, entry in answers["schema"].items()}
    expect(list(answers["command_lines"]) == list(PUBLISHED), f"the answers are to {list(answers['command_lines'])}")
    for name, command_lines in answers["command_lines"].items():
        asked = [" ".join(words) for words in OVERRIDES]
        expect(list(command_lines) == asked, f"{name}: the answers are to {list(command_lines)}, make them anew")
        path = write_published(context.folder, name)
        for index, words in enumerate(OVERRIDES):
            theirs = defaults | command_lines[asked[index]]
            expect(theirs["job.config_file"] == path.name, f"job.config_file is {theirs['job.config_file']}")
            theirs["job.config_file"] = str(path)
            mesh = ["--world-size", PUBLISHED[name][0]]
            mine = resolve(context, ["--job.config_file", path, *mesh, *words], f"{name}{index}")
            for key, value in theirs.items():
                same = equal(mine.get(key), value) if value is not None else key not in mine
                if value is None and key in mine:
                    same = mine[key] == "None"  # TOML has no other spelling for an unset key whose default is set
                expect(same, f"{name} {words}: {key} is {mine.get(key)!r} here, {value!r} in TorchTitan")


@case(60, ranks=[1, 2])
def torchtitan_batches(context, ranks):
    """c4_test gives the batches of TorchTitan's own data loader, token for token, rank for rank."""
    expected = golden.answers("batches")[str(ranks)]
    expect(len(expected) == ranks and all(len(set(rows)) > 30 for rows in expected), "the rows are the same all over")
    steps = len(expected[0]) // 2
    words = ["--config", golden.write_job(context, "mine", steps=steps), *golden.size_words(golden.SIZES)]
    log = context.folder / "samples"
    words += ["--checkpoint.no-enable"]
    job = start(context, ranks, words, env={"TITAN_LOG_SAMPLES": str(log)})
    expect(job.wait() == 0, job.tail())
    for rank in range(ranks):
        found = [json.loads(line) for line in pathlib.Path(f"{log}.rank{rank}").read_text().splitlines()]
        expect(len(found) == 2 * steps, f"rank {rank} logged {len(found)} rows")
        for row in found:
            wanted = expected[rank][2 * row["batch"] + row["row"]]
            expect(row["hash"] == wanted, f"rank {rank}, batch {row['batch']}, row {row['row']} has other tokens")
