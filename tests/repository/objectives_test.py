#!/usr/bin/env python3
"""Tests scripts/compare/objectives.py, which trains and evaluates the runs of a table."""
import json
import pathlib
import sys
import tempfile
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts/compare"))
sys.dont_write_bytecode = True
import objectives  # noqa: E402


class CompleteRuns(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.args = types.SimpleNamespace(out=pathlib.Path(folder.name), set=["training.steps=3"], suite=None, jobs=1)
        self.cell = objectives.Cell("CLIP", ROOT / "configs/shapes/clip.yaml", folder="clip")
        evaluation = self.args.out / "clip/seed0/evaluation"
        evaluation.mkdir(parents=True)
        results = {"tasks": [{"task": "zero_shot", "metrics": {"top1": 0.5}}]}
        (evaluation / "results.json").write_text(json.dumps(results))

    def test_are_not_trained_again(self):
        for _ in range(2):
            metrics, minutes = objectives.train_and_evaluate(self.cell, 0, self.args)
            self.assertEqual((metrics, minutes), ({"zero_shot.top1": 0.5}, 0))

    def test_with_other_settings_are_refused(self):
        objectives.train_and_evaluate(self.cell, 0, self.args)
        self.args.set = ["training.steps=4"]
        with self.assertRaisesRegex(SystemExit, "seed0 has a run with other settings .* choose another --out"):
            objectives.train_and_evaluate(self.cell, 0, self.args)


if __name__ == "__main__":
    unittest.main()
