"""Tests scripts/test.sh, which counts right, reports every skip, retries nothing that a retry would hide, and ends
well, and scripts/flake.sh, which finds what fails now and then. They run a toy ctest folder of shell commands."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

LIMIT_S = 120  # against hanging
SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"

# Appends to the file RUNS at each start, so that a test knows how often it ran.
PASSES = "exit 0"
FAILS = "exit 1"
CRASHES = "kill -SEGV $$"
THROWS = "echo 'terminate called after throwing'; exit 1"
HANGS = "exec sleep 1000"
FAILS_ONCE = "test $(wc -c <RUNS) -gt 1"
SKIPS = "echo 'skipped toy: needs a browser'; exit 77"
SKIPS_A_CASE = """\
printf '[ RUN      ] Toy.Gpu\\ntoy_test.cpp:20: Skipped\\nno GPU here\\n\\n[  SKIPPED ] Toy.Gpu (0 ms)\\n'
printf '[  SKIPPED ] 1 test, listed below:\\n[  SKIPPED ] Toy.Gpu\\n'"""


class Toy:
    """A ctest folder. add() makes a test of a shell command."""

    def __init__(self, folder, expected_skips=""):
        self.folder = Path(folder)
        self.jobs = []
        self.expected_skips = self.folder / "expected_skips.txt"
        self.expected_skips.write_text(expected_skips)
        self.environment = {**os.environ, "TITAN_SKIP_SETUP": "1", "TITAN_TEST_DIR": folder}
        self.environment["TITAN_EXPECTED_SKIPS"] = str(self.expected_skips)

    def add(self, name, command, labels="unit", timeout_s=300):
        script = self.folder / f"{name}.sh"
        script.write_text(f"printf x >>RUNS\n{command}\n".replace("RUNS", str(self.folder / f"{name}.runs")))
        with open(self.folder / "CTestTestfile.cmake", "a") as file:
            print(f'add_test({name} /bin/sh {script})', file=file)
            print(f'set_tests_properties({name} PROPERTIES LABELS "{labels}" TIMEOUT {timeout_s} SKIP_RETURN_CODE 77)', file=file)

    def runs(self, name):
        return len((self.folder / f"{name}.runs").read_text())

    def start(self, script, *words):
        job = subprocess.Popen([SCRIPTS / script, *words], env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, start_new_session=True)
        self.jobs.append(job)
        return job

    def run(self, script, *words):
        return self.end_of(self.start(script, *words))

    @staticmethod
    def end_of(job):
        """Returns (exit code, last line, all lines)."""
        lines = job.communicate(timeout=LIMIT_S)[0].splitlines()
        return job.returncode, lines[-1], lines

    def end(self):
        """Ends what a defect leaves behind, such as busy loops."""
        for job in self.jobs:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)


class Base(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.toy = Toy(folder.name, "toy.lists*  # a browser\nlists_a_case/Toy.Gpu  # a GPU\n\n# nothing else\n")
        self.addCleanup(self.toy.end)

    def check(self, found, code, last_line, *others):
        self.assertEqual((found[0], found[1]), (code, last_line), "\n".join(found[2]))
        for line in others:
            self.assertIn(line, found[2])


class TestSh(Base):
    def test_counts_what_passed_and_what_failed(self):
        self.toy.add("passes", PASSES)
        self.check(self.toy.run("test.sh", "unit"), 0, "1 passed, 0 failed")
        self.toy.add("fails", FAILS)
        self.toy.add("crashes", CRASHES)
        self.toy.add("hangs", HANGS, timeout_s=1)
        self.check(self.toy.run("test.sh", "unit"), 1, "1 passed, 3 failed")

    def test_by_default_runs_unit_dist_and_integration(self):
        for label in ("unit", "dist", "integration", "unit;quick", "wide", "long", "other"):
            self.toy.add("toy." + label.replace(";", "_"), PASSES, label)
        self.check(self.toy.run("test.sh"), 0, "4 passed, 0 failed")
        self.check(self.toy.run("test.sh", "quick"), 0, "1 passed, 0 failed")
        self.check(self.toy.run("test.sh", "quick", "dist"), 0, "2 passed, 0 failed")

    def test_a_label_without_tests_is_a_failure(self):
        self.toy.add("passes", PASSES)
        self.check(self.toy.run("test.sh", "unit", "dist"), 1, "1 passed, 1 failed", "test.sh: no test has the label dist")
        self.check(self.toy.run("test.sh", "dist"), 1, "0 passed, 1 failed")

    def test_a_skip_that_is_expected_is_counted_and_named(self):
        self.toy.add("passes", PASSES)
        self.toy.add("toy.lists_this", SKIPS)
        self.check(self.toy.run("test.sh", "unit"), 0, "1 passed, 0 failed, 1 skipped", "skipped: toy.lists_this: needs a browser")

    def test_a_skip_that_is_not_expected_is_a_failure(self):
        self.toy.add("passes", PASSES)
        self.toy.add("toy.other", SKIPS)
        self.check(self.toy.run("test.sh", "unit"), 1, "1 passed, 1 failed", "skipped: toy.other: needs a browser")

    def test_what_was_not_built_is_no_skip(self):
        self.toy.add("toy.lists_this", PASSES)
        tests = self.toy.folder / "CTestTestfile.cmake"
        tests.write_text(tests.read_text().replace("/bin/sh", "/bin/not_there"))
        self.check(self.toy.run("test.sh", "unit"), 1, "0 passed, 1 failed")

    def test_that_nothing_ran_is_no_success(self):
        self.toy.add("toy.lists_this", SKIPS)
        self.check(self.toy.run("test.sh", "unit"), 1, "0 passed, 0 failed, 1 skipped")

    def test_sees_a_case_that_a_passed_binary_skipped(self):
        self.toy.add("lists_a_case", SKIPS_A_CASE)
        self.check(self.toy.run("test.sh", "unit"), 0, "1 passed, 0 failed, 1 skipped", "skipped: lists_a_case/Toy.Gpu: no GPU here")
        self.toy.add("lists_none", "head -c 5000 /dev/zero | tr '\\0' x; echo\n" + SKIPS_A_CASE)
        self.check(self.toy.run("test.sh", "unit"), 1, "2 passed, 1 failed, 1 skipped", "skipped: lists_none/Toy.Gpu: no GPU here")

    def test_tries_once_more_what_only_compares_times(self):
        self.toy.add("toy.once", FAILS_ONCE, "unit;timing")
        self.toy.add("always", FAILS, "unit;timing")
        found = self.toy.run("test.sh", "unit")
        self.check(found, 1, "1 passed, 1 failed", "FLAKY toy.once: failed, then passed alone")
        self.assertTrue(any(line.startswith("test.sh: 1 FLAKY") for line in found[2]))
        self.assertEqual((self.toy.runs("toy.once"), self.toy.runs("always")), (2, 2))

    def test_says_what_a_test_had_to_do_again(self):
        self.toy.add("asks", "echo 'FLAKY oracle: computed again'; echo '    | a stack'; echo 'not FLAKY'")
        found = self.toy.run("test.sh", "unit")
        self.check(found, 0, "1 passed, 0 failed", "FLAKY oracle: computed again (in asks)", "    | a stack")
        self.assertTrue(any(line.startswith("test.sh: 1 FLAKY") for line in found[2]))

    def test_tries_nothing_else_again(self):
        self.toy.add("no_label", FAILS_ONCE)
        for name, command in (("crashes", CRASHES), ("throws", THROWS), ("hangs", HANGS)):
            self.toy.add(name, command, "unit;timing", timeout_s=1)
        found = self.toy.run("test.sh", "unit")
        self.check(found, 1, "0 passed, 4 failed")
        self.assertEqual([self.toy.runs(name) for name in ("no_label", "crashes", "throws", "hangs")], [1, 1, 1, 1])

    def test_tries_none_again_of_more_than_three(self):
        names = [f"once_{number}" for number in range(4)]
        for name in names:
            self.toy.add(name, FAILS_ONCE, "unit;timing")
        self.check(self.toy.run("test.sh", "unit"), 1, "0 passed, 4 failed")
        self.assertEqual([self.toy.runs(name) for name in names], [1] * 4)

    def test_says_how_far_it_came_when_it_is_ended(self):
        pid_file = self.toy.folder / "pid"
        self.toy.add("passes", PASSES)
        # The programs of the integration tests have sessions of their own, too.
        self.toy.add("hangs", f"setsid sleep 1000 & echo $! >{pid_file}.new; mv {pid_file}.new {pid_file}; wait")
        with open(self.toy.folder / "CTestTestfile.cmake", "a") as file:
            print("set_tests_properties(hangs PROPERTIES DEPENDS passes)", file=file)
        job = self.toy.start("test.sh", "unit")
        while not pid_file.exists():
            self.assertIsNone(job.poll())
            time.sleep(0.02)
        job.send_signal(signal.SIGTERM)
        self.check(self.toy.end_of(job), 1, "1 passed, 1 failed", "running at the end: hangs")
        self.assertIsNone(session(Path("/proc", pid_file.read_text().strip(), "stat")))


class FlakeSh(Base):
    def test_says_what_fails_how_often_and_where(self):
        self.toy.add("passes", PASSES, "dist")
        self.check(self.toy.run("flake.sh", "1"), 0, "1 passed, 0 failed")
        self.toy.add("toy.once", FAILS_ONCE, "integration")
        self.check(self.toy.run("flake.sh", "2"), 1, "1 passed, 1 failed",
                   f"FAILED toy.once: 1 of 2 rounds; first in {self.toy.folder}/flake/1.log")
        self.check(self.toy.run("flake.sh", "2", "^passes$"), 0, "1 passed, 0 failed")
        self.check(self.toy.run("flake.sh", "1", "nothing"), 1, "0 passed, 0 failed")

    def test_says_what_a_test_had_to_do_again(self):
        self.toy.add("asks", "echo 'FLAKY oracle: computed again'", "dist")
        self.check(self.toy.run("flake.sh", "1"), 0, "1 passed, 0 failed", "FLAKY oracle: computed again (in asks)")

    def test_leaves_no_process(self):
        started = self.toy.folder / "started"
        self.toy.add("hangs", f"touch {started}; " + HANGS, "dist")
        job = self.toy.start("flake.sh", "1")
        while not started.exists():
            self.assertIsNone(job.poll())
            time.sleep(0.02)
        job.send_signal(signal.SIGINT)
        self.assertEqual(self.toy.end_of(job)[0], 130)
        left = [stat.parent.name for stat in Path("/proc").glob("[0-9]*/stat") if session(stat) == job.pid]
        self.assertEqual(left, [])

    def test_stops_programs_of_the_build_for_a_while(self):
        shutil.copy("/bin/sleep", self.toy.folder / "program")
        (self.toy.folder / "watch.py").write_text(WATCH)
        self.toy.add("is_stopped", f"exec {sys.executable} {self.toy.folder}/watch.py {self.toy.folder}/program", "dist")
        self.check(self.toy.run("flake.sh", "1"), 0, "1 passed, 0 failed")

    def test_stops_the_cases_in_place_of_the_programs(self):
        runner = self.toy.folder / "integration" / "run.py"
        runner.parent.mkdir()
        runner.write_text(IS_STOPPED)
        self.toy.add("case", f"exec {sys.executable} {runner}", "integration")
        self.toy.environment["TITAN_FLAKE_STOPS"] = "tests"
        self.check(self.toy.run("flake.sh", "1"), 0, "1 passed, 0 failed")
        self.toy.environment["TITAN_FLAKE_STOPS"] = "nobody"
        self.assertEqual(self.toy.run("flake.sh", "1")[0], 2)


# Ends when its child has seen it stopped twice.
IS_STOPPED = """\
import os, subprocess
state = f"grep -q '^State:.T' /proc/{os.getpid()}/status"
subprocess.run(f"for i in 1 2; do until {state}; do sleep 0.01; done; while {state}; do sleep 0.01; done; done", shell=True)
"""

# Ends when its program was stopped and continued.
WATCH = """\
import os, signal, subprocess, sys
job = subprocess.Popen([sys.argv[1], "1000"])
assert os.WIFSTOPPED(os.waitpid(job.pid, os.WUNTRACED)[1])
assert os.WIFCONTINUED(os.waitpid(job.pid, os.WCONTINUED)[1])
job.kill()
"""


def session(stat):
    """Returns the session of a process from its /proc/PID/stat; None if it has ended."""
    try:
        fields = stat.read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[3])


if __name__ == "__main__":
    unittest.main()
