#!/usr/bin/env python3
"""Checks that scripts/compare/kernels_gpu.py counts the FLOPs and bytes of each pass as `tessera-bench kernels` does. Skipped if that program
is not built."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BENCH = pathlib.Path(os.environ.get("TESSERA_BUILD", ROOT / "build")) / "bin/tessera-bench"
sys.path.insert(0, str(ROOT / "scripts/compare"))
import kernels_gpu  # noqa: E402

# operator -> (option of tessera-bench, the order of sizes in its shapes)
SHAPES = {"sparsify_group": ("--sparsify-group", ("batch", "tokens", "patches", "width")),
          "flops_regularizer": ("--flops-regularizer", ("rows", "vocabulary")),
          "linear_cross_entropy": ("--linear-cross-entropy", ("tokens", "vocabulary", "width")),
          "linear_soft_cross_entropy": ("--linear-soft-cross-entropy", ("tokens", "vocabulary", "width", "words")),
          "token_max_projection": ("--token-max-projection", ("batch", "positions", "vocabulary", "width")),
          "max_similarity": ("--max-similarity", ("batch", "tokens", "patches", "width"))}
VARIANTS = {"flops_regularizer_written": "backward, all rows written", "flops_regularizer_added": "backward, added to another"}
SIZES = {"batch": 3, "tokens": 5, "patches": 7, "positions": 6, "width": 16, "vocabulary": 40, "rows": 8, "words": 3}


class Costs(unittest.TestCase):
    def test_both_count_the_same(self):
        options = [word for option, names in SHAPES.values() for word in (option, "x".join(str(SIZES[name]) for name in names))]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "kernels.json"
            subprocess.run([BENCH, "kernels", *options, "--dtypes", "float32", "--repeats", "1", "--time-limit", "0.05", "--quiet",
                            "--threads", "1", "--json", path], check=True, capture_output=True)
            rows = {(row["kernel"], row["pass"]): (row["flops"], row["bytes"]) for row in json.loads(path.read_text())["kernels"]}
        for operator, cost in kernels_gpu.COSTS.items():
            kernel = operator if operator in SHAPES else "flops_regularizer"
            sizes = {name: SIZES[name] for name in SHAPES[kernel][1]}
            forward, backward = cost(4, **sizes)
            self.assertEqual(rows[kernel, "forward"], forward, operator)
            self.assertEqual(rows[kernel, VARIANTS.get(operator, "backward")], backward, operator)

    def test_every_operator_but_one_has_a_cost(self):
        self.assertEqual(set(kernels_gpu.OPERATORS) - set(kernels_gpu.COSTS), {"text_conditioned_loss"})


if __name__ == "__main__":
    if not BENCH.exists():
        print(f"skipped: {BENCH} is not built")
        sys.exit(77)
    unittest.main()
