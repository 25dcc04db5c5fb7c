"""Imports the files of cases, which are in folders by subject and import what they share from each other. Importing a
file registers its cases and the rows that they ask of the oracle."""
import importlib
import pathlib
import re
import sys

FILES = sorted(pathlib.Path(__file__).resolve().parent.glob("*/cases_*.py"))
sys.path += sorted({str(file.parent) for file in FILES})


def import_all():
    for file in FILES:
        importlib.import_module(file.stem)


def defines(file, name):
    """True if the file has a function that case `name` may be of: the values of its parameters follow the function's name."""
    functions = re.findall(r"^def (\w+)\(context", file.read_text(encoding="utf-8"), re.MULTILINE)
    return any(name == function or name.startswith(f"{function}_") for function in functions)


def import_for(patterns):
    """Imports the files of the named cases alone, since all of them take longer than a short case; all if a pattern has
    a wildcard, no file has the name, or no case is named."""
    found = [[file for file in FILES if defines(file, name)] for name in patterns if name.isidentifier()]
    if not patterns or len(found) < len(patterns) or not all(found):
        import_all()
    for files in found:
        for file in files:
            importlib.import_module(file.stem)
