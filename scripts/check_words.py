#!/usr/bin/env python3
"""Finds the turns of phrase that CONTRIBUTING.md (Style) asks to avoid, in comments and in Markdown.

usage: check_words.py [FILE ...]   without files: all C++ of src, models, data and apps, and all Markdown
Prints FILE:LINE, the words, and what to say instead. Exit code 0: none found, 1: some.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src/", "models/", "data/", "apps/")
SUFFIXES = {".h", ".cpp", ".cu", ".md"}
# Made from the rows of a table, and what quotes the phrases that it warns of.
LEFT_OUT = {"docs/config.md", "CONTRIBUTING.md"}

RULES = [
    (re.compile(r"(?<!there )(?<!There )\b(is|are|was) no (?!longer|more\b|less\b|later|earlier|larger|smaller|other|one\b|use\b)"), 'say "is not a"'),
    (re.compile(r"\b(has|have) not(?=[.,;:)])"), 'say "does not have"'),
    (re.compile(r"\b(mends?|mended|cures?)\b"), 'say "fix"'),
    (re.compile(r"\bon paper\b"), 'say "on the meta device" or "fake"'),
    (re.compile(r"\b(one|bytes|rows|GiB|MiB|samples|files) an? (rank|step|pass|dim|group|line|file|host|machine|parameter|row|block)\b"), 'say "per"'),
]


def prose(file: Path, line: str) -> str:
    """What of a line is written for people: all of Markdown, the comments of code."""
    return line if file.suffix == ".md" else line.partition("//")[2]


def files() -> list[Path]:
    listed = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True, check=True).stdout.split("\n")
    return [
        ROOT / name
        for name in listed
        if Path(name).suffix in SUFFIXES and (name.startswith(FOLDERS) or name.endswith(".md")) and name not in LEFT_OUT
    ]


def main() -> int:
    found = 0
    for file in [Path(name) for name in sys.argv[1:]] or files():
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            for pattern, advice in RULES:
                if match := pattern.search(prose(file, line)):
                    found += 1
                    print(f"{file.resolve().relative_to(ROOT)}:{number}: '{match.group()}': {advice}: {line.strip()}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
