#!/usr/bin/env python3
"""Checks that docs/from_open_clip.md contains the table of `trainer --open-clip-flags`, and that the table lists each flag of
open_clip_train with its default.

The second check needs open_clip_torch, installed for the interpreter that TESSERA_OPEN_CLIP_PYTHON names or for the one that runs this
test. Otherwise its tests are skipped.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BIN = pathlib.Path(os.environ.get("TESSERA_BUILD", ROOT / "build")) / "bin"
VERSION = "3.3.0"  # the version that the table describes
ROW = re.compile(r"^\| `(--[a-z0-9-]+)` \| (?:`([^`]*)`)? \| (.*) \| (.*) \|$", re.M)
# A program that prints open_clip_train's version and, for each flag of its parser, the default and how many words follow the flag. It does
# not import the whole package.
PARSER = r"""
import argparse, importlib.metadata, importlib.util, json, pathlib, sys
place = pathlib.Path(importlib.util.find_spec("open_clip_train").origin).parent / "params.py"
spec = importlib.util.spec_from_file_location("params", place); params = importlib.util.module_from_spec(spec); spec.loader.exec_module(params)
def keep(self, args):
    kinds = {0: "none", None: "one", "+": "several", "*": "several"}
    json.dump({"version": importlib.metadata.version("open_clip_torch"),
               "flags": {a.option_strings[0]: [str(a.default), kinds[a.nargs]] for a in self._actions if a.dest != "help"}}, sys.stdout)
    sys.exit(0)
argparse.ArgumentParser.parse_args = keep
params.parse_args([])
"""


def table():
    return subprocess.run([BIN / "trainer", "--open-clip-flags"], capture_output=True, text=True, check=True).stdout


def parser_of_open_clip():
    python = os.environ.get("TESSERA_OPEN_CLIP_PYTHON", sys.executable)
    done = subprocess.run([python, "-c", PARSER], capture_output=True, text=True)
    if done.returncode != 0:
        raise unittest.SkipTest(f"{python} has no open_clip_train (TESSERA_OPEN_CLIP_PYTHON names an interpreter)")
    found = json.loads(done.stdout)
    if found["version"] != VERSION:
        raise unittest.SkipTest(f"open_clip_torch {found['version']}, and the table is of {VERSION}")
    return found["flags"]


@unittest.skipUnless((BIN / "trainer").exists(), "the programs are not built")
class FromOpenClip(unittest.TestCase):
    def test_the_page_contains_the_printed_table(self):
        self.assertIn(table(), (ROOT / "docs/from_open_clip.md").read_text(encoding="utf-8"),
                      "put the table that trainer --open-clip-flags prints into the page")

    def test_every_flag_has_a_counterpart_or_a_reason_for_none(self):
        rows = ROW.findall(table())
        self.assertEqual(len(rows), len(table().splitlines()) - 2)
        for flag, _, here, _ in rows:
            with self.subTest(flag=flag):
                self.assertTrue(here.strip())

    def test_settings_that_the_table_names_exist(self):
        page = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
        for name in sorted(set(re.findall(r"`((?:checkpoint|data|distributed|evaluation|log|model|optimizer|parameters|run|schedule|start|training)\.[a-z0-9_.]+)", table())) - {"run.html"}):
            parts = name.split(".")
            with self.subTest(setting=name):
                known = any(f"`{name}{end}" in page for end in "`.") or f"`{'.'.join(parts[:-1])}" in page and f"`{parts[-1]}`" in page or name.endswith(".from")
                self.assertTrue(known, "docs/configuration.md has no such key")

    def test_flags_and_defaults_match_open_clip_train(self):
        theirs = parser_of_open_clip()
        ours = {flag: (default or "").replace("\\t", "\t") for flag, default, _, _ in ROW.findall(table())}
        self.assertEqual(list(ours), list(theirs))
        self.assertEqual(ours, {flag: default for flag, (default, _) in theirs.items()})

    def test_each_flag_takes_as_many_words_as_in_open_clip_train(self):
        for flag, (_, words) in parser_of_open_clip().items():
            given = {"none": [], "one": ["const" if flag == "--lr-scheduler" else "1"], "several": ["a=1", "b=2"] if flag == "--aug-cfg" else ["1", "2", "3"]}[words]
            if flag == "--resume":  # Tessera's trainer has an option of the same name
                continue
            stray = [] if words == "several" else ["stray"]
            answer = subprocess.run([BIN / "trainer", flag, *given, *stray], capture_output=True, text=True)
            with self.subTest(flag=flag):
                self.assertEqual(answer.returncode, 2)
                self.assertIn(f"  {' '.join([flag, *given])}  ->  ", answer.stderr)


if __name__ == "__main__":
    unittest.main()
