#!/usr/bin/env python3
"""Checks every #include of src, lab, models, data and apps against scripts/layers.toml, and the sizes and names of files.

usage: check_layers.py [--root FOLDER] [--rules FILE]
Prints FILE:LINE and the broken rule for each violation. Exit code 0: none, 1: some, 2: the rules themselves are wrong.
"""

import argparse
import fnmatch
import re
import sys
import tomllib
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

TREES = ("src", "lab", "models", "data", "apps")
SUFFIXES = {".h", ".hpp", ".cuh", ".cpp", ".cc", ".cu", ".inc"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')


def inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def matches(path: str, entry: str) -> bool:
    return inside(path, entry) or fnmatch.fnmatchcase(path, entry)


class Rules:
    def __init__(self, file: Path):
        table = tomllib.loads(file.read_text())
        self.layers: dict[str, list[str]] = {
            layer: [each for entry in allowed for each in self.meant_by(entry, layer, table["layers"])]
            for layer, allowed in table["layers"].items()
        }
        self.apart: list[str] = table.get("apart", {}).get("folders", [])
        self.external: list[dict] = table.get("external", [])
        self.limits: dict = table.get("limits", {"trees": []})
        graph = {layer: [d for d in allowed if d != "*"] for layer, allowed in self.layers.items()}
        for layer, allowed in graph.items():
            for other in allowed:
                if other not in self.layers:
                    raise ValueError(f'{file}: "{layer}" may include "{other}", which has no entry of its own')
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            raise ValueError(f"{file}: the layers form a cycle: {' -> '.join(error.args[1])}") from error

    @staticmethod
    def meant_by(entry: str, layer: str, layers: dict) -> list[str]:
        """Returns the layers of an entry: "FOLDER/*" is the folder, if a layer, and all layers inside it except `layer`."""
        if not entry.endswith("/*"):
            return [entry]
        folder = entry.removesuffix("/*")
        return [other for other in layers if inside(other, folder) and other != layer] or [folder]

    def layer_of(self, path: str) -> str | None:
        return max((layer for layer in self.layers if inside(path, layer)), key=len, default=None)

    def target_of(self, header: str) -> str:
        """Returns the repository path of an include; includes of the engine are rooted at src/."""
        return header if header.split("/")[0] in TREES[1:] else "src/" + header

    def check_own(self, path: str, header: str) -> str | None:
        target = self.target_of(header)
        if ".." in header.split("/"):
            return f'"{header}": includes are rooted at src/ or at the repository, never relative'
        to = self.layer_of(target)
        if to is None:
            return f'"{header}": its folder is not a layer; includes are rooted at src/ or at the repository'
        layer = self.layer_of(path)
        if layer is None:
            return f'"{header}": {path} belongs to no layer; give its folder an entry in layers.toml'
        allowed = self.layers[layer]
        if to != layer and to not in allowed and "*" not in allowed:
            return f'"{header}": {layer} may not include {to} (only {", ".join(allowed) or "nothing"})'
        for folder in self.apart:
            if inside(path, folder) and inside(target, folder):
                here, there = (Path(p).relative_to(folder).parts for p in (path, target))
                if len(there) > 1 and (len(here) == 1 or here[0] != there[0]):
                    return f'"{header}": folders inside {folder} do not include each other'
        return None

    def check_external(self, path: str, header: str) -> str | None:
        for rule in self.external:
            if not any(header.startswith(prefix) for prefix in rule["headers"]):
                continue
            only_in, not_in = rule.get("only_in"), rule.get("not_in", [])
            if only_in is not None and not any(matches(path, entry) for entry in only_in):
                return f"<{header}>: {rule['name']} only in {', '.join(only_in)}"
            if any(matches(path, entry) for entry in not_in):
                return f"<{header}>: {rule['name']} not in {', '.join(not_in)}"
        return None

    def check(self, path: str, quoted: str | None, angled: str | None) -> str | None:
        header = quoted or angled
        is_external = any(header.startswith(prefix) for rule in self.external for prefix in rule["headers"])
        # A header of ours in <> is still ours.
        is_own = quoted is not None or self.layer_of(self.target_of(header)) is not None
        return self.check_external(path, header) if is_external or not is_own else self.check_own(path, header)


def violations(root: Path, rules: Rules):
    for tree in TREES:
        for file in sorted((root / tree).rglob("*")):
            if file.suffix not in SUFFIXES or not file.is_file():
                continue
            path = file.relative_to(root).as_posix()
            # Files right in src/ (the precompiled header) belong to no layer and include no layer.
            if rules.layer_of(path) is None and path.count("/") > 1:
                yield f"{path}:1: its folder has no entry in layers.toml"
            for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
                found = INCLUDE.match(line)
                if found and found.group(1) != "pch.h":
                    if broken := rules.check(path, *found.groups()):
                        yield f"{path}:{number}: {broken}"


def against_limits(root: Path, rules: Rules):
    """Yields folders with too many files, files with too many lines, and duplicate header names, by [limits]."""
    limits, files = rules.limits, {}
    for tree in limits["trees"]:
        for file in sorted((root / tree).rglob("*")):
            path = file.relative_to(root).as_posix()
            if file.suffix not in SUFFIXES | {".py"} or any(inside(path, left) for left in limits["left_out"]):
                continue
            files.setdefault(file.parent, []).append(file)
            lines = len(file.read_text(errors="replace").splitlines())
            if lines > limits["lines_of_file"]:
                yield f"{path}:{lines}: more than {limits['lines_of_file']} lines; split it"
    for folder, inside_it in files.items():
        if len(inside_it) > limits["files_of_folder"]:
            path = folder.relative_to(root).as_posix()
            yield f"{path}:1: {len(inside_it)} files, more than {limits['files_of_folder']}; give it folders inside"
    headers = {}
    for file in sorted(file for inside_it in files.values() for file in inside_it if file.suffix == ".h"):
        first = headers.setdefault(file.name, file)
        if first != file and file.name not in limits.get("shared_names", []):
            path, other = (each.relative_to(root).as_posix() for each in (file, first))
            yield f"{path}:1: {other} has this name too; give each a name that says what it holds"


def main() -> int:
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=here.parent)
    parser.add_argument("--rules", type=Path, default=here / "layers.toml")
    arguments = parser.parse_args()
    try:
        rules = Rules(arguments.rules)
    except (ValueError, KeyError, OSError) as error:
        print(f"check_layers: {error}", file=sys.stderr)
        return 2
    found = [*violations(arguments.root, rules), *against_limits(arguments.root, rules)]
    for line in found:
        print(line)
    if found:
        print(f"{len(found)} breaks of the rules of scripts/layers.toml")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
