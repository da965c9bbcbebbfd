#!/usr/bin/env python3
"""Trains on partial captions of the built-in shapes: CLIP with one caption per image; the multi-positive contrast, with and without
SuperCLIP, DreamLIP, COSMOS and FLAIR with four. Evaluates every run and prints a Markdown table of means and deviations: zero-shot,
retrieval and segmentation with global embeddings and plain patches, and for FLAIR also with its text-conditioned pool.

  scripts/compare/captions.py

There are eighteen runs. Complete runs are not trained again, and stopped runs resume from their last checkpoint. Needs only the standard
library and the built programs (scripts/setup.sh).
"""
import argparse
import pathlib

import objectives

CONFIGS = objectives.ROOT / "configs"
SUITES = {"shapes": ("shapes_one_caption", "shapes_multi_positive", "shapes_captions_superclip", "shapes_dreamlip", "shapes_cosmos"),
          "shapes_flair": ("shapes_flair",)}
COLUMNS = {
    "zero_shot.top1": "zero-shot top-1",
    "retrieval.image_to_text_recall@1": "image-to-text R@1",
    "retrieval.text_to_image_recall@1": "text-to-image R@1",
    "segmentation.image_miou": "segmentation, image mIoU",
    "zero_shot_2.top1": "zero-shot, conditioned",
    "retrieval_2.image_to_text_recall@1": "image-to-text, conditioned",
    "retrieval_2.text_to_image_recall@1": "text-to-image, conditioned",
    "segmentation_2.image_miou": "segmentation, conditioned",
    "segmentation_3.image_miou": "segmentation, attention",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="*", help="names of the configurations to run (default: all)")
    parser.add_argument("--steps", type=int, default=400, help="training steps of every run")
    objectives.add_arguments(parser, pathlib.Path("runs/captions"))
    parser.set_defaults(jobs=2)
    args = parser.parse_args()
    args.set = [f"training.steps={args.steps}", "training.threads=1", *args.set]
    rows = []
    for suite, configs in SUITES.items():
        args.suite = CONFIGS / f"suites/{suite}.yaml"
        chosen = [CONFIGS / f"shapes/{name.removeprefix('shapes_')}.yaml" for name in configs if not args.configs or name in args.configs]
        rows += objectives.compare(chosen, args)
    objectives.print_table(rows, args, list(COLUMNS), list(COLUMNS.values()))


if __name__ == "__main__":
    main()
