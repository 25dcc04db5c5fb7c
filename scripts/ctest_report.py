"""Answers questions of scripts/test.sh and scripts/flake.sh about a run of ctest, from its JUnit report and its output.

    ctest_report.py count REPORT [--again REPORT] --skips FILE   prints "PASSED FAILED SKIPPED FLAKY"
    ctest_report.py retryable REPORT OUTPUT AT_MOST [NAME ...]   a regular expression for the tests to run once more, or nothing
    ctest_report.py interrupted OUTPUT                           for a run that left no report: "PASSED"
    ctest_report.py rounds REPORT ...                            for tests that ran several times: "PASSED FAILED"

Details go to standard error: what was skipped and why, what passed at its second try (also within a test, which says
so in a line that begins with FLAKY, and in lines that begin with "    | "), and what failed how often. NAMEs are the
tests whose verdict is a comparison of times (label `timing`).
"""

import argparse
import dataclasses
import fnmatch
import pathlib
import re
import sys
import xml.etree.ElementTree

# A failure with one of these is not a matter of time.
CRASH = re.compile(r"terminate called|Segmentation|AddressSanitizer|core dumped|Traceback")
SAID_FLAKY = re.compile(r"^(FLAKY .*)((?:\n    \| .*)*)", re.MULTILINE)
STARTED = re.compile(r"^ *Start +\d+: (\S+)", re.MULTILINE)
ENDED = re.compile(r"^ *\d+/\d+ Test +#\d+: (\S+) \.* *(?:\*\*\*)?(Passed|Failed|Exception|Timeout|Skipped|Not Run)", re.MULTILINE)


@dataclasses.dataclass
class Result:
    outcome: str  # passed, failed or skipped
    output: str


def read(report):
    """Returns {name: Result}. Tests that were not started, or are disabled, have failed: none is skipped silently."""
    results = {}
    for case in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
        skipped = case.find("skipped")
        is_skipped = skipped is not None and skipped.get("message", "").startswith("SKIP_")
        outcome = "passed" if case.get("status") == "run" else "skipped" if is_skipped else "failed"
        results[case.get("name")] = Result(outcome, case.findtext("system-out", ""))
    return results


def ends(output):
    """Returns {name: ctest's word for how a test ended}. The report has the same word for a failure and a hang."""
    return dict(ENDED.findall(output))


def skips(name, result):
    """Returns (name, reason) of a skipped test, or of each GoogleTest case skipped within another test."""
    # Matches "FILE:LINE: Skipped", the reason, and the case's name. The summary repeats the last name.
    cases = re.findall(r": Skipped\n(.*)\n+\[  SKIPPED \] (\S+\.\S+) \(", result.output)
    if result.outcome == "skipped":
        reasons = re.findall(r"^skipped \S+: (.*)", result.output, re.MULTILINE) + [reason for reason, _ in cases]
        return [(name, reasons[0] if reasons else "no reason given")]
    return [(f"{name}/{case}", reason or "no reason given") for reason, case in cases]


def retryable(results, ended, timing, at_most):
    """Returns the names of the failed tests that may run once more; empty if they are too many."""
    failed = [name for name in results if results[name].outcome == "failed" and name in timing]
    names = [name for name in failed if ended.get(name) == "Failed" and not CRASH.search(results[name].output)]
    return names if len(names) <= at_most else []


def said_flaky(results):
    """Returns what tests repeated themselves, whatever their result."""
    return [f"{said} (in {name}){output}" for name in results for said, output in SAID_FLAKY.findall(results[name].output)]


def count(results, again, expected):
    """Returns (passed, failed, skipped, flaky, further lines). `again`: the second results of the retryable tests."""
    flaky = [name for name in again if results[name].outcome == "failed" and again[name].outcome == "passed"]
    lines = [f"FLAKY {name}: failed, then passed alone" for name in flaky]
    lines += said_flaky(results)
    times_flaky = len(lines)
    outcomes = [result.outcome for result in results.values()]
    passed, failed = outcomes.count("passed") + len(flaky), outcomes.count("failed") - len(flaky)
    skipped = 0
    for name, reason in (skip for name, result in results.items() for skip in skips(name, result)):
        lines.append(f"skipped: {name}: {reason}")
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in expected):
            skipped += 1
        else:
            lines.append(f"FAILED {name}: tests/expected_skips.txt does not expect that it is skipped")
            failed += 1
    return passed, failed, skipped, times_flaky, lines


def read_expected(path):
    words = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return [word for word in words if word]


def say(*lines):
    for line in lines:
        print(line, file=sys.stderr)


def print_rounds(reports):
    """Prints each test that failed, how often, and its first output, which is next to its report."""
    all_names, first, times = set(), {}, {}
    for report in reports:
        results = read(report)
        say(*said_flaky(results))
        for name, result in results.items():
            all_names.add(name)
            if result.outcome == "failed":
                first.setdefault(name, report.with_suffix(".log"))
                times[name] = times.get(name, 0) + 1
    for name in sorted(times):
        say(f"FAILED {name}: {times[name]} of {len(reports)} rounds; first in {first[name]}")
    print(len(all_names) - len(times), len(times))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("count")
    command.add_argument("report", type=pathlib.Path)
    command.add_argument("--again", type=pathlib.Path)
    command.add_argument("--skips", type=pathlib.Path, required=True)
    command = commands.add_parser("retryable")
    command.add_argument("report", type=pathlib.Path)
    command.add_argument("output", type=pathlib.Path)
    command.add_argument("at_most", type=int)
    command.add_argument("names", nargs="*")
    command = commands.add_parser("interrupted")
    command.add_argument("output", type=pathlib.Path)
    command = commands.add_parser("rounds")
    command.add_argument("reports", nargs="+", type=pathlib.Path)
    options = parser.parse_args()

    if options.command == "count":
        again = read(options.again) if options.again else {}
        *counts, lines = count(read(options.report), again, read_expected(options.skips))
        say(*lines)
        print(*counts)
    elif options.command == "retryable":
        names = retryable(read(options.report), ends(options.output.read_text(errors="replace")), options.names, options.at_most)
        if names:
            print("^(" + "|".join(map(re.escape, names)) + ")$")
    elif options.command == "interrupted":
        output = options.output.read_text(errors="replace")
        ended = ends(output)
        running = [name for name in STARTED.findall(output) if name not in ended]
        say(f"running at the end: {' '.join(running) or 'nothing'}")
        print(list(ended.values()).count("Passed"))
    else:
        print_rounds(options.reports)
    return 0


if __name__ == "__main__":
    sys.exit(main())
