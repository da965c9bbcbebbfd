#!/usr/bin/env python3
"""Trains CLIP, FILIP and SPARC on built-in images of one object, of two, four and six, evaluates every run, and prints a Markdown table of
means and deviations: segmentation, retrieval and hard negatives, with the differences of SPARC from the others and their intervals.

  scripts/compare/sparc.py

The question is whether SPARC's lead in local detail grows with the number of objects. Objects are as small with one as with six, so that
only their number differs; images have 96 pixels. Runs that are complete already are not trained again, and a stopped one resumes at its
last checkpoint. Only the standard library is needed; the programs must be built (scripts/setup.sh).
"""
import argparse
import pathlib

import objectives
from objectives import Cell

CONFIGS = objectives.ROOT / "configs"
SYSTEMS = ("clip", "filip", "sparc")
COLUMNS = {
    "segmentation.image_miou": "image mIoU",
    "segmentation.dataset_miou": "dataset mIoU",
    "retrieval.image_to_text_recall@1": "image-to-text R@1",
    "retrieval.text_to_image_recall@1": "text-to-image R@1",
    "hard_negatives.accuracy": "hard negatives",
    "zero_shot.top1": "zero-shot top-1",
}
SIZES = [0.18, 0.26]  # six of these find room


def cells_of(count, args):
    data = (f"objects=[{count}, {count}]", f"object_sizes={args.sizes}", f"image_size={args.image_size}")
    settings = (f"training.steps={args.steps}", f"model.preprocessing.image_size={args.image_size}",
                *(f"data.{split}.{setting}" for split in ("train", "validation") for setting in data))
    return [Cell(f"{name}, {count} object{'s' if count > 1 else ''}", CONFIGS / f"shapes/{name}.yaml", set=settings,
                 evaluate_set=tuple(f"source.{setting}" for setting in data), folder=f"objects{count}/{name}") for name in SYSTEMS]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", nargs="+", type=int, default=[1, 2, 4, 6], metavar="COUNT")
    parser.add_argument("--sizes", nargs=2, type=float, default=SIZES, metavar="SHARE",
                        help="diameters of the smallest and the largest objects")
    parser.add_argument("--image-size", type=int, default=96)
    parser.add_argument("--steps", type=int, default=300, help="of training, for every run")
    objectives.add_arguments(parser, pathlib.Path("runs/sparc_objects"))
    parser.set_defaults(jobs=2)
    args = parser.parse_args()
    args.suite = CONFIGS / "suites/shapes.yaml"
    args.set = ["training.threads=1", *args.set]
    by_count = {count: cells_of(count, args) for count in args.objects}
    cells = [cell for some in by_count.values() for cell in some]
    objectives.run_cells(cells, args)
    objectives.print_table(objectives.rows_of(cells), args, list(COLUMNS), list(COLUMNS.values()))

    def lead(count, rival):
        return objectives.against(by_count[count][SYSTEMS.index("sparc")], by_count[count][SYSTEMS.index(rival)], args)

    objectives.print_differences([(f"SPARC - {rival.upper()}, {count} object{'s' if count > 1 else ''}", lead(count, rival))
                                          for rival in ("clip", "filip") for count in args.objects], list(COLUMNS), list(COLUMNS.values()))


if __name__ == "__main__":
    main()
