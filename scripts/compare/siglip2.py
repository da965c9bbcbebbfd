#!/usr/bin/env python3
"""Trains SigLIP 2's and FG-CLIP's loss terms on the built-in shapes, in seven variants: the sigmoid loss only; with captioning; with
self-distillation; with masked prediction; with all three; with boxes, phrases and hard negatives of phrases; and with hard negatives of
captions that change an attribute. Evaluates every run on configs/suites/shapes_dense.yaml and prints a Markdown table of means and
deviations.

  scripts/compare/siglip2.py

There are twenty-one runs. Complete runs are not trained again, and stopped runs resume from their last checkpoint. Needs only the standard
library and the built programs (scripts/setup.sh).
"""
import argparse
import copy
import json
import pathlib
import statistics
import subprocess
import sys

import objectives

HEAD = {"out_dim": 1024, "hidden_dim": 256, "bottleneck_dim": 64}
TERMS = {
    "captioning": {"name": "captioning", "decoder": {"layers": 1, "heads": 4}},
    "self_distillation": {"name": "self_distillation", "local_crops": 4, **HEAD},
    "masked_prediction": {"name": "masked_prediction", **HEAD},
    "regions": {"name": "region_contrast", "hard_weight": 0.5},
}
VOCABULARY = 120
DENSE = ["captioning", "self_distillation", "masked_prediction"]
VARIANTS = {"siglip": [], **{f"siglip_{name}": [name] for name in DENSE}, "siglip_all": DENSE,
            "siglip_regions": ["regions"], "siglip_attribute_negatives": []}
# siglip_attribute_negatives trains only with these kinds of negatives, so it never sees other kinds.
ATTRIBUTE_KINDS = ["replace_att", "swap_att", "add_att"]
OTHER_KINDS = ["replace_obj", "replace_rel", "swap_obj", "add_obj"]
DATA = {"train": {"negatives": True}, "loader": {"boxes": {"count": 3, "negatives": 3}, "negatives": {"count": 2}}}
COLUMNS = {
    "zero_shot.top1": "zero-shot top-1",
    "retrieval.image_to_text_recall@1": "image-to-text R@1",
    "retrieval.text_to_image_recall@1": "text-to-image R@1",
    "segmentation.image_miou": "segmentation, image mIoU",
    "segmentation_probe.dataset_miou": "linear probe of patches, colors, mIoU",
    "segmentation_probe_2.dataset_miou": "the same, shapes",
    "knn.top1": "k-NN",
    "hard_negatives.of_attributes": "hard negatives: attributes",
    "hard_negatives.of_the_rest": "other hard negatives",
}


def write_variant(name, terms, args):
    """Writes the configuration of one run as JSON, which is valid YAML."""
    added = [{"name": "siglip", "hard_negatives": "all" if name.endswith("_negatives") else "none"}]
    for term in terms:
        added.append({**TERMS[term], "weight": args.weights.get(term, 1.0)})
    data = {"data": copy.deepcopy(DATA)} if name.endswith(("regions", "negatives")) else {}
    if name == "siglip_attribute_negatives":
        data["data"]["loader"]["negatives"]["kinds"] = ATTRIBUTE_KINDS
    path = args.out / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"extends": str(objectives.ROOT / "configs/parts/shapes_siglip2.yaml"),
                                "model": {"text": {"encoder": {"vocab_size": VOCABULARY}}}, **data, "objective": {"name": "weighted_sum", "objectives": added}}))
    return path


def add_means(metrics):
    """Adds the mean accuracies over several kinds of hard negatives."""
    for name, kinds in {"of_attributes": ATTRIBUTE_KINDS, "of_the_rest": OTHER_KINDS}.items():
        metrics[f"hard_negatives.{name}"] = statistics.mean(metrics[f"hard_negatives.{kind}_accuracy"] for kind in kinds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variants", nargs="*", help=f"of {', '.join(VARIANTS)} (default: all)")
    parser.add_argument("--steps", type=int, default=400, help="training steps of every run")
    parser.add_argument("--weight", action="append", default=[], metavar="TERM=WEIGHT", help="weight of a term (default: 1)")
    objectives.add_arguments(parser, pathlib.Path("runs/siglip2"))
    parser.add_argument("--cost", action="store_true", help="only print the cost of a step of each variant (tessera-bench step)")
    parser.set_defaults(jobs=2, suite=objectives.ROOT / "configs/suites/shapes_dense.yaml")
    args = parser.parse_args()
    args.weights = {term: float(weight) for term, weight in (item.split("=") for item in args.weight)}
    args.out = args.out.resolve()
    args.set = [f"training.steps={args.steps}", "training.threads=1", *args.set]
    chosen = {name: terms for name, terms in VARIANTS.items() if not args.variants or name in args.variants}
    configs = [write_variant(name, terms, args) for name, terms in chosen.items()]
    if args.cost:
        bench = [objectives.ROOT / "build/bin/tessera-bench", "step", "--quiet", "--batch-size", "64", "--phases", *configs]
        sys.exit(subprocess.run(bench).returncode)
    cells = [objectives.Cell(objectives.name_of(config), config) for config in configs]
    objectives.run_cells(cells, args)
    for cell in cells:
        for metrics, _ in cell.runs:
            add_means(metrics)
    objectives.print_table(objectives.rows_of(cells), args, list(COLUMNS), list(COLUMNS.values()))


if __name__ == "__main__":
    main()
