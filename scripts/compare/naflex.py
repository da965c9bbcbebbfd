#!/usr/bin/env python3
"""Compares training speed on images with native aspect ratios (NaFlex) and on square images with the same number of patches.

  scripts/compare/naflex.py [--patches 64] [--aspect 2.5] [--steps 60] [--rounds 3]

Three runs of configs/shapes/naflex.yaml take turns, each on built-in images with at most --patches patches of 8 x 8: squares as pixels, the
same squares as sequences of patches (without padding), and images of many shapes as sequences (packed, because their lengths differ).
Images per second are medians over all steps except each run's first 10. Patches per second are images per second times the mean
number of patches of an image, which the script computes from the shapes. `wait` is the share of time that steps waited for data. Needs
only the standard library and the built programs (scripts/setup.sh).
"""
import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATCH = 8
FIRST_STEPS = 10  # the first steps of a run are not timed


def grid(height, width, most):
    """Returns the rows and columns at the largest scale with at most `most` patches. There, one side is a multiple of the patch size."""
    grids = [(1, 1)]
    for side in range(1, most + 1):
        grids += [(side, math.ceil(side * width / height)), (math.ceil(side * height / width), side)]
    return max((each for each in grids if math.prod(each) <= most), key=math.prod)


def mean_patches(most, aspect):
    """Returns the mean number of patches for images whose aspect ratio is uniform between 1 and `aspect`."""
    side, steps = 1000, 200
    longer = [round(side * (1 + (aspect - 1) * (i + 0.5) / steps)) for i in range(steps)]
    return statistics.mean(math.prod(grid(side, each, most)) for each in longer)


def train(args, run, aspect, mode):
    side = math.isqrt(args.patches) * PATCH
    settings = {"run.folder": run, "training.steps": args.steps, "log.every_steps": 1, "evaluation.tasks": "[]", "checkpoint.every_steps": 0,
                "tokenizer.model": args.vocabulary, "data.train.aspect": aspect, "data.loader.resolution": "[]",
                "model.preprocessing.image_size": side, "model.preprocessing.resize_mode": mode,
                "model.preprocessing.max_patches": args.patches, **args.settings}
    command = [args.trainer, "--config", ROOT / "configs/shapes/naflex.yaml"]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{mode}, aspect {aspect}: exit code {done.returncode}:\n{done.stderr[-2000:]}")
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()][FIRST_STEPS:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainer", type=pathlib.Path, default=ROOT / "build/bin/trainer")
    parser.add_argument("--patches", type=int, default=64, help="a square number")
    parser.add_argument("--aspect", type=float, default=2.5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="settings for all runs")
    args = parser.parse_args()
    if math.isqrt(args.patches) ** 2 != args.patches or args.steps <= FIRST_STEPS:
        parser.error(f"--patches must be a square number, --steps more than {FIRST_STEPS}")
    args.settings = dict(word.split("=", 1) for word in args.set)
    kinds = {"squares, pixels": (1.0, "squash"), "squares, sequences": (1.0, "naflex"),
             f"up to {args.aspect} : 1, sequences": (args.aspect, "naflex")}
    rows = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        args.vocabulary = folder / "shapes.model"
        subprocess.run([args.trainer.parent / "tessera-data", "train-sentencepiece", "--source", "shapes", "--vocab-size", "120", "--out", args.vocabulary],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for number in range(args.rounds):
            for place, (kind, (aspect, mode)) in enumerate(kinds.items()):
                rows[kind] += train(args, folder / f"run{number}_{place}", aspect, mode)
    print("| images | patches of an image | images/s | patches/s | of squares | wait |\n| --- | ---: | ---: | ---: | ---: | ---: |")
    base = None
    for kind, (aspect, _) in kinds.items():
        speed = statistics.median(row["samples_per_second"] for row in rows[kind])
        patches = mean_patches(args.patches, aspect)
        base = base or speed * patches
        wait = statistics.median(row["wait_share"] for row in rows[kind])
        print(f"| {kind} | {patches:.1f} | {speed:,.0f} | {speed * patches:,.0f} | {speed * patches / base:.2f} | {100 * wait:.0f}% |")


if __name__ == "__main__":
    main()
