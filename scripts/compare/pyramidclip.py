#!/usr/bin/env python3
"""Trains the steps from CLIP to PyramidCLIP on the built-in shapes, evaluates every run, and prints a Markdown table of means and
deviations: zero-shot, retrieval, hard negatives on images with seen and unseen pairs of color and shape, linear probe.

  scripts/compare/pyramidclip.py
  scripts/compare/pyramidclip.py --bad-captions 0 20 40 60

The second command asks whether PyramidCLIP's lead over CLIP grows as more captions are bad. Every training image has one caption; of the
bad ones a third leaves out objects, a third names objects that are not there, and a third belongs to another image. The test captions are
true. Runs that are complete already are not trained again, and a stopped one resumes at its last checkpoint. Only the standard library is
needed; the programs must be built (scripts/setup.sh).
"""
import argparse
import pathlib

import objectives
from objectives import Cell
from readouts import COLUMNS

CONFIGS = objectives.ROOT / "configs"
STEPS = ("pyramid_clip", "pyramid_soft", "pyramid_peer", "pyramid_cross", "pyramidclip")
SHOWN = {"zero_shot.top1": "zero-shot top-1", "zero_shot.top3": "top-3", **COLUMNS}


def bad_captions(percent):
    share = percent / 300
    return f"data.train.bad_captions={{less: {share}, more: {share}, other: {share}}}"


def compare_bad_captions(args):
    pairs = {}
    for percent in args.bad_captions:
        settings = (f"training.steps={args.steps}", "data.train.captions=1", bad_captions(percent))
        pairs[percent] = [Cell(f"{name}, {percent}% bad", CONFIGS / f"shapes/{config}.yaml", set=settings, folder=f"bad{percent}/{config}")
                          for name, config in (("CLIP", "pyramid_clip"), ("PyramidCLIP", args.pyramid))]
    cells = [cell for pair in pairs.values() for cell in pair]
    objectives.run_cells(cells, args)
    objectives.print_table(objectives.rows_of(cells), args, list(SHOWN), list(SHOWN.values()))
    leads = {percent: objectives.against(pyramid, clip, args) for percent, (clip, pyramid) in pairs.items()}
    rows = [(f"PyramidCLIP - CLIP, {percent}% bad", terms) for percent, terms in leads.items()]
    first, *_, last = leads
    if first != last:
        rows.append((f"lead at {last}% - lead at {first}%",
                     lambda column: leads[last](column) + [(-factor, *run) for factor, *run in leads[first](column)]))
    objectives.print_differences(rows, list(SHOWN), list(SHOWN.values()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="*", type=pathlib.Path, default=[CONFIGS / f"shapes/{name}.yaml" for name in STEPS])
    parser.add_argument("--bad-captions", nargs="+", type=int, default=[], metavar="PERCENT",
                        help="compare CLIP and PyramidCLIP at these shares, say 0 20 40 60")
    parser.add_argument("--pyramid", default="pyramidclip", choices=STEPS[1:], help="the step that is compared with --bad-captions")
    parser.add_argument("--steps", type=int, default=300, help="of training with --bad-captions, for every run")
    objectives.add_arguments(parser, pathlib.Path("runs/pyramidclip"))
    parser.set_defaults(jobs=2)
    args = parser.parse_args()
    args.suite = CONFIGS / "suites/shapes_readouts.yaml"
    args.set = ["training.threads=1", *args.set]
    if args.bad_captions:
        return compare_bad_captions(args)
    objectives.print_table(objectives.compare(args.configs, args), args, list(SHOWN), list(SHOWN.values()))


if __name__ == "__main__":
    main()
