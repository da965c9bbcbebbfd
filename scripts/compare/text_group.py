#!/usr/bin/env python3
"""Trains the text group transformer on the built-in shapes with both losses, with only one of them, and untrained, and also its baseline.
Evaluates every run, and prints a Markdown table of means and deviations. The first columns measure how well the groups of words agree with
the captions' phrases (tIoU); the baseline's groups are k-means clusters of words. Equal contiguous chunks and random groups are listed for
comparison. The other columns are zero-shot, retrieval, hard negatives, and segmentation by GroupViT's groups.

  scripts/compare/text_group.py                        # the losses
  scripts/compare/text_group.py --web --positions      # captions whose phrases have 2 to 7 words
  scripts/compare/text_group.py --groups 1 2 4 8 16    # also compares these numbers of groups; with --no-losses, compares only them

With --web, captions have the style `web`. This measures whether groups of words agree with phrases of such different lengths better than
equal chunks do. --positions prints how many words are in the group to which most words at their position belong: if these are all words,
the groups depend on positions and not on what the words say. The tables also have differences with intervals. Complete runs are not
trained again, and stopped runs resume from their last checkpoint. Needs only the standard library and the built programs
(scripts/setup.sh).
"""
import argparse
import collections
import json
import pathlib

import objectives
from objectives import Cell

CONFIGS = objectives.ROOT / "configs"
GROUPS = 4  # the number of groups in configs/shapes/text_group.yaml
TASK = "token_group_iou."
SCORES = ("iou", "precision", "recall", "f1")
COLUMNS = {
    "token_group_iou.iou": "tIoU",
    "token_group_iou.precision": "precision",
    "token_group_iou.recall": "recall",
    "token_group_iou.f1": "F1",
    "token_group_iou.groups_per_caption": "groups with words",
    "zero_shot.top1": "zero-shot top-1",
    "retrieval.image_to_text_recall@1": "image-to-text R@1",
    "retrieval.text_to_image_recall@1": "text-to-image R@1",
    "hard_negatives.accuracy": "hard negatives",
    "segmentation.image_miou": "segmentation by groups, mIoU",
}
MATCHING = {column: heading for column, heading in COLUMNS.items() if not column.startswith((TASK, "segmentation"))}
SAMPLES = 1000  # test captions in the suite
COUNTS = ("token_group_iou.groups_per_caption",)
UNTRAINED = ("training.steps=1", "schedule.warmup_steps=0", "optimizer.lr=0")  # a step with a learning rate of 0 changes nothing


def cell_of(config, args, name=None, suite="shapes_text_group", settings=()):
    """Returns one row: the runs of a configuration with `settings`, in a separate folder if `name` is given."""
    path = CONFIGS / f"shapes/{config.removeprefix('shapes_')}.yaml"
    folder = f"{name.replace(' ', '_')}/{config}" if name else config
    if not args.web:
        return Cell(name or config, path, CONFIGS / f"suites/{suite}.yaml", settings, folder=folder)
    path = objectives.variant(args.out / f"configs/{config}.yaml", [path, CONFIGS / "parts/shapes_web.yaml"])
    return Cell(name or config, path, CONFIGS / f"suites/{suite}.yaml", settings, ("source.style=web",), folder)


def other_groups(prefix, cell):
    """Returns the scores of other groupings, chunks or random groups, which the task measures next to those of the model."""
    return [({TASK + name: metrics[f"{TASK}{prefix}_{name}"] for name in SCORES}, 0) for metrics, _ in cell.runs]


def losses(args):
    return [cell_of("shapes_text_group", args),
            *(cell_of(f"shapes_text_group_{loss}", args) for loss in (["reconstruction"] if args.web else ["reconstruction", "contrast"])),
            *([] if args.web else [cell_of("shapes_text_group", args, "untrained", settings=UNTRAINED)]),
            cell_of("shapes_text_group_baseline", args, suite="shapes_text_group_baseline")]


def print_losses(cells, args):
    *groups, baseline = cells
    rows = [*objectives.rows_of(groups), ("equal chunks", other_groups("chunks", cells[0])),
            ("random groups", other_groups("random", cells[0])), *objectives.rows_of([baseline])]
    objectives.print_table(rows, args, list(COLUMNS), list(COLUMNS.values()), COUNTS)

    def other(prefix):
        own = cells[0].evaluations(args)
        return lambda column: [(1, own, column), (-1, own, column.replace(TASK, f"{TASK}{prefix}_"))]

    objectives.print_differences(
        [("both losses - equal chunks", other("chunks")), ("both losses - random groups", other("random")),
         ("both losses - baseline's clusters", objectives.against(cells[0], baseline, args))],
        [TASK + name for name in SCORES], [COLUMNS[TASK + name] for name in SCORES])
    objectives.print_differences([("both losses - baseline", objectives.against(cells[0], baseline, args))],
                                 list(MATCHING), list(MATCHING.values()))


def print_positions(cell, args):
    """Prints how many words of each run are in the most frequent group of their position."""
    for folder in cell.evaluations(args):
        out = folder.parent / "all_groups"
        if not (out / "results.json").exists():
            style = ["source.style=web"] if args.web else []
            command = [objectives.ROOT / "build/bin/evaluate", "--checkpoint", folder.parent, "--suite", cell.suite, "--out", out]
            objectives.run(objectives.overridden(command, [f"tasks=[{{name: token_group_iou, samples: {SAMPLES}}}]", *style]), f"{out}.out")
        groups = collections.defaultdict(collections.Counter)
        for caption in json.loads((out / "token_groups.json").read_text()):
            for position, token in enumerate(token for token in caption["tokens"] if token["group"] >= 0):
                groups[position][token["group"]] += 1
        share = sum(max(counts.values()) for counts in groups.values()) / sum(counts.total() for counts in groups.values())
        print(f"{folder.parent.name}: {100 * share:.1f}% of the words are in the most frequent group of their position")


def compare_groups(args):
    cells = [cell_of("shapes_text_group", args) if count == GROUPS else
             cell_of("shapes_text_group", args, f"{count} groups", settings=(f"model.text.encoder.num_groups={count}",))
             for count in args.groups]
    objectives.run_cells(cells, args)
    rows = []
    for count, cell in zip(args.groups, cells):
        rows += [(f"K = {count}", cell.runs), (f"{count} equal chunks", other_groups("chunks", cell))]
    objectives.print_table(rows, args, list(COLUMNS), list(COLUMNS.values()), COUNTS)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--web", action="store_true", help="captions whose phrases have 2 to 7 words, of thousands of words")
    parser.add_argument("--groups", nargs="+", type=int, default=[], metavar="K", help="numbers of groups to compare, say 1 2 4 8 16")
    parser.add_argument("--positions", action="store_true", help="print how much the groups of words depend on positions")
    parser.add_argument("--no-losses", action="store_true", help="only the numbers of groups")
    objectives.add_arguments(parser, None)
    parser.set_defaults(jobs=2)
    args = parser.parse_args()
    args.out = (args.out or pathlib.Path("runs/text_group_web" if args.web else "runs/text_group")).resolve()
    args.set = ["training.threads=1", *args.set]
    if not args.no_losses:
        cells = losses(args)
        objectives.run_cells(cells, args)
        print_losses(cells, args)
        if args.positions:
            print_positions(cells[0], args)
    if args.groups:
        compare_groups(args)


if __name__ == "__main__":
    main()
