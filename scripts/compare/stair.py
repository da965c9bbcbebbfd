#!/usr/bin/env python3
"""Trains STAIR in three stages, STAIR in a single stage, and CLIP on the built-in shapes, evaluates every run, and prints a Markdown table
of means and deviations: zero-shot, retrieval with and without the text tower, whether color and shape of the largest object are an image's
strongest words, and how many words an image has.

  scripts/compare/stair.py
  scripts/compare/stair.py --web

The second command asks whether STAIR is ahead of a dense CLIP when captions have thousands of words, and whether an image's strongest
words can be read, shapes among them. Captions are in the style `web` (2,600 words), images have 96 pixels and one or two large objects,
so that shapes are learned, and CLIP has more layers, so that a step of it takes as many FLOPs as one of STAIR. The table has differences
from CLIP with intervals.

Runs that are complete already are not trained again, and a stopped one resumes at its last checkpoint. Only the standard library is
needed; the programs must be built (scripts/setup.sh).
"""
import argparse
import pathlib

import objectives
from objectives import Cell

CONFIGS = objectives.ROOT / "configs"
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
COMPARED = [column for column in COLUMNS if not column.startswith("retrieval_2") and column not in COUNTS]  # that CLIP has, too
WEB_DATA = {"style": "web", "image_size": 96, "objects": [1, 2], "object_sizes": [0.4, 0.6]}
# Of both suites: where the data are named, and what words stand for a color or a shape.
SOURCES = ("source", "tasks.3.source")
WEB_CLASSES = tuple(f"tasks.{task}.classes={CONFIGS}/classes/shapes_web_{name}.txt" for task, name in ((2, "colors"), (3, "shapes")))
WEB_STAGES = (400, 150, 250)
CLIP_LAYERS = 6  # of both towers, for as many FLOPs as STAIR's head takes


def as_settings(key, values):
    return tuple(f"{key}.{name}={value}" for name, value in values.items())


def cells_of(args):
    for suite, names in SUITES.items():
        for name in names:
            config = CONFIGS / f"shapes/{name.removeprefix('shapes_')}.yaml"
            if not args.web:
                yield Cell(name, config, CONFIGS / f"suites/{suite}.yaml")
                continue
            config = objectives.variant(args.out / f"configs/{name}.yaml", [config, CONFIGS / "parts/shapes_web.yaml"])
            settings = (*as_settings("data.train", WEB_DATA), *as_settings("data.validation", WEB_DATA), "model.preprocessing.image_size=96")
            if name == "shapes_stair":
                settings += tuple(f"stages.{i}.training.steps={steps}" for i, steps in enumerate(WEB_STAGES))
            else:
                settings += (f"training.steps={sum(WEB_STAGES)}",)
            if name == "shapes_stair_clip":
                settings += (f"model.image.encoder.layers={CLIP_LAYERS}",)
            measured = sum((as_settings(source, WEB_DATA) for source in SOURCES), WEB_CLASSES)
            yield Cell(name, config, CONFIGS / f"suites/{suite}.yaml", settings, measured)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--web", action="store_true", help="captions of thousands of words, larger objects")
    objectives.add_arguments(parser, None)
    parser.set_defaults(jobs=2)
    args = parser.parse_args()
    args.out = (args.out or pathlib.Path("runs/stair_web" if args.web else "runs/stair")).resolve()
    args.set = ["training.threads=1", *args.set]
    cells = list(cells_of(args))
    objectives.run_cells(cells, args)
    objectives.print_table(objectives.rows_of(cells), args, list(COLUMNS), list(COLUMNS.values()), COUNTS)
    *stairs, clip = cells
    if args.web:
        objectives.print_differences(
            [(f"{cell.name} - {clip.name}", objectives.against(cell, clip, args)) for cell in stairs],
            COMPARED, [COLUMNS[column] for column in COMPARED])


if __name__ == "__main__":
    main()
