#!/usr/bin/env python3
"""Trains the steps from CLIP to PyramidCLIP on the built-in shapes, evaluates every run, and prints a Markdown table of means and
deviations: zero-shot, retrieval, hard negatives on images with seen and unseen pairs of color and shape, linear probe.

  scripts/compare_pyramidclip.py

There are fifteen runs. Complete runs are not trained again, and stopped runs resume from their last checkpoint. Needs only the
standard library and the built programs (scripts/setup.sh).
"""
import argparse
import pathlib

import compare_objectives
from compare_readouts import COLUMNS

CONFIGS = compare_objectives.ROOT / "configs"
STEPS = ("pyramid_clip", "pyramid_soft", "pyramid_peer", "pyramid_cross", "pyramidclip")
SHOWN = {"zero_shot.top1": "zero-shot top-1", "zero_shot.top3": "top-3", **COLUMNS}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="*", type=pathlib.Path, default=[CONFIGS / f"shapes_{name}.yaml" for name in STEPS])
    compare_objectives.add_arguments(parser, pathlib.Path("runs/pyramidclip"))
    parser.set_defaults(jobs=2)
    args = parser.parse_args()
    args.suite = CONFIGS / "suites/shapes_readouts.yaml"
    args.set = ["training.threads=1", *args.set]
    compare_objectives.print_table(compare_objectives.compare(args.configs, args), args, list(SHOWN), list(SHOWN.values()))


if __name__ == "__main__":
    main()
