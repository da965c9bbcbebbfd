#!/usr/bin/env python3
"""Trains CLIP on the built-in shapes with several read-outs, evaluates every run, and prints a Markdown table of means and
deviations: zero-shot, retrieval, linear probe, and hard negatives on images with seen and unseen pairs of color and shape.

  scripts/compare_readouts.py

There are twelve runs of 1,000 steps. Complete runs are not trained again, and stopped runs resume from their last checkpoint. Needs only
the standard library and the built programs (scripts/setup.sh).
"""
import argparse
import pathlib

import compare_objectives

CONFIGS = compare_objectives.ROOT / "configs"
COLUMNS = {
    "zero_shot.top1": "zero-shot top-1",
    "retrieval.image_to_text_recall@1": "image-to-text R@1",
    "retrieval.text_to_image_recall@1": "text-to-image R@1",
    "hard_negatives.accuracy": "hard negatives, seen pairs",
    "hard_negatives_2.accuracy": "hard negatives, unseen pairs",
    "linear_probe.top1": "linear probe top-1",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="*", type=pathlib.Path,
                        default=[CONFIGS / f"shapes_{name}.yaml" for name in ("cls", "gap", "attentional_pool", "sparo")])
    parser.add_argument("--steps", type=int, default=1000, help="training steps of every run")
    compare_objectives.add_arguments(parser, pathlib.Path("runs/readouts"))
    parser.set_defaults(jobs=2)
    args = parser.parse_args()
    args.suite = CONFIGS / "suites/shapes_readouts.yaml"
    args.set = [f"training.steps={args.steps}", "training.threads=1", *args.set]
    compare_objectives.print_table(compare_objectives.compare(args.configs, args), args, list(COLUMNS), list(COLUMNS.values()))


if __name__ == "__main__":
    main()
