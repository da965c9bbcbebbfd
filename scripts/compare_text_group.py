#!/usr/bin/env python3
"""Trains the text group transformer on the built-in shapes with both losses, with each one only, and with none, as well as its baseline.
Evaluates every run and prints a Markdown table of means and deviations: how well the groups of words match the captions' phrases
(tIoU; for the baseline, k-means clusters of words), compared with equal contiguous chunks and random groups; then zero-shot, retrieval,
hard negatives and segmentation by GroupViT's groups.

  scripts/compare_text_group.py                        # compares the losses
  scripts/compare_text_group.py --groups 1 2 4 8 16    # also compares numbers of groups, K; with --no-losses only those

Complete runs are not trained again, and stopped runs resume from their last checkpoint. Needs only the standard library and the built
programs (scripts/setup.sh).
"""
import argparse
import copy
import pathlib

import compare_objectives

CONFIGS = compare_objectives.ROOT / "configs"
GROUPS = 4  # the number of groups in configs/shapes_text_group.yaml
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
COUNTS = ("token_group_iou.groups_per_caption",)
UNTRAINED = ("training.steps=1", "schedule.warmup_steps=0", "optimizer.lr=0")  # one step with a learning rate of 0 changes nothing


def compare(config, args, name=None, suite="shapes_text_group", settings=()):
    """Returns one row: the runs of a configuration with `settings`, in a separate folder if `name` is given."""
    args = copy.copy(args)
    args.suite = CONFIGS / f"suites/{suite}.yaml"
    args.set = [*args.set, *settings]
    if name:
        args.out = args.out / name.replace(" ", "_")
    [(stem, runs)] = compare_objectives.compare([CONFIGS / f"{config}.yaml"], args)
    return name or stem, runs


def other_groups(prefix, runs):
    """The scores of other groupings, which the task measures in addition to the model's."""
    task = "token_group_iou."
    return [({task + name: metrics[f"{task}{prefix}_{name}"] for name in ("iou", "precision", "recall", "f1")}, 0) for metrics, _ in runs]


def compare_losses(args):
    both = compare("shapes_text_group", args)
    return [both, *(compare(f"shapes_text_group_{loss}", args) for loss in ("reconstruction", "contrast")),
            compare("shapes_text_group", args, "untrained", settings=UNTRAINED),
            ("equal chunks", other_groups("chunks", both[1])), ("random groups", other_groups("random", both[1])),
            compare("shapes_text_group_baseline", args, suite="shapes_text_group_baseline")]


def compare_groups(args):
    rows = []
    for count in args.groups:
        name = None if count == GROUPS else f"{count} groups"
        _, runs = compare("shapes_text_group", args, name, settings=[f"model.text.encoder.num_groups={count}"])
        rows += [(f"K = {count}", runs), (f"{count} equal chunks", other_groups("chunks", runs))]
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", nargs="+", type=int, default=[], metavar="K", help="numbers of groups to compare, for example 1 2 4 8 16")
    parser.add_argument("--no-losses", action="store_true", help="compare only the numbers of groups")
    compare_objectives.add_arguments(parser, pathlib.Path("runs/text_group"))
    parser.set_defaults(jobs=2)
    args = parser.parse_args()
    args.set = ["training.threads=1", *args.set]
    for compare_some in ([] if args.no_losses else [compare_losses]) + [compare_groups]:
        if rows := compare_some(args):
            compare_objectives.print_table(rows, args, list(COLUMNS), list(COLUMNS.values()), COUNTS)
            print()


if __name__ == "__main__":
    main()
