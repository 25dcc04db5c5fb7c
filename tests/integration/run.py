"""Runs the integration cases against a built program.

    .venv/bin/python tests/integration/run.py [--program build/release/titan-train] [--work FOLDER] [--quick] [CASE ...]
    .venv/bin/python tests/integration/run.py --list

A CASE may end in * to name several. The program may be an installed one: cases that need files of a build are skipped. Prints one line per case, then "N passed, N failed, N skipped"; the exit code is 1
if any failed, 77 if all were skipped. The folder of a failed case is kept and named. TITAN_TIME_SCALE (5) multiplies
time limits.
"""
import argparse
import fnmatch
import math
import pathlib
import resource
import shutil
import sys
import tempfile
import threading
import time
import traceback

import case_files
import fixtures
import harness

SKIPPED = 77  # the exit code that ctest takes for a test that was skipped


def run_case(name, program, work):
    """Returns (None, or the text of the failure; None, or what the machine lacks for this case)."""
    case = harness.CASES[name]
    made = fixtures.make_fixtures(work)
    folder = pathlib.Path(tempfile.mkdtemp(dir=work, prefix=f"{name}-"))
    context = harness.Context(program=program, folder=folder, fixtures=made)
    failure = lacking = None
    try:
        with time_limit(case.timeout_s * harness.TIME_SCALE):
            case.function(context, **case.parameters)
    except harness.Skip as what:
        lacking = str(what)
    except harness.Failure as error:
        failure = str(error)
    except Exception:
        failure = traceback.format_exc()
    finally:
        harness.end_all_jobs()
        harness.JOBS.clear()
    if failure is None:
        shutil.rmtree(folder)
        return None, lacking
    return f"{failure}\n  kept: {folder}", None


class time_limit:
    """Ends every job of a case that runs too long; whatever the case waits for then fails. A case that has passed has
    passed, however late."""

    def __init__(self, timeout_s):
        self.timeout_s = timeout_s
        self.fired = False
        self.timer = threading.Timer(timeout_s, self.fire)

    def fire(self):
        self.fired = True
        harness.end_all_jobs()

    def __enter__(self):
        self.timer.start()

    def __exit__(self, kind, error, trace):
        self.timer.cancel()
        self.timer.join()
        if self.fired and error is not None:
            raise harness.Failure(f"took longer than {self.timeout_s:.0f} s: {error}") from error


def processor_seconds():
    """Returns the processor time of this process and of those that it has waited for, with theirs."""
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def select(patterns):
    chosen = [name for name in harness.CASES if not patterns or any(fnmatch.fnmatch(name, p) for p in patterns)]
    for pattern in patterns:
        if not fnmatch.filter(harness.CASES, pattern):
            raise SystemExit(f"run.py: no case is called '{pattern}'; see --list")
    return chosen


def main(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--program", default=harness.ROOT / "build/release/titan-train", type=pathlib.Path)
    parser.add_argument("--work", default=harness.ROOT / "build/release/integration", type=pathlib.Path)
    parser.add_argument("--list", action="store_true", help="print 'NAME SECONDS TIER QUICK PROCESSORS' lines and stop")
    parser.add_argument("--quick", action="store_true", help="only the cases of scripts/test.sh quick")
    parser.add_argument("--update", action="store_true", help="write expected messages (tests/bad_configs) anew")
    parser.add_argument("cases", nargs="*", metavar="CASE")
    options = parser.parse_args(words)
    case_files.import_for(options.cases)
    if options.list:
        for name, case in harness.CASES.items():
            seconds = math.ceil(case.timeout_s * harness.TIME_SCALE)
            print(name, seconds, case.tier, "quick" if case.quick else "-", case.processors)
        return 0
    harness.UPDATE = options.update
    options.work.mkdir(parents=True, exist_ok=True)
    passed, failed, skipped = 0, 0, 0
    for name in select(options.cases):
        if options.quick and not harness.CASES[name].quick:
            continue
        started, used = time.monotonic(), processor_seconds()
        failure, lacking = run_case(name, options.program.resolve(), options.work.resolve())
        spent = f"({time.monotonic() - started:.1f} s, {processor_seconds() - used:.1f} s of processor time)"
        if failure is not None:
            failed += 1
            print(f"FAILED {name} {spent}\n  " + failure.replace("\n", "\n  "), flush=True)
        elif lacking is not None:
            skipped += 1
            print(f"skipped {name}: needs {lacking}", flush=True)
        else:
            passed += 1
            print(f"ok     {name} {spent}", flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else SKIPPED if skipped and not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
