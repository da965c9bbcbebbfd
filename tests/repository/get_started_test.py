#!/usr/bin/env python3
"""Runs the commands of docs/get_started.md in order, with its YAML files, on a few generated images. Only sizes are reduced.

Uses the programs of the build in TESSERA_BUILD. Exits with code 77, which ctest reports as skipped, if there are none.
"""
import os
import pathlib
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ["TESSERA_BUILD"])
PAGE = (ROOT / "docs/get_started.md").read_text(encoding="utf-8")
COLORS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (40, 60, 230), "white": (250, 250, 250)}
SMALL = {"data.loader.batch_size": 4, "data.loader.threads": 1, "model.preprocessing.image_size": 32, "model.image.encoder.width": 16,
         "model.image.encoder.layers": 1, "model.image.encoder.heads": 2, "model.text.encoder.width": 16, "model.text.encoder.layers": 1,
         "model.text.encoder.heads": 2, "training.steps": 2, "evaluation.every_steps": 0, "log.every_steps": 1, "log.peak_tflops": 0.1,
         "training.device": "cpu"}


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)


def commands():
    """Yields each command of the page, in order, as a list of words."""
    for block in blocks("bash"):
        for line in block.replace("\\\n", " ").splitlines():
            yield shlex.split(line, comments=True)


def write_png(path, color, shade):
    """Writes a 40 x 40 image in one color, darkened by `shade`."""
    row = b"\0" + bytes(max(0, c - shade) for c in color) * 40
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))  # noqa: E731
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 40, 40, 8, 2, 0, 0, 0)) +
                     chunk(b"IDAT", zlib.compress(row * 40)) + chunk(b"IEND", b""))


def write_data(folder):
    for table, count in (("train", 24), ("validation", 8)):
        lines = ["image,caption"]
        for i in range(count):
            name = list(COLORS)[i % len(COLORS)]
            write_png(folder / f"images/{table}{i}.jpg", COLORS[name], i)
            lines.append(f'images/{table}{i}.jpg,"a {name} picture, number {i} of {count} in the {table} table"')
        (folder / f"{table}.csv").write_text("\n".join(lines) + "\n")
    for name, color in COLORS.items():
        write_png(folder / f"classes/{name}/1.png", color, 3)


class GetStarted(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.work = pathlib.Path(folder.name)
        (cls.work / "build").symlink_to(BUILD)
        (cls.work / "configs").symlink_to(ROOT / "configs")
        write_data(cls.work / "data")
        for name, text in zip(re.findall(r"`(\w+\.yaml)`:$", PAGE, re.M), blocks("yaml"), strict=True):
            (cls.work / name).write_text(text)

    def run_here(self, words):
        ran = subprocess.run(words, cwd=self.work, capture_output=True, text=True)
        self.assertEqual(ran.returncode, 0, f"{shlex.join(words)}\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
        return ran.stdout + ran.stderr

    def test_1_the_commands_run_in_order(self):
        smaller = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]
        programs = []
        for words in commands():
            programs.append(pathlib.Path(words[0]).name)
            if programs[-1] == "trainer":
                words += smaller
            self.run_here([{"8000": "36"}.get(word, word) for word in words])
        self.assertEqual(set(programs), {"tessera-data", "trainer", "evaluate", "tessera-report"})
        for file in ("sheet.png", "data/shards/train.json", "runs/clip/run.html", "runs/sparc/run.html", "results/clip/report.html",
                     "results/zero_shot/results.json", "comparison.html"):
            self.assertTrue((self.work / file).is_file(), file)

    def test_2_the_configurations_are_valid_unchanged(self):
        for name in ("clip", "sparc"):  # an earlier test has created the vocabulary
            printed = self.run_here(["build/bin/trainer", "--config", f"{name}.yaml", "--print-config"])
            self.assertIn(f"name: {name}", printed)

    def test_tables_name_keys_of_the_files(self):
        """Checks that each key in the first column of a table is in one of the two YAML files."""
        text = "\n".join(blocks("yaml"))
        tables = PAGE[PAGE.index("The two files differ in these keys"):PAGE.index("On a GPU, add")]
        for cell in re.findall(r"^\| (`.*?) \|", tables, re.M):
            for key in re.findall(r"`([\w.]+)`", cell):
                self.assertRegex(text, rf"\b{key.split('.')[-1]}:", key)


if __name__ == "__main__":
    if not (BUILD / "bin/trainer").exists():
        print(f"skipped: {BUILD} has no programs")
        sys.exit(77)
    unittest.main()
