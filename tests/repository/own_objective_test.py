#!/usr/bin/env python3
"""Checks that docs/own_objective.md shows the code of the example that the test `consumer` builds and runs."""
import pathlib
import re
import unittest

DOCS = pathlib.Path(__file__).resolve().parent.parent.parent / "docs"
EXAMPLE = DOCS / "examples/own_objective"
LINK = re.compile(r"\]\((examples/own_objective/[\w.]+)\)")


def shown():
    """Yields (file, code) for each code block except shell commands, with the file of the last link before the block."""
    page = (DOCS / "own_objective.md").read_text(encoding="utf-8")
    for block in re.finditer(r"^```(cpp|cmake|yaml)\n(.*?)^```$", page, re.M | re.S):
        yield LINK.findall(page[:block.start()])[-1], block[2]


class OwnObjective(unittest.TestCase):
    def test_code_blocks_are_in_the_files(self):
        for name, code in shown():
            with self.subTest(name):
                self.assertIn(code, (DOCS / name).read_text(encoding="utf-8"))

    def test_every_file_is_shown(self):
        self.assertEqual({DOCS / name for name, _ in shown()}, set(EXAMPLE.iterdir()))


if __name__ == "__main__":
    unittest.main()
