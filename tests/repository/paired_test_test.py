#!/usr/bin/env python3
"""Tests scripts/compare/paired_test.py, which computes differences of metrics and their intervals."""
import json
import pathlib
import random
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts/compare"))
sys.dont_write_bytecode = True
import paired_test  # noqa: E402


class Differences(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def run_with(self, name, metrics, mark="a", samples=1000):
        folder = pathlib.Path(self.folder.name) / name
        folder.mkdir()
        task = {"task": "zero_shot", "data": "shapes", "mark": mark, "samples": samples, "metrics": metrics}
        (folder / "samples.json").write_text(json.dumps({"tasks": [task, task]}))
        return folder

    def test_of_two_shares_have_the_interval_of_independent_flips(self):
        draw = random.Random(3)
        one, other = (self.run_with(name, {"top1": {"parts": [int(draw.random() < share) for _ in range(1000)]}})
                      for name, share in (("one", 0.6), ("other", 0.5)))
        value, low, high = paired_test.difference([(1, [one], "zero_shot.top1"), (-1, [other], "zero_shot.top1")])
        half = 1.96 * ((0.6 * 0.4 + 0.5 * 0.5) / 1000) ** 0.5
        self.assertAlmostEqual(low, value - half, delta=0.01)
        self.assertAlmostEqual(high, value + half, delta=0.01)
        self.assertIn("**", paired_test.cell([(1, [one], "zero_shot.top1"), (-1, [other], "zero_shot.top1")]))

    def test_of_a_run_and_itself_are_none(self):
        run = self.run_with("run", {"top1": {"parts": [0, 1] * 500}})
        for metric in ("zero_shot.top1", "zero_shot_2.top1"):
            self.assertEqual(paired_test.difference([(1, [run], metric), (-1, [run], "zero_shot.top1")]), (0, 0, 0))

    def test_compare_the_means_of_seeds(self):
        runs = [self.run_with(f"seed{seed}", {"top1": {"parts": [seed] * 4}}, samples=4) for seed in (0, 1)]
        self.assertEqual(paired_test.difference([(1, runs, "zero_shot.top1")]), (0.5, 0.5, 0.5))

    def test_of_groups_are_those_of_the_mean_over_groups_of_ratios_of_sums(self):
        outcomes = {"parts": [3, 1, 2], "wholes": [4, 4, 8], "sample": [0, 1, 1], "group": [0, 0, 1]}
        run = self.run_with("run", {"dataset_miou": outcomes}, samples=2)
        self.assertEqual(paired_test.difference([(1, [run], "zero_shot.dataset_miou")])[0], (0.5 + 0.25) / 2)

    def test_of_other_samples_are_refused(self):
        runs = [self.run_with(mark, {"top1": {"parts": [1] * 4}}, mark=mark, samples=4) for mark in "ab"]
        with self.assertRaisesRegex(SystemExit, "measured on different samples"):
            paired_test.difference([(1, runs[:1], "zero_shot.top1"), (-1, runs[1:], "zero_shot.top1")])


if __name__ == "__main__":
    unittest.main()
