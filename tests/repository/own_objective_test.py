#!/usr/bin/env python3
"""Checks that the code in docs/own_objective.md equals the example's code, which the test `consumer` builds and runs, and that the classes in
docs/python.md equal those of docs/examples/python, which the test `PythonTraining` runs."""
import pathlib
import re
import unittest

DOCS = pathlib.Path(__file__).resolve().parent.parent.parent / "docs"
EXAMPLE = DOCS / "examples/own_objective"
LINK = re.compile(r"\]\((examples/own_objective/[\w.]+)\)")


def shown():
    """Yields (file, code) for each code block that is not shell commands. The file is the one that the last link before the block names."""
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

    def test_classes_in_python_are_in_the_file(self):
        page = (DOCS / "python.md").read_text(encoding="utf-8")
        classes = re.findall(r"^```python\n(class .*?)^```$", page, re.M | re.S)
        self.assertEqual(len(classes), 2)
        for code in classes:
            self.assertIn(code, (DOCS / "examples/python/own_objective.py").read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main()
