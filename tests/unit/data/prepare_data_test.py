"""scripts/prepare_data.py makes the same bytes anywhere, and only once: prepare_data_test.py SCRIPT."""

import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile


def digest(folder: pathlib.Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def prepare(script: str, output: pathlib.Path, train_bytes: int = 1_000_000) -> str:
    command = [sys.executable, script, "--output", output, "--train-bytes", str(train_bytes)]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    assert len(result.stdout.splitlines()) == 1, result.stdout
    return result.stdout


def main() -> None:
    script = sys.argv[1]
    with tempfile.TemporaryDirectory() as temporary:
        first, second = pathlib.Path(temporary, "first"), pathlib.Path(temporary, "elsewhere", "second")
        assert "made" in prepare(script, first)
        files = digest(first)

        assert "up to date" in prepare(script, first)
        assert digest(first) == files

        # State after a killed run: no stamp, a partial folder, and a file of the user's own.
        second.mkdir(parents=True)
        (second / ".prepare-killed").mkdir()
        (second / "mine.txt").write_text("mine")
        assert "made" in prepare(script, second)
        (second / "mine.txt").unlink()
        assert digest(second) == files, "two runs gave different bytes"

        for split in ("train", "validation"):
            texts = [path.read_bytes().decode() for path in sorted((first / "corpus" / split).iterdir())]
            lines = (first / "corpus" / f"{split}.jsonl").read_text(encoding="utf-8").split("\n")
            assert [json.loads(line)["text"] for line in lines if line] == texts, f"{split}.jsonl is not {split}/"
        names = [{path.name for path in (first / "corpus" / split).iterdir()} for split in ("train", "validation")]
        assert names[0] and names[1] and not names[0] & names[1], "held-out documents are trained on"
    print("prepare_data is repeatable")


if __name__ == "__main__":
    main()
