"""Runs cases in forks of one Python that has imported all of them and torch, which takes longer than most cases.

    case_server.py WORDS    does what run.py WORDS does

The first caller starts the server; it ends with the ctest that the caller belongs to. A case still has a process of its
own, with the caller's input, outputs, folder and environment.
"""
import fcntl
import hashlib
import json
import os
import pathlib
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback

SOURCES = pathlib.Path(__file__).resolve().parent
SERVE = "--serve"  # starts the server
BEGUN = b"b"
POLL_S = 1
TRIES = 3  # a server may end while a caller connects


def folder():
    """Returns the folder of the server for this environment and these sources, with its socket, lock and log."""
    sources = [(str(path), path.stat().st_mtime_ns) for path in sorted(SOURCES.rglob("*.py"))]
    key = json.dumps([sys.executable, os.getuid(), os.getppid(), sources, sorted(os.environ.items())])
    made = pathlib.Path(tempfile.gettempdir(), f"titan-test-cases-{hashlib.sha256(key.encode()).hexdigest()[:16]}")
    made.mkdir(exist_ok=True)
    return made


def connected(path):
    server = socket.socket(socket.AF_UNIX)
    try:
        server.connect(str(path))
    except OSError:
        server.close()
        raise
    return server


def connect(home):
    """Returns a connection to the server, which is started if there is none. It answers when its imports are done."""
    path = home / "socket"
    with open(home / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            return connected(path)
        except (FileNotFoundError, ConnectionRefusedError):
            path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener, open(home / "log", "w") as log:
            listener.bind(str(path))
            listener.listen(128)
            command = [sys.executable, __file__, SERVE, str(home), str(listener.fileno()), str(os.getppid())]
            end = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            subprocess.Popen(command, pass_fds=[listener.fileno()], start_new_session=True, **end)
        return connected(path)


def call(words):
    """Returns the exit code of `run.py WORDS` in a fork of the server."""
    home = folder()
    for _ in range(TRIES):
        with connect(home) as server:
            try:
                socket.send_fds(server, [b"\n"], [0, 1, 2])
                server.sendall(json.dumps([words, os.getcwd()]).encode() + b"\n")
                if server.recv(1) != BEGUN:
                    continue
            except (ConnectionResetError, BrokenPipeError):
                continue
            code = server.recv(1)
            if code:
                return code[0]
            raise SystemExit("run.py: the server of cases died during the case")
    raise SystemExit(f"run.py: the server of cases does not start\n{(home / 'log').read_text()}")


def run_case(words, cwd, ends):
    """Runs in the fork; never returns."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        for number, end in enumerate(ends):
            os.dup2(end, number)
            os.close(end)
        os.chdir(cwd)
        random.seed()  # forks would draw the same ports
        from run import main

        code = main(words)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
        print(end.code if isinstance(end.code, str) else "", file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class Server:
    def __init__(self, listener):
        self.listener = listener
        self.running = {}  # pid -> connection to the caller
        self.woken, wake = socket.socketpair()
        for end in (self.woken, wake):
            end.setblocking(False)
        signal.set_wakeup_fd(wake.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.wake = wake

    def accept(self):
        caller, _ = self.listener.accept()
        _, ends, _, _ = socket.recv_fds(caller, 1, 3)
        with caller.makefile("rb") as request:
            line = request.readline()
        if line.endswith(b"\n"):
            caller.sendall(BEGUN)
            pid = os.fork()
            if pid == 0:
                self.listener.close()
                for other in [caller, *self.running.values()]:
                    other.close()
                run_case(*json.loads(line), ends)
            self.running[pid] = caller
        for end in ends:
            os.close(end)

    def end_abandoned(self, callers):
        """Kills the cases whose caller has gone."""
        for pid, caller in self.running.items():
            if caller in callers:
                os.kill(pid, signal.SIGKILL)

    def reap(self):
        for pid in list(self.running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                with self.running.pop(pid) as caller:
                    try:
                        caller.sendall(bytes([code if code >= 0 else 128 - code]))
                    except OSError:
                        pass  # the caller has gone

    def run(self, is_needed):
        while self.running or is_needed():
            ready, _, _ = select.select([self.listener, self.woken, *self.running.values()], [], [], POLL_S)
            if self.woken in ready:
                self.woken.recv(4096)
            self.end_abandoned(ready)
            self.reap()
            if self.listener in ready:
                self.accept()


def is_there(pid):
    return pathlib.Path(f"/proc/{pid}").exists()


def serve(home, listener, ctest):
    environment = dict(os.environ)
    import case_files

    case_files.import_all()
    import torch  # noqa: F401

    os.environ.clear()  # importing torch sets some
    os.environ.update(environment)
    Server(socket.socket(fileno=int(listener))).run(lambda: is_there(ctest))
    with open(pathlib.Path(home, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(home)


if __name__ == "__main__":
    if sys.argv[1] != SERVE:
        sys.exit(call(sys.argv[1:]))
    serve(*sys.argv[2:])
