#!/usr/bin/env python3
"""Trains eight systems on small photographs, evaluates every run, and prints a Markdown table: retrieval both ways and K-precision
on the test photographs, and segmentation on two other data sets whose class names occur in the captions.

  scripts/compare/photographs.py --data photographs --out runs/photographs

The folder --data holds three folders of WebDataset shards train-*.tar and test-*.tar: flickr8k with KEY.jpg and KEY.txt (one caption per
line); camvid and coco_mini with KEY.jpg, KEY.mask.png and a classes.txt. With one seed the table has 95 % intervals from a bootstrap over
samples, with several seeds means and deviations. Complete runs are not trained again, and stopped runs resume from their last checkpoint.
Needs only the standard library and the built programs (scripts/setup.sh).
"""
import argparse
import collections
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import tarfile

import objectives

ROOT = objectives.ROOT
VOCABULARY = ROOT / "runs/photographs.model"
# For each system: the features that segmentation compares with class texts. None: no segmentation, because embeddings and patches have
# different widths.
SYSTEMS = {"clip": "patches", "sparc": "patches", "filip": "patches", "clip_filip": "patches", "pyramidclip": "patches", "text_group": "groups",
           "sparo": None, "stair": None}
# The names that captions use for CamVid's classes.
CAMVID = {"pole": "pole, post", "pavement": "pavement, sidewalk", "pedestrian": "pedestrian, person, man, woman",
          "bicyclist": "bicyclist, cyclist, biker"}
COCO_BACKGROUND = 0
LEAST_MENTIONS = 10  # a COCO class is used if the training captions name it at least this often
COLUMNS = {
    "image_to_text_recall@1": "image-to-text R@1", "image_to_text_recall@5": "R@5", "image_to_text_recall@10": "R@10",
    "text_to_image_recall@1": "text-to-image R@1", "text_to_image_recall@5": "R@5", "text_to_image_recall@10": "R@10",
    "k_precision": "K-P", "k_precision_na": "K-Pna", "camvid": "CamVid mIoU", "coco_mini": "COCO mIoU",
}


def classes_of(data, name):
    return [line for line in (data / name / "classes.txt").read_text().splitlines() if line]


def mentioned(data):
    """Returns the indices of the COCO classes that training captions name at least LEAST_MENTIONS times, in singular or plural."""
    captions = []
    for shard in sorted((data / "flickr8k").glob("train-*.tar")):
        with tarfile.open(shard) as tar:
            captions += [tar.extractfile(member).read().decode().lower() for member in tar if member.name.endswith(".txt")]
    text = "\n".join(captions)
    counts = [len(re.findall(rf"\b{re.escape(name)}s?\b", text)) for name in classes_of(data, "coco_mini")]
    return {place for place, count in enumerate(counts) if count >= LEAST_MENTIONS and place != COCO_BACKGROUND}


def suite(data, by):
    shards = {"name": "webdataset", "path": str(data / "flickr8k/test-*.tar"), "caption_lines": True}
    lexicon = str(ROOT / "configs/lexicons/nouns_adjectives_small.txt")
    tasks = [{"name": "retrieval", "topk": [1, 5, 10]}, {"name": "k_precision", "lexicon": lexicon}]
    for name in ("camvid", "coco_mini") if by else ():
        source = {"name": "webdataset", "path": str(data / name / "test-*.tar"), "classes": str(data / name / "classes.txt")}
        if name == "coco_mini":
            source["background_class"] = COCO_BACKGROUND
        names = [CAMVID.get(label, label) if name == "camvid" else label for label in classes_of(data, name)]
        tasks.append({"name": "segmentation", "by": by, "source": source, "classes": names})
    return {"source": shards, "tasks": tasks}


def image_miou(outcomes, places):
    """Returns the mean over images of each image's mean IoU, over its classes that are in `places`, and its 95 % interval."""
    pictures = collections.defaultdict(list)
    for sample, place, part, whole in zip(*(outcomes[key] for key in ("sample", "group", "parts", "wholes"))):
        if place in places:
            pictures[sample].append(part / whole)
    values = [statistics.mean(ious) for ious in pictures.values()]
    draw = random.Random(0)
    means = sorted(statistics.mean(draw.choices(values, k=len(values))) for _ in range(1000))
    return statistics.mean(values), [means[25], means[974]]


def scores_of(folder, places):
    """Returns {column: (value, [low, high])} of one run."""
    results, samples = (json.loads((folder / f"evaluation/{name}.json").read_text())["tasks"] for name in ("results", "samples"))
    scores = {}
    for result, outcomes in zip(results, samples, strict=True):
        if result["task"] != "segmentation":
            scores |= {name: (value, result["intervals"].get(name)) for name, value in result["metrics"].items()}
        elif "coco_mini" in result["data"]:
            scores["coco_mini"] = image_miou(outcomes["metrics"]["dataset_miou"], places)
        else:
            scores["camvid"] = result["metrics"]["image_miou"], result["intervals"]["image_miou"]
    return scores


def cell(values):
    if not values:
        return "-"
    if len(values) > 1:
        numbers = [100 * value for value, _ in values]
        return f"{statistics.mean(numbers):.1f} ± {statistics.stdev(numbers):.1f}"
    value, ends = values[0]
    return f"{100 * value:.1f}" + (f" [{100 * ends[0]:.1f}, {100 * ends[1]:.1f}]" if ends else "")


def print_table(rows, seeds):
    kind = "value [95 % interval]" if len(seeds) == 1 else "mean ± standard deviation"
    print(f"Seeds {', '.join(map(str, seeds))}; {kind}, in percent.\n")
    print("| system | " + " | ".join(COLUMNS.values()) + " | minutes |")
    print("| --- |" + " --- |" * (len(COLUMNS) + 1))
    for name, runs, minutes in rows:
        cells = [cell([scores[column] for scores in runs if column in scores]) for column in COLUMNS]
        print(f"| {name} | " + " | ".join(cells) + f" | {statistics.mean(minutes):.0f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True, metavar="FOLDER")
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    objectives.add_arguments(parser, pathlib.Path("runs/photographs"))
    parser.set_defaults(jobs=2, seeds=[0])
    args = parser.parse_args()
    args.data, args.out = args.data.resolve(), args.out.resolve()
    args.set = ["training.threads=1", *args.set]
    os.environ["SHARDS"] = str(args.data / "flickr8k")
    if not VOCABULARY.exists():
        command = ["build/bin/tessera-data", "train-sentencepiece", "--source", "webdataset", "--set", f"path={args.data}/flickr8k/train-*.tar",
                   "caption_lines=true", "--vocab-size", "4000", "--out", VOCABULARY]
        subprocess.run(command, cwd=ROOT, check=True)
    args.out.mkdir(parents=True, exist_ok=True)
    rows, places = [], mentioned(args.data)
    for by in dict.fromkeys(SYSTEMS[name] for name in args.systems):
        args.suite = args.out / f"suite_{by or 'no_masks'}.yaml"
        args.suite.write_text(json.dumps(suite(args.data, by), indent=2) + "\n")  # JSON is YAML
        names = [name for name in args.systems if SYSTEMS[name] == by]
        for config, runs in objectives.compare([ROOT / f"configs/photographs/{name}.yaml" for name in names], args):
            scores = [scores_of(args.out / config / f"seed{seed}", places) for seed in args.seeds]
            rows.append((config.removeprefix("photographs_"), scores, [minutes for _, minutes in runs]))
    print_table(rows, args.seeds)


if __name__ == "__main__":
    main()
