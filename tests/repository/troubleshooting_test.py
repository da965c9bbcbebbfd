#!/usr/bin/env python3
"""Checks that the messages quoted in docs/troubleshooting.md exist: the sources must have a string literal with each part between `...`."""
import ast
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
# Matches adjacent string literals, which form one text, such as "a " "b".
TEXTS = re.compile(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*')
ONE = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
SHORTEST = 4  # the test ignores parts of a message with fewer characters


def texts(source):
    """Yields each string literal of C++ source code. Joins adjacent literals."""
    for found in TEXTS.findall(source):
        yield re.sub(r"\\(.)", lambda escape: {"n": "\n", "t": "\t"}.get(escape[1], escape[1]), "".join(ONE.findall(found)))


def python_texts(source):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def quoted():
    return [line for block in re.findall(r"^```text\n(.*?)^```$", PAGE, re.M | re.S) for line in block.splitlines()]


def parts(line):
    """Returns the parts of a line between `...`, without punctuation at their ends, which may come from another literal."""
    trimmed = [part.strip(" :;,.()%") for part in line.split("...")]
    return [part for part in trimmed if len(part) >= SHORTEST]


class Troubleshooting(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        files = [file for folder in ("src", "tools", "include") for file in (ROOT / folder).rglob("*") if file.suffix in (".h", ".cpp")]
        found = [text for file in files for text in texts(file.read_text(encoding="utf-8"))]
        found += python_texts((ROOT / "python/tessera/_library.py").read_text(encoding="utf-8"))
        cls.all = "\0".join(found)

    def test_adjacent_texts_are_joined(self):
        self.assertEqual(list(texts('fail("a " // no\n  , x, "b \\"c\\" "\n  "d");')), ["a ", 'b "c" d'])

    def test_each_quoted_line_is_in_the_sources(self):
        self.assertGreater(len(quoted()), 25)
        for line in quoted():
            with self.subTest(line):
                self.assertTrue(parts(line), "no part is long enough to search for")
                for part in parts(line):
                    if part not in self.all:  # assertIn would print all literals
                        self.fail(f"no text has: {part}")


if __name__ == "__main__":
    unittest.main()
