"""Tests `titan-train compare`, `report` and `plot` on real runs, and their records: events and checksums."""
import json
import re
import subprocess

from cases_sweep import colorful_share, find_browser, read_png
from fixtures import write_job
from harness import TIME_SCALE, Gate, at_row, case, expect, faults, read_rows, run, skip, start

CHECKSUMS = ["--debug.checksum_freq", 1]
SAVE = ["--checkpoint.enable", "--checkpoint.interval", 3, "--checkpoint.no-last_save_model_only"]


def train(context, name, words=(), ranks=1, steps=6):
    config = write_job(context, name, steps=steps)
    run(context, ranks, ["--config", config, *words], name=name)
    return context.dump(name)


def command(context, words, exit_code=0, name="command"):
    return run(context, 1, words, launcher="none", name=name, exit_code=exit_code).out_path.read_text()


def compare(context, a, b, *words, exit_code):
    return json.loads(command(context, ["compare", a, b, "--json", *words], exit_code))


@case(90, quick=True)
def compare_finds_the_first_difference(context):
    """Equal runs agree bit for bit; another weight decay differs from step 1's weights and step 2's gradients."""
    one, same = train(context, "one", CHECKSUMS), train(context, "same", CHECKSUMS)
    found = compare(context, one, same, exit_code=0)
    expect(found["agree"] and found["checksums"]["common_steps"] == 7, found)
    other = train(context, "other", [*CHECKSUMS, "--optimizer.weight_decay", 0.2])
    found = compare(context, one, other, exit_code=1)
    parting = found["checksums"]["parting"]
    expect(parting["step"] == 1 and parting["kind"] == "weight" and parting["gradients_differ"] == 0, parting)
    expect(parting["parameter"] == "tok_embeddings.weight" and parting["gradients"] == parting["weights"], parting)
    expect(found["parts_at"] == 1 and found["metrics"]["loss"]["parts_at"] == 2, found["metrics"])
    expect(found["config"] == [{"key": "optimizer.weight_decay", "a": "0.1", "b": "0.2"}], found["config"])
    text = command(context, ["compare", one, other], 1)
    expect("The runs part at step 1." in text and "All gradients of the step are equal" in text, text)
    loose = compare(context, one, other, "--tolerance", 0.5, exit_code=0)
    expect(loose["agree"] and 0 < loose["metrics"]["loss"]["largest_relative"] < 0.5, loose)
    text = command(context, ["compare", one, context.folder], 2, "bad")
    expect(text == "", text)


@case(90)
def compare_across_numbers_of_ranks(context):
    """Checksums do not depend on the number of ranks: the same initial weights, on one rank, two and three."""
    runs = [train(context, f"ranks{ranks}", CHECKSUMS, ranks, steps=1) for ranks in (1, 2, 3)]
    rows = [read_rows(folder / "checksums.jsonl") for folder in runs]
    for row in rows:
        expect([r["step"] for r in row] == [0, 1] and row[0]["weights"] == rows[0][0]["weights"], f"other initial weights: {rows}")
        expect(len(set(row[1]["gradients"].values())) > 10, f"gradients: {row[1]}")
    replicas = train(context, "replicas", [*CHECKSUMS, "--parallelism.data_parallel_replicate_degree", 2, "--parallelism.data_parallel_shard_degree", 1], 2, steps=1)
    row = read_rows(replicas / "checksums.jsonl")[1]
    expect(row["gradients"] == rows[1][1]["gradients"], "replicated and sharded gradients of two ranks differ")


@case(90)
def records_of_a_resumed_run(context):
    """A stopped and resumed run has the checksums of an uninterrupted one, each step once, and its events say so."""
    whole = train(context, "whole", [*CHECKSUMS, *SAVE])
    config, folder = write_job(context, "stopped", steps=6), context.dump("stopped")
    words = ["--config", config, *CHECKSUMS, *SAVE]
    gate = Gate(context, "row-2")
    job = start(context, 1, words, name="first", env=faults(context, gate.rule(at_row(2))))
    gate.signal(context, job)
    expect(job.wait(60) == 75, job.tail())
    run(context, 1, words, name="second")
    expect(read_rows(folder / "checksums.jsonl") == read_rows(whole / "checksums.jsonl"), "the checksums differ")
    events = [(row["event"], row["step"]) for row in read_rows(folder / "events.jsonl")]
    stopped = events[2][1]
    expect(events == [("start", 0), ("save", stopped), ("stop", stopped), ("resume", stopped), *[("save", s) for s in (3, 6) if s > stopped], ("end", 6)], events)
    expect(compare(context, whole, folder, exit_code=0)["agree"], "the runs part")


def browse(context, browser, page, *words):
    """Returns what the browser prints, and the lines of its console."""
    common = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr", f"--user-data-dir={context.folder}/browser"]
    done = subprocess.run([*common, *words, page], capture_output=True, text=True, timeout=60 * TIME_SCALE, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@case(120)
def report_in_a_browser(context):
    """The page of two runs draws a curve per run and metric, without network or errors; its address zooms and
    smooths."""
    browser = find_browser() or skip("Chromium")
    validation = ["--validation.enable", "--validation.dataset", "c4_test", "--validation.dataset_path", f"{context.fixtures}/corpus.jsonl", "--validation.freq", 4, "--validation.steps", 1, "--validation.seq_len", 64, "--validation.local_batch_size", 2]
    one = train(context, "one", [*SAVE, *validation], steps=24)
    train(context, "two", [*SAVE, "--optimizer.lr", 1e-3], steps=24)
    text = command(context, ["report", one])
    expect(text.endswith(f"{one}/report.html\n"), text)
    scores = [{"step": 8, "arc/acc": 0.5, "arc/acc_stderr": 0.1, "arc/items": 4}, {"step": 16, "arc/acc": 0.375, "arc/items": 4}]
    (one / "evaluation.jsonl").write_text("".join(json.dumps(row) + "\n" for row in scores))
    page = context.folder / "both.html"
    command(context, ["report", context.folder, "--output", page])
    dom, errors = browse(context, browser, page.as_uri(), "--dump-dom")
    expect(not errors, errors)

    def curves(dom, chart):
        svg = re.search(rf'<svg id="chart-{chart}".*?</svg>', dom, re.DOTALL).group()
        return svg, re.findall(r'<path [^>]*d="(M[^"]*)" class="curve', svg)

    svg, paths = curves(dom, "loss")
    expect(len(paths) == 3 and sorted(p.count("L") for p in paths)[1:] == [23, 23], paths)
    expect(svg.count('data-event="save"') == 16 and 'data-event="best"' in svg, svg)
    for chart in ("grad_norm", "lr", "tokens_per_second", "memory_peak_bytes"):
        expect(len(curves(dom, chart)[1]) == 2, f"{chart} has other curves")
    expect("optimizer.lr" in dom and "0.003" in dom, "the difference is not shown")
    table = re.search(r'<table id="scores".*?</table>', dom, re.DOTALL).group()
    cells = [re.sub("<[^>]*>", "", cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", table, re.DOTALL)]
    expect(cells == ["score", "one, last", "one, best (step)", "two, last", "two, best (step)", "arc/acc", "0.375", "0.5  (8)", "", ""], cells)
    zoomed, errors = browse(context, browser, page.as_uri() + "#from=10&to=12&smooth=0.9&hide=1", "--dump-dom")
    svg, paths = curves(zoomed, "grad_norm")
    expect(not errors and len(paths) == 1 and paths[0].count("L") <= 5 and 'class="raw"' in svg, (errors, svg))
    picture = context.folder / "page.png"
    browse(context, browser, page.as_uri() + "#theme=light", "--window-size=1280,700", f"--screenshot={picture}")
    # Curves across the first chart, as in the sweep's report; the same area without them has no color.
    share = colorful_share(read_png(picture)[260:560, 130:1150])
    expect(share > 0.005, f"only {share:.2%} of the picture's middle is colored; see {picture}")


@case(60, processors=1)
def plot_in_the_terminal(context):
    """80x24 without a terminal, letters for several runs, and an answer for a missing metric."""
    one = train(context, "one", steps=8)
    train(context, "two", steps=8)
    lines = command(context, ["plot", one]).splitlines()
    expect(len(lines) == 24 and max(map(len, lines)) <= 80 and lines[0] == "loss  one", lines)
    expect(any("⠀" < c <= "⣿" for c in "".join(lines)) and "\033" not in "".join(lines), lines)
    both = command(context, ["plot", context.folder, "--metric", "loss", "--metric", "lr", "--smooth", 0.5, "--rows", 12]).splitlines()
    expect(len(both) == 24 and both[0] == "loss  a: one  b: two" and both[12].startswith("lr"), both)
    job = run(context, 1, ["plot", one, "--metric", "los"], launcher="none", name="bad", exit_code=2)
    expect("--metric los: no run has it; did you mean loss?" in job.text(), job.tail())
    for name, answer in (("learning_rate", "no run has it; did you mean lr? They have loss, "), ("val_loss", "no run has it. They have loss, ")):
        job = run(context, 1, ["plot", one, "--metric", name], launcher="none", name=name, exit_code=2)
        expect(f"--metric {name}: {answer}" in job.text(), job.tail())
