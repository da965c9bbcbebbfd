#!/usr/bin/env python3
"""Checks that the repository files named in pages, messages and comments exist."""
import itertools
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDERS = "cmake|configs|docs|include|kernels|python|scripts|src|tests|tools"
# Matches a path relative to the repository's root, or relative to configs/ as in the YAML files there. A `#anchor` or `:line` after the
# path is not part of the match.
PATH = re.compile(rf"(?<![\w/.$-])((?:{FOLDERS}|parts|suites|templates|vocabularies)/[\w./{{}},*-]*[\w}}*])")
# Matches placeholders in paths, such as x.h, a.yaml, FOLDER and {owner}.
PLACEHOLDER = re.compile(r"(?:^|/)(?:a|x(?:_test)?|[A-Z]\w*)(?:\.\w+)?(?:/|$)|\b[A-Z]{2,}\b|\.\.\.|\{\w*\}")


def alternatives(path):
    """Expands braces: a/{b,c}.yaml -> a/b.yaml, a/c.yaml."""
    parts = [part[1:-1].split(",") if part.startswith("{") else [part] for part in re.split(r"(\{[^{}]*\})", path)]
    return ["".join(choice) for choice in itertools.product(*parts)]


def named_paths(text):
    for found in PATH.findall(text):
        closed = found if found.count("{") == found.count("}") else found.rstrip("}")
        if not PLACEHOLDER.search(closed):
            yield from alternatives(closed)


def exists(path, file):
    folders = (ROOT, ROOT / "configs", file.parent)
    return any(next(folder.glob(path + ending), None) for folder in folders for ending in ("", ".yaml"))


def without_code(text):
    return re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)


def anchors(page):
    """Returns the anchors that links use for the headings of a page."""
    return {re.sub(r"[^\w -]", "", title.strip().lower()).replace(" ", "-")
            for title in re.findall(r"^#+ (.*)$", without_code(page.read_text(encoding="utf-8")), re.M)}


class Paths(unittest.TestCase):
    def test_links_of_pages_lead_to_files_and_headings(self):
        for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
            for path, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([\w-]+))?\)", without_code(page.read_text(encoding="utf-8"))):
                there = page.parent / path if path else page
                with self.subTest(page=page.relative_to(ROOT), link=f"{path}#{anchor}"):
                    self.assertTrue(there.exists(), "no such file")
                    if anchor:
                        self.assertIn(anchor, anchors(there))

    def test_are_found(self):
        self.assertEqual(list(named_paths("see (configs/{a_b,c}/*.yaml), src/data/x.h and tests/{owner}, {merges: configs/v.gz}")),
                         ["configs/a_b/*.yaml", "configs/c/*.yaml", "configs/v.gz"])

    def test_of_the_repository_exist(self):
        files = [*ROOT.glob("*.md")] + [file for folder in FOLDERS.split("|") if folder != "tests" for file in (ROOT / folder).rglob("*")]
        texts = [file for file in files if file.suffix in (".md", ".yaml", ".cmake", ".sh", ".py", ".h", ".cpp", ".cu")]
        self.assertGreater(len(texts), 300)
        for file in texts:
            name = file.relative_to(ROOT)
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                for path in named_paths(line):
                    self.assertTrue(exists(path, file), f"{name}:{number}: {path} does not exist")

    def test_sources_of_the_fuzz_build_exist(self):
        """No other build reads this list, so a renamed file would be noticed only when somebody fuzzes."""
        text = (ROOT / "tests/fuzz/libfuzzer.cmake").read_text(encoding="utf-8")
        lists = re.findall(r"foreach\(name (.*?)\)\n\s*list\(APPEND parsers \$\{PROJECT_SOURCE_DIR\}/(src/\w+)/", text, re.S)
        self.assertEqual([folder for _, folder in lists], ["src/data", "src/io"])
        self.assertEqual([f"{folder}/{name}.cpp" for names, folder in lists for name in names.split() if not (ROOT / folder / f"{name}.cpp").exists()], [])


if __name__ == "__main__":
    unittest.main()
