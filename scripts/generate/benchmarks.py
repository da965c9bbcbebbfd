#!/usr/bin/env python3
"""Measures the generated tables and the plot of docs/benchmarks.md again, and writes them into the page. Needs half an hour on an idle
machine.

  scripts/generate/benchmarks.py                    all
  scripts/generate/benchmarks.py --only kernels     only one table
  scripts/generate/benchmarks.py --only loss --extra "--batch-sizes 16 32 --threads 1"     with additional arguments, for a quick look
"""
import argparse
import pathlib
import re
import shlex
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/benchmarks.md"


def measure(page: str, name: str, extra: list[str]) -> str:
    """Runs the command above the markers of `name` in the page. Returns the page with the command's output between the markers."""
    pattern = re.compile(rf"```bash\n((?:(?!```).)*?)```\n\n<!-- {name} -->\n.*?<!-- end -->", re.DOTALL)
    found = pattern.search(page)
    if found is None:
        raise SystemExit(f"generate/benchmarks.py: {PAGE}: no command followed by <!-- {name} --> ... <!-- end -->")
    command = shlex.split(found[1].replace("\\\n", " ")) + extra
    print(shlex.join(command), flush=True)
    table = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    return page[: found.start()] + f"```bash\n{found[1]}```\n\n<!-- {name} -->\n{table}<!-- end -->" + page[found.end() :]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["loss", "kernels", "slots", "token_projection", "linear_cross_entropy", "readouts"])
    parser.add_argument("--extra", default="", help="additional arguments for tessera-bench")
    arguments = parser.parse_args()
    for name in ["loss", "kernels", "slots", "token_projection", "linear_cross_entropy", "readouts"]:
        if arguments.only in (None, name):
            extra = shlex.split(arguments.extra)
            PAGE.write_text(measure(PAGE.read_text(), name, extra))


if __name__ == "__main__":
    main()
