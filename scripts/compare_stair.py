#!/usr/bin/env python3
"""Trains STAIR in three stages, STAIR in a single stage, and CLIP on the built-in shapes, evaluates every run, and prints a Markdown table
of means and deviations: zero-shot, retrieval with and without the text tower, whether color and shape of the largest object are an image's
strongest words, and how many words an image has.

  scripts/compare_stair.py

Complete runs are not trained again, and stopped runs resume from their last checkpoint. Needs only the standard library and the built
programs (scripts/setup.sh).
"""
import argparse
import pathlib

import compare_objectives

CONFIGS = compare_objectives.ROOT / "configs"
# CLIP's dense embeddings have no words, so CLIP is evaluated without the tasks that need words.
SUITES = {"shapes_stair": ("shapes_stair", "shapes_stair_single"), "shapes_tokens": ("shapes_stair_clip",)}
COLUMNS = {
    "zero_shot.top1": "zero-shot top-1",
    "retrieval.image_to_text_recall@1": "image-to-text R@1",
    "retrieval.text_to_image_recall@1": "text-to-image R@1",
    "retrieval_2.image_to_text_recall@1": "image-to-text R@1, no text tower",
    "retrieval_2.text_to_image_recall@1": "text-to-image R@1, no text tower",
    "tokens.caption_precision@5": "first 5 words that a caption has",
    "interpretability.top1": "color is first word",
    "interpretability.top3": "color is among first 3",
    "interpretability_2.top1": "shape is first word",
    "interpretability_2.top3": "shape is among first 3",
    "retrieval.active_tokens_per_image": "words per image",
    "retrieval.active_tokens_per_text": "words per text",
}
COUNTS = ("retrieval.active_tokens_per_image", "retrieval.active_tokens_per_text")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    compare_objectives.add_arguments(parser, pathlib.Path("runs/stair"))
    parser.set_defaults(jobs=2)
    args = parser.parse_args()
    args.set = ["training.threads=1", *args.set]
    rows = []
    for suite, configs in SUITES.items():
        args.suite = CONFIGS / f"suites/{suite}.yaml"
        rows += compare_objectives.compare([CONFIGS / f"{name}.yaml" for name in configs], args)
    compare_objectives.print_table(rows, args, list(COLUMNS), list(COLUMNS.values()), COUNTS)


if __name__ == "__main__":
    main()
