#!/usr/bin/env python3
"""Prints the end of the output of each test that failed, from the file that `ctest --output-junit FILE` writes.

  scripts/check/failed_tests.py FILE [--lines 40]
"""
import argparse
import pathlib
import sys
import xml.etree.ElementTree


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--lines", type=int, default=40, help="lines per test (default: %(default)s)")
    arguments = parser.parse_args()
    if not arguments.file.is_file():
        sys.exit(f"{arguments.file}: does not exist")
    for case in xml.etree.ElementTree.parse(arguments.file).iter("testcase"):
        if case.get("status") != "fail":
            continue
        lines = (case.findtext("system-out") or "").strip().splitlines()
        print(f"\n== {case.get('name')}: {(case.find('failure').get('message') or 'failed').strip()}")
        print("\n".join(lines[-arguments.lines:]))


if __name__ == "__main__":
    main()
