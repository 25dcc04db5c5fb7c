#!/usr/bin/env python3
"""Finds turns of phrase that CONTRIBUTING.md (Style) asks to avoid: in comments, string literals and Markdown.

usage: check_words.py [FILE ...]   without files: code of all folders, scripts, and all Markdown
Prints FILE:LINE, the words, and what to say instead. Exit code 0: none found, 1: some.
"""

import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src/", "lab/", "models/", "data/", "apps/", "tests/", "scripts/", "deploy/", "benchmarks/", "examples/")
CXX = {".h", ".cpp", ".cu"}
HASH = {".sh", ".cmake", ".txt"}  # "#" comments; of .txt only CMakeLists.txt
# Made from the rows of a table, quotes the phrases that it warns of, or holds data.
LEFT_OUT = {"docs/config.md", "CONTRIBUTING.md", "scripts/check_words.py", "data/text/unicode_table.cpp"}
LEFT_OUT_FOLDERS = ("tests/bad_configs/", "tests/golden/", "tests/fuzz/corpus/")

IS_NO = (
    re.compile(r"(?<!there )(?<!There )\b(is|are|was) no (?!longer|more\b|less\b|later|earlier|larger|smaller|other|one\b|use\b)"),
    'say "is not a"',
)
PHRASES = [
    IS_NO,
    (re.compile(r"\b(has|have) not(?=[.,;:)])"), 'say "does not have"'),
    (re.compile(r"\b(mends?|mended|cures?)\b"), 'say "fix"'),
    (re.compile(r"\bon paper\b"), 'say "on the meta device" or "fake"'),
    (re.compile(r"\b(one|bytes|rows|GiB|MiB|samples|files) an? (rank|step|pass|dim|group|line|file|host|machine|parameter|row|block)\b"), 'say "per"'),
]
FIRST_WORD = (
    re.compile(r"(Of|Those|That|Who|Whose|Whom|Which|What|Whether|Whatever)\b"),
    'begin with a subject and a verb, or "Returns", "Holds", "True if"',
)
WIDTH = 120
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


def split_cxx(line: str) -> tuple[str, str]:
    """Code and comment of a line; "//" inside a string literal begins no comment."""
    at = 0
    while at < len(line):
        if line.startswith("//", at):
            return line[:at], line[at + 2 :]
        literal = STRING.match(line, at)
        at = literal.end() if literal else at + 1
    return line, ""


def from_lines(lines: list[str], comment_of, strings: bool):
    """Yields (line, prose, begins): what people read, and whether a comment begins there."""
    in_block = False
    for number, line in enumerate(lines, 1):
        code, comment = comment_of(line)
        if comment:
            yield number, comment.strip(), not in_block or bool(code.strip())
        in_block = bool(comment) and not code.strip()
        if strings and not code.lstrip().startswith("#"):
            for literal in STRING.finditer(code):
                yield number, literal.group(1), False


def from_python(text: str):
    last = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# "), token.start[0] != last + 1
            last = token.start[0]
        elif token.type == tokenize.STRING:
            is_doc = token.line.lstrip().startswith('"""')
            for offset, line in enumerate(token.string.strip("rf\"'").splitlines()):
                yield token.start[0] + offset, line.strip(), is_doc and offset == 0


def prose(file: Path):
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        return from_python(text)
    lines = text.splitlines()
    if file.suffix == ".md":
        return ((number, line, False) for number, line in enumerate(lines, 1))
    if file.suffix in CXX:
        return from_lines(lines, split_cxx, strings=True)
    return from_lines(lines, lambda line: ("", line.lstrip("# ") if line.lstrip().startswith("#") else ""), strings=False)


def faults(file: Path):
    for number, text, begins in prose(file):
        for pattern, advice in PHRASES:
            if match := pattern.search(text):
                yield number, match.group(), advice
        if begins and (match := FIRST_WORD[0].match(text)):
            yield number, match.group(), FIRST_WORD[1]
    if file.suffix in CXX:
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if len(line) > WIDTH and line.lstrip().startswith("//"):
                yield number, f"{len(line)} columns", f"wrap comments at {WIDTH}"


def is_checked(name: str) -> bool:
    if name in LEFT_OUT or name.startswith(LEFT_OUT_FOLDERS):
        return False
    suffix = Path(name).suffix
    if suffix == ".md":
        return True
    is_code = suffix in CXX | HASH | {".py"} and (suffix != ".txt" or name.endswith("CMakeLists.txt"))
    return is_code and (name.startswith(FOLDERS) or suffix == ".cmake")


def files() -> list[Path]:
    listed = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True, check=True).stdout.split("\n")
    return [ROOT / name for name in listed if is_checked(name) and (ROOT / name).is_file()]


def main() -> int:
    found = 0
    for file in [Path(name) for name in sys.argv[1:]] or files():
        for number, words, advice in faults(file):
            found += 1
            print(f"{file.resolve().relative_to(ROOT)}:{number}: '{words}': {advice}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
