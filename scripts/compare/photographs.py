#!/usr/bin/env python3
"""Trains systems on small photographs, evaluates every run, and prints a Markdown table: retrieval both ways and K-precision
on the test photographs, and segmentation on two other data sets whose class names occur in the captions.

  scripts/compare/photographs.py --data FOLDER                        # eight systems, 400 steps
  scripts/compare/photographs.py --data FOLDER --long                 # six systems, 4,800 steps, and differences from CLIP
  scripts/compare/photographs.py --data FOLDER --long --systems clip  # one of them
  scripts/compare/photographs.py --data FOLDER --tune                 # CLIP with several augmentations and regularizers, 4,800 steps

The folder --data holds three folders of WebDataset shards train-*.tar and test-*.tar: flickr8k with KEY.jpg and KEY.txt (one caption per
line); camvid and coco_mini with KEY.jpg, KEY.mask.png and a classes.txt. With one seed the table has 95 % intervals from a bootstrap over
samples, with several seeds means and deviations.

--tune trains CLIP on the training photographs without the last shard of 1,000 or fewer, and evaluates it on that shard. --long adds the
settings in configs/parts/photographs_long.yaml to every system.

Complete runs are not trained again, and stopped runs resume from their last checkpoint. Long runs can be made in parts: `timeout 2h
scripts/compare/photographs.py ...` stops all processes, the trainers save their state, and the same command resumes. Needs only the
standard library and the built programs (scripts/setup.sh).
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
PATCHES, GROUPS = {"by": "patches"}, {"by": "groups"}
# For each system: the options of the segmentation task. None: no segmentation, because embeddings and patches have different widths.
SYSTEMS = {"clip": PATCHES, "sparc": PATCHES, "filip": PATCHES, "clip_filip": PATCHES, "pyramidclip": PATCHES, "text_group": GROUPS,
           "sparo": None, "stair": None}
LONG_SYSTEMS = {"clip": PATCHES, "sparc": PATCHES, "sparo": None, "pyramid_summaries": PATCHES, "stair": None,
                "flair": {"patches": "conditioned"}}
LONG_STEPS = 4800  # also of --tune
# STAIR's and FLAIR's steps cannot be recorded. STAIR's weights grow over half of the run, as in the configuration.
LONG_SETTINGS = {"stair": (f"objective.lambda_growth_steps={LONG_STEPS // 2}", "training.cuda_graph=false"),
                 "flair": ("training.cuda_graph=false",)}
# What --tune compares: settings in addition to those of configs/photographs/clip.yaml.
CROPS = "data.loader.augmentation.scale=[0.35, 1.0]"
COLORS = "data.loader.augmentation.color_jitter.probability=0.8"
DROP_PATH = "model.image.encoder.drop_path=0.1"
WEIGHT_DECAY = "optimizer.weight_decay=0.5"
PATCH_DROPOUT = "model.image.encoder.patch_dropout=0.5"
TUNING = {
    "as with 400 steps": (),
    "crops of 35 to 100%": (CROPS,),
    "color jitter": (COLORS,),
    "drop path 0.1": (DROP_PATH,),
    "weight decay 0.5": (WEIGHT_DECAY,),
    "half of the patches dropped": (PATCH_DROPOUT,),
    "crops and drop path 0.1": (CROPS, DROP_PATH),
    "crops and half of the patches dropped": (CROPS, PATCH_DROPOUT),
    "crops, drop path 0.1 and weight decay 0.5": (CROPS, DROP_PATH, WEIGHT_DECAY),
}
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
# The columns in which systems are compared with CLIP, named as in paired_test.py.
RETRIEVAL = {f"retrieval.{column}": heading for column, heading in COLUMNS.items() if "recall" in column}
COMPARED = {**RETRIEVAL, "k_precision.k_precision": "K-P", "k_precision.k_precision_na": "K-Pna"}
RETRIEVAL_TASK = {"name": "retrieval", "topk": [1, 5, 10]}


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


def flickr8k(path):
    return {"name": "webdataset", "path": str(path), "caption_lines": True}


def suite(data, segmentation):
    """Returns the evaluation suite for a system with these options of the segmentation task."""
    lexicon = str(ROOT / "configs/lexicons/nouns_adjectives_small.txt")
    tasks = [dict(RETRIEVAL_TASK), {"name": "k_precision", "lexicon": lexicon}]
    if segmentation and segmentation.get("patches") == "conditioned":
        tasks[0]["similarity"] = "conditioned"
    for name in ("camvid", "coco_mini") if segmentation else ():
        source = {"name": "webdataset", "path": str(data / name / "test-*.tar"), "classes": str(data / name / "classes.txt")}
        if name == "coco_mini":
            source["background_class"] = COCO_BACKGROUND
        names = [CAMVID.get(label, label) if name == "camvid" else label for label in classes_of(data, name)]
        tasks.append({"name": "segmentation", **segmentation, "source": source, "classes": names})
    return {"source": flickr8k(data / "flickr8k/test-*.tar"), "tasks": tasks}


def write_suite(name, content, args):
    path = args.out / f"suites/{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n")  # JSON is YAML
    return path


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


def make_vocabulary(args):
    command = ["build/bin/tessera-data", "train-sentencepiece", "--source", "webdataset", "--set", f"path={args.data}/flickr8k/train-*.tar",
               "caption_lines=true", "--vocab-size", "4000", "--out", VOCABULARY]
    if not VOCABULARY.exists():
        subprocess.run(command, cwd=ROOT, check=True)


def with_summaries(args):
    """Returns a folder with the training photographs in seven shards and with a summary of each photograph's captions."""
    folder = args.out / "shards"
    command = ["build/bin/tessera-data", "summarize", "--source", "webdataset", "--set", f"path={args.data}/flickr8k/train-*.tar",
               "caption_lines=true", "--name", "train", "--out", folder]
    if not (folder / "train.json").exists():
        subprocess.run(command, cwd=ROOT, check=True)
    return folder


def cell_of(name, segmentation, args):
    """Returns the table's row of one system."""
    config, settings = ROOT / f"configs/photographs/{name}.yaml", ()
    if args.long:
        config = objectives.variant(args.out / f"configs/{name}.yaml", [config, ROOT / "configs/parts/photographs_long.yaml"])
        settings = (f"data.train.path={with_summaries(args)}/train-*.tar", *LONG_SETTINGS.get(name, ()))
    return objectives.Cell(name, config, write_suite(name, suite(args.data, segmentation), args), settings, folder=f"photographs_{name}")


def print_leads(cells, columns, args):
    """Prints the differences of all cells from the first one."""
    first, *others = cells
    rows = [(f"{cell.name} - {first.name}", objectives.against(cell, first, args)) for cell in others]
    objectives.print_differences(rows, list(columns), list(columns.values()))


def compare(args):
    systems = LONG_SYSTEMS if args.long else SYSTEMS
    cells = [cell_of(name, systems[name], args) for name in args.systems or systems]
    objectives.run_cells(cells, args)
    places, rows = mentioned(args.data), []
    for cell in cells:
        scores = [scores_of(folder.parent, places) for folder in cell.evaluations(args)]
        rows.append((cell.name, scores, [minutes for _, minutes in cell.runs]))
    print_table(rows, args.seeds)
    if args.long and cells[0].name == "clip" and len(cells) > 1:
        print_leads(cells, COMPARED, args)


def tune(args):
    """Compares the settings in TUNING by retrieval on the last shard of training photographs, without the test photographs."""
    shards = with_summaries(args)
    held_out = write_suite("tuning", {"source": flickr8k(shards / "train-00006.tar"), "tasks": [RETRIEVAL_TASK]}, args)
    settings = (f"data.train.path={shards}/train-{{00000..00005}}.tar",)
    clip = ROOT / "configs/photographs/clip.yaml"
    cells = [objectives.Cell(name, clip, held_out, (*settings, *more), folder=f"tuning/{name.replace(' ', '_')}")
             for name, more in TUNING.items()]
    objectives.run_cells(cells, args)
    objectives.print_table(objectives.rows_of(cells), args, list(RETRIEVAL), list(RETRIEVAL.values()))
    print_leads(cells, RETRIEVAL, args)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True, metavar="FOLDER")
    parser.add_argument("--systems", nargs="+", choices=list(dict.fromkeys([*SYSTEMS, *LONG_SYSTEMS])), metavar="NAME", help="default: all")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--long", action="store_true", help="twelve times as many steps, and a paired comparison with CLIP")
    mode.add_argument("--tune", action="store_true", help="compare augmentations and regularizers on CLIP")
    objectives.add_arguments(parser, None)
    parser.set_defaults(jobs=2, seeds=[0])
    args = parser.parse_args()
    unknown = set(args.systems or ()) - set(LONG_SYSTEMS if args.long else SYSTEMS)
    if unknown:
        parser.error(f"{', '.join(unknown)}: {'not' if args.long else 'only'} trained with --long")
    args.data = args.data.resolve()
    args.out = (args.out or pathlib.Path("runs/photographs_long" if args.long or args.tune else "runs/photographs")).resolve()
    steps = [f"training.steps={LONG_STEPS}"] if args.long or args.tune else []
    args.set = ["training.threads=1", *steps, *args.set]
    os.environ["SHARDS"] = str(args.data / "flickr8k")
    make_vocabulary(args)
    (tune if args.tune else compare)(args)


if __name__ == "__main__":
    main()
