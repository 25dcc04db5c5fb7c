"""Tests `titan-train schedule`: its orders against PyTorch's classes, and what it prints, reads and refuses."""
import concurrent.futures
import json
import re
import subprocess
import xml.etree.ElementTree

from harness import REFERENCE, ROOT, TIME_SCALE, VENV, case, expect, run

LOOPS, VS, SINGLES = ("Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble"), ("ZBVZeroBubble", "DualPipeV"), ("1F1B", "GPipe")
MICROBATCHES = (1, 2, 3, 4, 6, 9)
GRID = [
    (name, ranks, stages, microbatches)
    for names, all_stages in ((SINGLES, (1,)), (LOOPS, (2, 3, 5)), (VS, (2,)))
    for name in names
    for ranks in (2, 3, 4)
    for stages in all_stages
    for microbatches in MICROBATCHES
]


def command(context, *words, exit_code=0):
    return run(context, 1, ["schedule", *words], launcher="none", name="schedule", exit_code=exit_code)


def size_flags(ranks, stages, microbatches):
    return ["--ranks", ranks, "--stages-per-rank", stages, "--microbatches", microbatches]


def ask_program(context, question):
    """Returns the program's answer as tests/reference/pipeline_orders.py gives PyTorch's; without harness.run for speed."""
    name, *size = question
    words = [context.program, "schedule", name, *size_flags(*size), "--format", "json"]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=30 * TIME_SCALE)
    if done.returncode == 2:
        return {"refused": done.stderr}
    expect(done.returncode == 0, f"{question}: exit code {done.returncode}: {done.stderr}")
    ranks = json.loads(done.stdout)["ranks"]
    return {"order": [[step["action"] for step in rank["steps"]] for rank in ranks], "lowered": [rank["with_communication"] for rank in ranks]}


@case(60, quick=True)
def schedules_as_pytorch(context):
    """Every schedule does on each rank what PyTorch's class does, in its order, without and with communication; what PyTorch
    refuses is refused."""
    asked = subprocess.run(
        [VENV / "python", REFERENCE / "pipeline_orders.py"], input=json.dumps(GRID), capture_output=True, text=True, timeout=60 * TIME_SCALE
    )
    expect(asked.returncode == 0, asked.stderr)
    refused = 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        ours = pool.map(lambda question: ask_program(context, question), GRID)
        for question, mine, theirs in zip(GRID, ours, json.loads(asked.stdout), strict=True):
            refused += "refused" in theirs
            expect(mine.keys() == theirs.keys(), f"{question}: {mine}, PyTorch {theirs}")
            expect("refused" in mine or mine == theirs, f"{question}: {mine}\nPyTorch {theirs}")
    expect(0 < refused < len(GRID) / 3, f"PyTorch refused {refused} of {len(GRID)} sizes")


# A small schedule as a reader sees it: rank 1 waits at the beginning, rank 0 for each backward.
DRAWING = """\
1F1B: 2 ranks, 2 stages, 2 microbatches; times: F 1, I 1, W 1, B 2

rank 0  0F0 0F1 ....... 0B0---- ... 0B1----
rank 1  ... 1F0 1B0---- 1F1 1B1----

4 letters are a time of 1; dots are waits

bubble 33.3 %, makespan 9, 4 messages
"""


@case(30, quick=True)
def schedule_drawing(context):
    """The drawing shows order and waits, in the width that there is, and says what it leaves out."""
    small = ["1F1B", "--ranks", 2, "--microbatches", 2]
    text = command(context, *small).out_path.read_text()
    expect(text.startswith(DRAWING), text)
    rows = re.findall(r"^ +(\d) (\d) +(\d+) +(\d+) +(\d+) +(\d+) +(\d+)$", text, re.MULTILINE)
    # Rank, stage, busy, waits, waits between, activations, between I and W.
    expect(rows == [("0", "0", "6", "3", "3", "2", "0"), ("1", "1", "6", "3", "0", "1", "0")], f"{rows}\n{text}")
    for ranks, microbatches in ((2, 40), (12, 100)):
        text = command(context, "zbvzerobubble", "--ranks", ranks, "--microbatches", microbatches, "--columns", 80).out_path.read_text()
        drawn = [line for line in text.splitlines() if re.match(r"rank +\d+  ", line)]
        expect(len(drawn) == ranks and max(map(len, drawn)) <= 80, text)
        makespan = 6 * microbatches + ranks - 1
        needed = re.search(rf"^left out: what begins at \d+ or later, up to {makespan}; --columns (\d+) shows it", text, re.MULTILINE)
        expect(needed, text)
        text = command(context, "ZBVZeroBubble", "--ranks", ranks, "--microbatches", microbatches, "--columns", needed[1]).out_path.read_text()
        expect("left out" not in text, text)
    found = json.loads(command(context, *small, "--costs", "2.5,3,4", "--format", "json").out_path.read_text())
    expect(found["makespan"] == 3 * 9.5 and found["ends_if_sends_wait"] and found["num_messages"] == 4, found)


@case(30)
def schedule_files(context):
    """An order that was printed as CSV is read again, also with idle cells, and must suit NAME and the numbers if they are
    given; the SVG is XML with a box per action."""
    for name, stages in (("Interleaved1F1B", 2), ("DualPipeV", 2), ("GPipe", 1)):
        words = [name, *size_flags(3, stages, 6)]
        csv = command(context, *words, "--format", "csv").out_path.read_text()
        file = context.folder / f"{name}.csv"
        file.write_text("\n".join("," * rank + line for rank, line in enumerate(csv.splitlines())))
        expect(command(context, "--csv", file, "--format", "csv").out_path.read_text() == csv, f"{name} has changed")
        command(context, *words, "--csv", file)
        one, other = (json.loads(command(context, *w, "--format", "json").out_path.read_text()) for w in (words, ["--csv", file]))
        expect({**one, "name": ""} == {**other, "name": ""}, f"{one}\n{other}")
        svg = context.folder / f"{name}.svg"
        command(context, "--csv", file, "--svg", svg)
        root = xml.etree.ElementTree.parse(svg).getroot()
        kinds = [box.get("class") for box in root.iter("{http://www.w3.org/2000/svg}rect")]
        actions = re.findall(r"\d([FBIW])\d", csv)
        # A box more of each kind is in the legend.
        expect(all(kinds.count(kind) == actions.count(kind) + 1 for kind in "FBIW"), f"{name}: {kinds}")
        expect("prefers-color-scheme: dark" in svg.read_text(), "no colors for the dark")


@case(30)
def schedule_refuses(context):
    """Wrong words, sizes and files end with exit code 2 and a message that says what to change."""
    files = {
        "messages": "0F0,0SEND_F0,0B0\n1F0,1B0\n",
        "missing": "0F0,0F1,0B0\n1F0,1B0,1F1,1B1\n",
        "circle": "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n",
        "good": "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n",
    }
    for name, text in files.items():
        (context.folder / f"{name}.csv").write_text(text)
    csv = {name: ["--csv", context.folder / f"{name}.csv"] for name in files}
    command(context, *csv["good"])
    size = ["--ranks", 4, "--microbatches", 8]
    for words, expected in [
        ([], "expected the NAME of a schedule"),
        (["ZBV", *size], "there is no pipeline schedule"),
        (["InterleavedZeroBuble", *size], "did you mean InterleavedZeroBubble?"),
        (["1F1B"], "expected --ranks and --microbatches"),
        (["DualPipeV", "--ranks", 4, "--microbatches", 7], "at least as many microbatches as stages (8 stages)"),
        (["GPipe", *size, "--stages-per-rank", 2], "exactly 1 stage per rank"),
        (["GPipe", *size, "--costs", "1,0,1"], "expected a number above 0"),
        (["GPipe", *size, "--costs", "1,1,1001"], "no time above 1000 times another"),
        (["GPipe", *size, "--costs", "1e308,1e308,1e308"], "no time above 1000000000000"),
        (["GPipe", "--ranks", 1000, "--microbatches", 1000], "at most 200,000"),
        (["GPipe", *size, "--svg", context.folder], "is a folder"),
        (["--csv", context.folder / "none.csv"], "does not exist"),
        (csv["messages"], "line 1, cell 2: 0SEND_F0 is not computation"),
        (csv["missing"], "0B1 is missing, or 0I1 and 0W1"),
        (csv["circle"], "rank 0, action 2 (0B0) waits for the backward of microbatch 0 in stage 1; rank 1, action 1 (1F1) waits for 0F1"),
        (["GPipe", "--ranks", 3, *csv["good"]], "expected 3 ranks, a line each (--ranks), found 2"),
        (["GPipe", "--microbatches", 3, *csv["good"]], "expected 3 microbatches (--microbatches), found 2"),
        (["ZBVZeroBubble", *csv["good"]], "expected 4 stages (by NAME and --stages-per-rank), found 2"),
    ]:
        text = command(context, *words, exit_code=2).text()
        expect(expected in text and "error: " in text, f"after {words}: {text}")


@case(30)
def schedule_page(context):
    """docs/pipeline.md shows what the program says: the drawing, and the numbers of each schedule."""
    page = (ROOT / "docs/pipeline.md").read_text(encoding="utf-8")
    words, shown = re.search(r"^```sh\ntitan-train schedule (.*)\n```\n\n```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL).groups()
    text = command(context, *words.split()).out_path.read_text()
    expect(text.startswith(shown), f"the page shows\n{shown}\nfound\n{text}")
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\| ([\d.]+) % \| (\d+), (\d+) \| (\d+) \|", page, re.MULTILINE)
    expect([name for name, *_ in rows] == ["GPipe", "1F1B", *LOOPS, *VS], rows)
    for name, *row in rows:
        found = json.loads(command(context, name, "--ranks", 4, "--microbatches", 8, "--format", "json").out_path.read_text())
        memory = [found["ranks"][rank]["activations"] for rank in (0, -1)]
        ours = [f"{100 * found['bubble']:.1f}", *map(str, memory), str(found["num_messages"])]
        expect(ours == row, f"{name}: the page has {row}, found {ours}")
