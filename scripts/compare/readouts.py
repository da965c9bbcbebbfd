#!/usr/bin/env python3
"""Trains CLIP on the built-in shapes with several read-outs, evaluates every run, and prints a Markdown table of means and
deviations: zero-shot, retrieval, linear probe, and hard negatives on images with seen and unseen pairs of color and shape.

  scripts/compare/readouts.py
  scripts/compare/readouts.py --wide

SPARO's embeddings have 512 numbers, those of its rivals 128. The second command gives the rivals 512, too, and asks what SPARO's lead is
then; its table has differences from SPARO with intervals. Runs that are complete already are not trained again, and a stopped one resumes
at its last checkpoint. Only the standard library is needed; the programs must be built (scripts/setup.sh).
"""
import argparse
import pathlib

import objectives
from objectives import Cell

CONFIGS = objectives.ROOT / "configs"
COLUMNS = {
    "zero_shot.top1": "zero-shot top-1",
    "retrieval.image_to_text_recall@1": "image-to-text R@1",
    "retrieval.text_to_image_recall@1": "text-to-image R@1",
    "hard_negatives.accuracy": "hard negatives, seen pairs",
    "hard_negatives_2.accuracy": "hard negatives, unseen pairs",
    "linear_probe.top1": "linear probe top-1",
}
WIDE = ("model.image.projection.embed_dim=512", "model.text.projection.embed_dim=512")
RIVALS = {"cls": WIDE, "gap": WIDE,
          "attentional_pool": ("model.image.readout.output_dim=512", "model.text.readout.output_dim=512")}


def compare_wide(args):
    sparo = Cell("SPARO, 32 slots of 16", CONFIGS / "shapes/sparo.yaml")
    rivals = [Cell(f"`{name}`, 512 wide", CONFIGS / f"shapes/{name}.yaml", set=settings, folder=f"wide_{name}")
              for name, settings in RIVALS.items()]
    objectives.run_cells([*rivals, sparo], args)
    objectives.print_table(objectives.rows_of([*rivals, sparo]), args, list(COLUMNS), list(COLUMNS.values()))
    objectives.print_differences([(f"SPARO - {rival.name}", objectives.against(sparo, rival, args)) for rival in rivals],
                                         list(COLUMNS), list(COLUMNS.values()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="*", type=pathlib.Path,
                        default=[CONFIGS / f"shapes/{name}.yaml" for name in ("cls", "gap", "attentional_pool", "sparo")])
    parser.add_argument("--wide", action="store_true", help="compare SPARO with rivals of 512 numbers")
    parser.add_argument("--steps", type=int, default=1000, help="training steps of every run")
    objectives.add_arguments(parser, pathlib.Path("runs/readouts"))
    parser.set_defaults(jobs=2)
    args = parser.parse_args()
    args.suite = CONFIGS / "suites/shapes_readouts.yaml"
    args.set = [f"training.steps={args.steps}", "training.threads=1", *args.set]
    if args.wide:
        return compare_wide(args)
    objectives.print_table(objectives.compare(args.configs, args), args, list(COLUMNS), list(COLUMNS.values()))


if __name__ == "__main__":
    main()
