#!/usr/bin/env python3
"""The lines that docs/troubleshooting.md quotes are those of the programs: each part between `...` is in a text of the sources."""
import ast
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
# Texts that stand side by side are one: "a " "b".
TEXTS = re.compile(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*')
ONE = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
SHORTEST = 4  # letters of a part that is looked for


def texts(source):
    """Each text of C++ or Python source, adjacent ones joined."""
    for found in TEXTS.findall(source):
        yield re.sub(r"\\(.)", lambda escape: {"n": "\n", "t": "\t"}.get(escape[1], escape[1]), "".join(ONE.findall(found)))


def python_texts(source):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def quoted():
    return [line for block in re.findall(r"^```text\n(.*?)^```$", PAGE, re.M | re.S) for line in block.splitlines()]


def parts(line):
    """What of a line is fixed, without the punctuation that another text may bring."""
    trimmed = [part.strip(" :;,.()%") for part in line.split("...")]
    return [part for part in trimmed if len(part) >= SHORTEST]


class Troubleshooting(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        files = [file for folder in ("src", "tools", "include") for file in (ROOT / folder).rglob("*") if file.suffix in (".h", ".cpp")]
        found = [text for file in files for text in texts(file.read_text(encoding="utf-8"))]
        found += python_texts((ROOT / "python/tessera/_library.py").read_text(encoding="utf-8"))
        cls.all = "\0".join(found)

    def test_texts_side_by_side_are_one(self):
        self.assertEqual(list(texts('fail("a " // no\n  , x, "b \\"c\\" "\n  "d");')), ["a ", 'b "c" d'])

    def test_each_quoted_line_is_one_of_the_programs(self):
        self.assertGreater(len(quoted()), 25)
        for line in quoted():
            with self.subTest(line):
                self.assertTrue(parts(line), "nothing of it can be looked for")
                for part in parts(line):
                    if part not in self.all:  # assertIn would print all of them
                        self.fail(f"no text has: {part}")


if __name__ == "__main__":
    unittest.main()
