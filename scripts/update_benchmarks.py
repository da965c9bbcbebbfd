#!/usr/bin/env python3
"""Measures the tables and the picture of docs/benchmarks.md again and puts them into it. Wants an idle machine, for about half an hour.

  scripts/update_benchmarks.py                    all
  scripts/update_benchmarks.py --only kernels     one of the tables
  scripts/update_benchmarks.py --only loss --extra "--batch-sizes 16 32 --threads 1"     with more arguments, for a quick look
"""
import argparse
import pathlib
import re
import shlex
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/benchmarks.md"


def measure(page: str, name: str, extra: list[str]) -> str:
    """The page with the output of the command that stands above the markers of `name` between them."""
    pattern = re.compile(rf"```bash\n((?:(?!```).)*?)```\n\n<!-- {name} -->\n.*?<!-- end -->", re.DOTALL)
    found = pattern.search(page)
    if found is None:
        raise SystemExit(f"update_benchmarks: {PAGE}: no command followed by <!-- {name} --> ... <!-- end -->")
    command = shlex.split(found[1].replace("\\\n", " ")) + extra
    print(shlex.join(command), flush=True)
    table = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    return page[: found.start()] + f"```bash\n{found[1]}```\n\n<!-- {name} -->\n{table}<!-- end -->" + page[found.end() :]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["loss", "kernels", "slots", "token_projection", "readouts"])
    parser.add_argument("--extra", default="", help="more arguments for tessera-bench")
    arguments = parser.parse_args()
    for name in ["loss", "kernels", "slots", "token_projection", "readouts"]:
        if arguments.only in (None, name):
            extra = shlex.split(arguments.extra)
            PAGE.write_text(measure(PAGE.read_text(), name, extra))


if __name__ == "__main__":
    main()
