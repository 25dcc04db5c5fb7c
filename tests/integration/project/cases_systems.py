"""Tests a system's umasks, limits, full outputs, many files and few processors: the program copes or says so."""
import json
import os
import re
import resource
import stat
import subprocess

from fixtures import write_job
from harness import TIME_SCALE, case, expect, free_port, read_rows

SAVE = ["--checkpoint.enable", "--checkpoint.interval", "2"]


def titan_train(context, *words, before=None, **options):
    """Returns a finished process; `before` ran in it before the program."""
    words = [context.program, *(str(word) for word in words)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True} | options
    return subprocess.run(words, preexec_fn=before, timeout=60 * TIME_SCALE, **options)


@case(60)
def files_follow_the_umask(context):
    """A group whose umask lets it write can write what a run leaves, as in any shared folder."""
    config = write_job(context, "shared", steps=2)
    done = titan_train(context, "--config", config, "--nproc", 2, *SAVE, before=lambda: os.umask(0o002))
    expect(done.returncode == 0, done.stdout)
    files = [path for path in context.dump("shared").rglob("*") if path.is_file()]
    wrong = {str(path.name): oct(stat.S_IMODE(path.stat().st_mode)) for path in files if stat.S_IMODE(path.stat().st_mode) & 0o664 != 0o664}
    expect(len(files) > 8 and not wrong, f"{wrong}")


@case(60, processors=1)
def files_that_may_not_grow(context):
    """RLIMIT_FSIZE is an error of the save, with the file's name, not a signal that ends the run silently."""
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))

    done = titan_train(context, "--config", write_job(context, "stops", steps=2), *SAVE, before=limit)
    expect(done.returncode == 1 and re.search(r"saving checkpoint .*File too large: .*at most 976.56 KiB: raise that \(ulimit -f\)", done.stdout), f"{done.returncode}\n{done.stdout[-2000:]}")
    words = ["--config", write_job(context, "goes-on", steps=3), *SAVE, "--checkpoint.on_save_error", "warn", "--lr_scheduler.total_steps", "8"]
    done = titan_train(context, *words, before=limit)
    steps = [row["step"] for row in read_rows(context.dump("goes-on") / "metrics.jsonl")]
    expect(steps == [1, 2, 3], f"{steps}\n{done.stdout[-2000:]}")


@case(60, quick=True, processors=1)
def lost_output_is_an_error(context):
    """A command whose result could not be written fails."""
    config = write_job(context, "printed", steps=1)
    with open("/dev/full", "wb") as full:
        for words in (["--config", config, "--print-config"], ["--help"], ["--completion", "bash"], ["init", "--help"]):
            done = titan_train(context, *words, stdout=full, stderr=subprocess.PIPE)
            expect(done.returncode == 1 and "standard output cannot be written" in done.stderr, f"{words}: {done.returncode} {done.stderr}")


@case(60, processors=1)
def data_of_many_files(context):
    """Data may have more files than the soft limit of descriptors; at the hard limit, the error names the limit."""
    folder = context.folder / "many"
    folder.mkdir()
    for number in range(200):
        (folder / f"{number:03d}.jsonl").write_text(json.dumps({"text": f"document {number} " * 20}) + "\n")
    words = ["--training.dataset", "jsonl", "--training.dataset_path", folder]
    for hard, code in ((1000, 0), (150, 1)):
        def limit(hard=hard):
            resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))

        done = titan_train(context, "--config", write_job(context, f"files-{hard}", steps=1), *words, before=limit)
        expect((done.returncode == 0) == (code == 0), f"{hard}: {done.returncode}\n{done.stdout[-1500:]}")
        expect(code == 0 or "raise ulimit -Hn" in done.stdout, done.stdout[-1500:])


@case(60)
def threads_follow_the_processors(context):
    """A rank that is bound to a processor has one thread; doctor sees what the ranks have together."""
    cores = sorted(os.sched_getaffinity(0))
    one = write_job(context, "bound", steps=1)
    environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    done = titan_train(context, "doctor", "--config", one, "--json", before=lambda: os.sched_setaffinity(0, cores[:1]), env=environment, stderr=subprocess.PIPE)
    threads = next(check for check in json.loads(done.stdout)["checks"] if check["name"] == "threads")
    expect("1 thread on 1 core" in threads["found"] and threads["state"] == "ok", f"{threads}")
    # Two ranks, each on a processor of its own, as mpirun binds them; and both on one.
    # A machine with one processor can only show the latter.
    apart = [("apart", cores[:2], "ok")] if len(cores) > 1 else []
    for name, places, expected in (*apart, ("together", [cores[0], cores[0]], "warning")):
        ranks, port = [], free_port()
        for rank, core in enumerate(places):
            variables = {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            env = environment | {key: str(value) for key, value in variables.items()}
            ranks.append(subprocess.Popen([context.program, "doctor", "--config", str(one), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, preexec_fn=lambda core=core: os.sched_setaffinity(0, {core})))
        out = [rank.communicate(timeout=60 * TIME_SCALE) for rank in ranks]
        found = next(check for check in json.loads(out[0][0])["checks"] if check["name"] == "threads")
        expect(found["state"] == expected, f"{name}: {found}")
