"""Lets several jobs train in turns, a step each, so that pairs of steps lie next to each other in time.

A processor whose speed changes within a minute spoils the ratio of two runs, and much less that of two steps. All
ranks of a job are stopped (SIGSTOP) while another job makes its step, from one row of metrics.jsonl to the next.
"""
import concurrent.futures
import signal
import time

import common
from common import harness

POLL_S = 0.001


class Turns:
    """Jobs by name. Each is run by a call of run_job in a thread; measure() gives them their turns."""

    def __init__(self, ranks):
        self.ranks = ranks
        self.watches = {}  # name -> Watch
        self.rows = {}  # name -> path of metrics.jsonl
        self.is_closed = False  # set once one of the jobs has failed

    def watch_of(self, name, rows):
        """Returns what run_once() needs to watch the job of this name, whose rows are written to this path."""

        def make(job):
            self.watches[name], self.rows[name] = common.Watch(job), rows
            if self.is_closed:
                job.end()  # another one has failed before this one was started
            return self.watches[name]

        return make

    def measure(self, names, first_step, steps, futures):
        """Returns name -> seconds of each step after the first ones. Both lists have a step's pair at one place."""
        try:
            begin = self.stop_together(names, first_step, futures)
            seconds = {name: [] for name in names}
            for step in range(begin + 1, steps):  # the last one is left to the end of the run
                for name in names[:: 1 if step % 2 == 0 else -1]:
                    seconds[name].append(self.step(name, step, futures))
            return seconds
        finally:
            for name in names:
                self.send(name, signal.SIGCONT)

    def stop_together(self, names, first_step, futures):
        """Stops all jobs right after the row of one step, which is not before first_step. Returns that step."""
        running = set(names)
        while running:
            self.check_all_run(futures)
            for name in sorted(running):
                if self.count_rows(name) >= first_step:
                    self.send(name, signal.SIGSTOP)
                    running.remove(name)
            time.sleep(POLL_S)
        last = max(self.count_rows(name) for name in names) + 1
        for name in names:  # also the one that is furthest, which may have been stopped within a step
            while self.count_rows(name) < last:
                self.step(name, self.count_rows(name) + 1, futures)
        return last

    def step(self, name, step, futures):
        """Lets the job work until it has the row of this step. Returns the seconds that it took."""
        harness.expect(self.count_rows(name) == step - 1, f"{name} did not stop after step {step - 1}")
        begin = time.monotonic()
        self.send(name, signal.SIGCONT)
        while self.count_rows(name) < step:
            self.check_all_run(futures)
            time.sleep(POLL_S)
        seconds = time.monotonic() - begin
        self.send(name, signal.SIGSTOP)
        return seconds

    def check_all_run(self, futures):
        for future in concurrent.futures.wait(futures, timeout=0).done:
            future.result()  # raises what ended it
            harness.expect(False, "a run ended before its last step")

    def count_rows(self, name):
        try:
            return self.rows[name].read_bytes().count(b"\n")
        except (KeyError, FileNotFoundError):
            return 0

    def send(self, name, number):
        pids = list(self.watches[name].pids.values()) if name in self.watches else []
        harness.expect(len(pids) == self.ranks or number == signal.SIGCONT, f"{name}: ranks {pids}, expected {self.ranks}")
        for pid in pids:
            harness.kill(pid, number)


def run_in_turns(run_job, names, ranks, first_step, steps):
    """Runs run_job(name, turns) for all names at once. Returns ({name: its result}, {name: seconds of steps})."""
    turns = Turns(ranks)
    with concurrent.futures.ThreadPoolExecutor(len(names)) as pool:
        futures = {name: pool.submit(run_job, name, turns) for name in names}
        try:
            seconds = turns.measure(names, first_step, steps, futures.values())
        except BaseException:
            turns.is_closed = True
            harness.end_all_jobs()
            raise
        return {name: future.result() for name, future in futures.items()}, seconds
