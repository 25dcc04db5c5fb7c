"""Runs the integration cases against a built program.

    .venv/bin/python tests/integration/run.py [--program build/release/titan-train] [--work FOLDER] [CASE ...]
    .venv/bin/python tests/integration/run.py --list

A CASE may end in * to name several. One line a case, then "N passed, N failed"; the exit code is 1 if any failed. The
folder of a failed case is kept and named.
"""
import argparse
import fnmatch
import pathlib
import shutil
import sys
import tempfile
import threading
import time
import traceback

import cases_checkpoint  # noqa: F401  (importing registers the cases)
import cases_checkpoint_disk  # noqa: F401
import cases_checkpoint_kill  # noqa: F401
import cases_checkpoint_peers  # noqa: F401
import cases_collectives  # noqa: F401
import cases_config  # noqa: F401
import cases_convert  # noqa: F401
import cases_cuda  # noqa: F401
import cases_data  # noqa: F401
import cases_docs  # noqa: F401
import cases_failure  # noqa: F401
import cases_gpu_check  # noqa: F401
import cases_harness  # noqa: F401
import cases_hugging_face  # noqa: F401
import cases_install  # noqa: F401
import cases_jobs  # noqa: F401
import cases_launch  # noqa: F401
import cases_parity  # noqa: F401
import cases_parity_table  # noqa: F401
import cases_resume  # noqa: F401
import cases_sweep  # noqa: F401
import cases_tokenizer  # noqa: F401
import cases_train  # noqa: F401
import cases_transformers  # noqa: F401
import cases_validation  # noqa: F401
import fixtures
import harness


def run_case(name, program, work):
    """None, or the text of the failure."""
    function, parameters, timeout_s = harness.CASES[name]
    made = fixtures.make_fixtures(work)
    folder = pathlib.Path(tempfile.mkdtemp(dir=work, prefix=f"{name}-"))
    context = harness.Context(program=program, folder=folder, fixtures=made)
    failure = None
    try:
        with time_limit(timeout_s):
            function(context, **parameters)
    except harness.Failure as error:
        failure = str(error)
    except Exception:
        failure = traceback.format_exc()
    finally:
        harness.end_all_jobs()
        harness.JOBS.clear()
    if failure is None:
        shutil.rmtree(folder)
        return None
    return f"{failure}\n  kept: {folder}"


class time_limit:
    """Ends every job of a case that runs too long; whatever the case waits for then fails."""

    def __init__(self, timeout_s):
        self.timeout_s = timeout_s
        self.timer = threading.Timer(timeout_s, harness.end_all_jobs)

    def __enter__(self):
        self.deadline = time.monotonic() + self.timeout_s
        self.timer.start()

    def __exit__(self, kind, error, trace):
        self.timer.cancel()
        self.timer.join()
        if time.monotonic() > self.deadline:
            raise harness.Failure(f"took longer than {self.timeout_s} s") from error


def select(patterns):
    chosen = [name for name in harness.CASES if not patterns or any(fnmatch.fnmatch(name, p) for p in patterns)]
    for pattern in patterns:
        if not fnmatch.filter(harness.CASES, pattern):
            raise SystemExit(f"run.py: no case is called '{pattern}'; see --list")
    return chosen


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--program", default=harness.ROOT / "build/release/titan-train", type=pathlib.Path)
    parser.add_argument("--work", default=harness.ROOT / "build/release/integration", type=pathlib.Path)
    parser.add_argument("--list", action="store_true", help="print 'NAME SECONDS' lines and stop")
    parser.add_argument("--update", action="store_true", help="write expected messages (tests/bad_configs) anew")
    parser.add_argument("cases", nargs="*", metavar="CASE")
    options = parser.parse_args()
    if options.list:
        for name, (_, _, timeout_s) in harness.CASES.items():
            print(name, timeout_s)
        return 0
    harness.UPDATE = options.update
    options.work.mkdir(parents=True, exist_ok=True)
    failed, chosen = 0, select(options.cases)
    for name in chosen:
        started = time.monotonic()
        failure = run_case(name, options.program.resolve(), options.work.resolve())
        seconds = time.monotonic() - started
        print(f"{'ok    ' if failure is None else 'FAILED'} {name} ({seconds:.1f} s)", flush=True)
        if failure is not None:
            failed += 1
            print("  " + failure.replace("\n", "\n  "), flush=True)
    print(f"{len(chosen) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
