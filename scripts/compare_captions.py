#!/usr/bin/env python3
"""Trains on partial captions of the built-in shapes: CLIP on one of them an image, and on four the multi-positive contrast alone, with
SuperCLIP, DreamLIP, COSMOS and FLAIR. It evaluates every run and prints a Markdown table of means and deviations: zero-shot, retrieval and
segmentation by global embeddings and plain patches, and FLAIR's by its text-conditioned pool.

  scripts/compare_captions.py

Eighteen runs. Runs that are complete already are not trained again, and a stopped one goes on from its last checkpoint. Only the standard
library is needed; the programs must be built (scripts/setup.sh).
"""
import argparse
import pathlib

import compare_objectives

CONFIGS = compare_objectives.ROOT / "configs"
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
    parser.add_argument("configs", nargs="*", help="names of configurations among those above (default: all)")
    parser.add_argument("--steps", type=int, default=400, help="of training, for every run")
    compare_objectives.add_arguments(parser, pathlib.Path("runs/captions"))
    parser.set_defaults(jobs=2)
    args = parser.parse_args()
    args.set = [f"training.steps={args.steps}", "training.threads=1", *args.set]
    rows = []
    for suite, configs in SUITES.items():
        args.suite = CONFIGS / f"suites/{suite}.yaml"
        chosen = [CONFIGS / f"{name}.yaml" for name in configs if not args.configs or name in args.configs]
        rows += compare_objectives.compare(chosen, args)
    compare_objectives.print_table(rows, args, list(COLUMNS), list(COLUMNS.values()))


if __name__ == "__main__":
    main()
