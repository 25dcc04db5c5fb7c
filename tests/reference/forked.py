"""Runs ranks as forks of one Python that has loaded torch, which takes longer than most of their work."""
import faulthandler
import os
import pathlib
import signal
import sys
import tempfile
import traceback

import torch.distributed as dist


def rank_main(rank, ranks, meeting, function, arguments):
    """Runs one fork; never returns."""
    faulthandler.enable()  # if PyTorch's own code dies of a signal, this says what Python was doing
    try:
        # Meets through a file: no port that another process could take.
        dist.init_process_group("gloo", store=dist.FileStore(meeting, ranks), rank=rank, world_size=ranks)
        function(*arguments)
        dist.barrier()  # nobody leaves before the others are done
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    # Skips the interpreter's teardown, see llama_fsdp2.end_process().
    os._exit(0)


def run_ranks(ranks, function, *arguments):
    """Calls function(*arguments) in each of `ranks` processes of a Gloo group and waits for them. If one fails, the
    others are ended and so is the caller, with 1, or with 128 + the signal that the rank died of.

    Nothing that starts threads may have run before: no backward pass, no process group.
    """
    with tempfile.TemporaryDirectory() as folder:
        meeting = str(pathlib.Path(folder, "store"))
        pids = []
        for rank in range(ranks):
            pid = os.fork()
            if pid == 0:
                rank_main(rank, ranks, meeting, function, arguments)
            pids.append(pid)
        wait_for(pids)


def wait_for(pids):
    left = set(pids)
    while left:
        pid, status = os.wait()
        left.discard(pid)
        if status == 0:
            continue
        for other in left:
            os.kill(other, signal.SIGKILL)  # no effect on one that is dying already
        ends = [(pid, status), *(os.waitpid(other, 0) for other in left)]
        codes = [(pids.index(pid), os.waitstatus_to_exitcode(status)) for pid, status in ends]
        # A crash makes the other ranks raise, and may be seen after them.
        rank, code = next((end for end in codes if end[1] < 0 and end[1] != -signal.SIGKILL), codes[0])
        print(f"reference: rank {rank} ended with {code}", file=sys.stderr)
        sys.exit(128 - code if code < 0 else 1)
