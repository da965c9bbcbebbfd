#!/usr/bin/env python3
"""Checks every #include of a project header against the order of folders in docs/architecture.md, and the public headers against the page's list.

  scripts/check/includes.py [--root .] [--page docs/architecture.md]

A folder may include only from folders to its left in the page's order. The script reads the order from the page: lines of a code block that
begin with src (for the folders of src/, with kernels/ and tools/) or src/FOLDER (for its parts). A file directly in the folder counts as a
separate part; parts that the page does not name come last. Lines of a code block that begin with include/tessera list the public headers.
There are at most 80, and they include only one another. The column "at most, lines" of the page's table limits the lines of the C++ files in
each folder of src/ and include/tessera/. Prints the number of parts and dependencies (pairs of parts in which one includes the other), of
public headers, and of lines. Exit code: 0 if there is no fault; 1 if there is one, after listing the faults.
"""
import argparse
import collections
import dataclasses
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]((?:tessera|src|kernels|tools)/[^">]+)[">]')
PUBLIC = "include/tessera/"
MOST_PUBLIC = 80
ENDINGS = (".h", ".cpp", ".cu", ".cuh", ".inc")


@dataclasses.dataclass(frozen=True)
class Include:
    file: str    # the including file, relative to the root, such as src/data/registry.cpp
    line: int
    header: str  # the header as written, such as tessera/data/source.h

    def __str__(self):
        return f"{self.file}:{self.line}: {self.header}"


def read_includes(root):
    for top in ("include", "src", "kernels", "tools", "tests"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in ENDINGS:
                continue
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if match := INCLUDE.match(line):
                    yield Include(str(path.relative_to(root)), number, match[1])


def read_orders(page):
    """Returns {"src": [names from left to right], "src/data": ...} from the page's code blocks."""
    orders = {}
    for block in re.findall(r"^```\w*\n(.*?)^```", page, re.M | re.S):
        for scope, names in re.findall(r"^(src\S*)((?: .*\n(?:[ ]+.*\n)*))", block, re.M):
            orders[scope] = re.findall(r"\w+", names)
    return orders


def place(path):
    """Returns the place of a file or header below src as (folder..., stem). kernels/ and tools/ count as folders of src."""
    for prefix in (PUBLIC, "tessera/", "src/"):
        path = path.removeprefix(prefix)
    return pathlib.PurePosixPath(path).with_suffix("").parts


def room(scope, path):
    """Returns the name of the part of `scope` (src or src/FOLDER) that a file or header belongs to, or None if it is elsewhere."""
    parents, parts = () if scope == "src" else place(scope), place(path)
    inside = parts[: len(parents)] == parents and len(parts) > len(parents)
    return parts[len(parents)] if inside else None


def read_public(page):
    """Returns the public headers that the page's code blocks list, such as {"include/tessera/data/source.h"}."""
    public = set()
    for block in re.findall(r"^```\w*\n(.*?)^```", page, re.M | re.S):
        for folder, names in re.findall(r"^(include/tessera\S*)((?: .*\n(?:[ ]+.*\n)*))", block, re.M):
            public |= {f"{folder}/{name}.h" for name in re.findall(r"\w+", names)}
    return public


def check_public(page, files, includes):
    """Returns the line to print and the faults of the public headers."""
    listed, found = read_public(page), {file for file in files if file.startswith(PUBLIC)}
    faults = [f"{file}: a public header that the page does not list" for file in sorted(found - listed)]
    faults += [f"{file} does not exist, but the page lists it" for file in sorted(listed - found)]
    faults += [f"{include}: a public header includes only public headers" for include in includes
               if include.file.startswith(PUBLIC) and not include.header.startswith("tessera/")]
    if len(found) > MOST_PUBLIC:
        faults.append(f"there are {len(found)} public headers, more than {MOST_PUBLIC}")
    return f"include/tessera: {len(found)} public headers", faults


def read_limits(page):
    """Returns {"base": 1330, ...}: the most lines that each folder may have, from the column after the folder in the page's table."""
    return {name.removesuffix(".h"): int(lines.replace(",", ""))
            for names, lines in re.findall(r"^\| (`[^|]+) \| ([\d,]+) \|", page, re.M) for name in re.findall(r"`([\w.]+)`", names)}


def check_lines(root, page, files):
    """Returns the line to print and the faults of the folders' sizes."""
    lines = collections.Counter()
    for file in files:
        if file.startswith(("src/", PUBLIC)):
            lines[place(file)[0]] += (root / file).read_text(encoding="utf-8").count("\n")
    limits = read_limits(page)
    faults = [f"the page's table has no limit for the lines of {name}" for name in sorted(set(read_orders(page)["src"]) & set(lines) - set(limits))]
    faults += [f"{name} has {lines[name]:,} lines, more than the {most:,} of the page's table: remove what the new code replaces, or raise the limit "
               "and say why" for name, most in limits.items() if lines[name] > most]
    return f"src and include/tessera: {sum(lines.values()):,} lines", faults


def check(root, page):
    """Returns the lines to print and the faults."""
    orders = read_orders(page)
    if "src" not in orders:
        return [], ["the page states no order: expected a code block with a line that begins with src"]
    includes = list(read_includes(root))
    files = [str(path.relative_to(root)) for top in ("include/tessera", "src", "kernels", "tools")
             for path in (root / top).rglob("*.*") if path.suffix in ENDINGS]
    summary, faults = [], []
    for scope, order in orders.items():
        rank = {name: index for index, name in enumerate(order)}
        rooms = {room(scope, file) for file in files} - {None}
        arrows = collections.defaultdict(list)
        for include in includes:
            here, there = room(scope, include.file), room(scope, include.header)
            if here and there and here != there and not include.file.startswith("tests/"):
                arrows[here, there].append(include)
        summary.append(f"{scope}: {len(rooms)} parts, {len(arrows)} dependencies")
        faults += [f"{scope} has no {name}, which the page names" for name in order if name not in rooms]
        faults += [f"{include}: {here} comes before {there} in {scope}" for (here, there), those in sorted(arrows.items())
                   if here in rank and rank.get(there, len(rank)) > rank[here] for include in those]
    folders = {place(file)[0] for file in files if len(place(file)) > 1}
    faults += [f"{name} is missing from the page's order of src" for name in sorted(folders - set(orders["src"]))]
    for line, more in (check_public(page, files, includes), check_lines(root, page, files)):
        summary.append(line)
        faults += more
    return summary, faults


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--page", type=pathlib.Path, help="default: docs/architecture.md of the root")
    arguments = parser.parse_args()
    page = arguments.page or arguments.root / "docs/architecture.md"
    summary, faults = check(arguments.root, page.read_text(encoding="utf-8"))
    print("\n".join(summary))
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
