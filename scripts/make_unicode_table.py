#!/usr/bin/env python3
"""Writes data/text/unicode_table.cpp: the general category of every code point as the `tokenizers` package's regexes see it.

    .venv/bin/python scripts/make_unicode_table.py > data/text/unicode_table.cpp

The package includes a regex library with its own Unicode version, and PCRE2 has another. Where they differ, the package
is right by definition: models were trained on its ids. Run this again when the pinned version in requirements.txt
changes; the test tokenizer_ids_unicode fails when the table is out of date.
"""

import sys

import tokenizers
from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn Cs".split()
# Planes 4 to 13 are unassigned and 15 and 16 private: only their ends are queried, which keeps this at a minute.
POINTS = [
    point
    for first, last in ((0, 0xD7FF), (0xE000, 0x3FFFF), (0xDFFF0, 0xE0FFF), (0xEFFF0, 0xF000F), (0xFFFF0, 0x10000F), (0x10FFF0, 0x10FFFF))
    for point in range(first, last + 1)
]
TEXT = "".join(map(chr, POINTS))


def category_of_points() -> dict[int, str]:
    found = {point: "Cs" for point in (0xD800, 0xDFFF)}
    for category in CATEGORIES[:-1]:
        split = Split(Regex(rf"\p{{{category}}}+"), "removed", invert=True)
        for _, (begin, end) in split.pre_tokenize_str(TEXT):
            for point in POINTS[begin:end]:
                assert point not in found, f"U+{point:04X} is {found[point]} and {category}"
                found[point] = category
    return found


def main() -> None:
    found = category_of_points()
    missing = [point for point in POINTS if point not in found]
    assert not missing, f"no category: U+{missing[0]:04X}"
    runs, last = [], None
    for point in sorted(found):
        if found[point] != last:
            last = found[point]
            runs.append(f"0x{point << 5 | CATEGORIES.index(last):x}")
    print(f"// Made by scripts/make_unicode_table.py from tokenizers {tokenizers.__version__}. Do not edit.")
    print('#include "data/text/unicode_category.h"\n')
    print("namespace titan::data {\n")
    print("// (first code point << 5 | index in kCategoryNames) of each run of one category.")
    print("// clang-format off")
    print("const std::uint32_t kCategoryRuns[] = {")
    line = "   "
    for run in runs:
        if len(line) + len(run) + 2 > 120:
            print(line)
            line = "   "
        line += f" {run},"
    print(line)
    print("};\n// clang-format on")
    print(f"const std::size_t kNumCategoryRuns = {len(runs)};\n")
    print("}  // namespace titan::data")


if __name__ == "__main__":
    sys.exit(main())
