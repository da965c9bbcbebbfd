#!/usr/bin/env python3
"""Trains twice with a frozen image encoder, once with the encoder in every step and once from precomputed features (data.features), and
prints how far the two loss curves diverge and how much faster the second run is.

  scripts/compare/features.py [--configs shapes_clip shapes_text_group] [--steps 200] [--rounds 2]

Each configuration is first trained completely for --tower-steps steps. Then that run's image encoder is frozen, and everything else starts
from scratch. Live and cached runs take turns, --rounds times; pairs per second are medians over all steps except each run's first 10. Exit
code 1 if a loss differs by more than --at-most, relative to the live loss. Needs only the standard library and the built programs
(scripts/setup.sh).
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# For each configuration: patterns for the names of the image encoder's parameters, and the tokenizer's vocabulary settings.
CONFIGS = {
    "shapes_clip": ("[visual.conv1.*, visual.ln_*, visual.transformer.*]", ["tokenizer.model"]),
    "shapes_text_group": ("[visual.patch_embed.*, visual.pos_embed, visual.layers.*, visual.norm.*]", []),
}
FIRST_STEPS = 10  # the first steps of a run are not timed


def trainer(args, config, *words, **settings):
    command = [args.trainer, "--config", config, *words]
    vocabulary = {key: args.vocabulary for key in CONFIGS[config][1]}
    for key, value in {**args.settings, **vocabulary, **settings}.items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{config}: exit code {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def rows(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def compare(args, config, folder):
    """Prints a row and returns the largest relative difference of a loss."""
    tower = folder / "tower"
    trainer(args, config, **{"run.folder": tower, "training.steps": args.tower_steps})
    frozen = CONFIGS[config][0]
    settings = {"training.steps": args.steps, "log.every_steps": 1, "parameters.frozen": frozen, "start": f"{{weights: {tower}, parts: {frozen}}}",
                "data.loader.augmentation": "{crop: evaluation}"}
    cached = {**settings, "data.features": f"{{folder: {folder / 'features'}, dtype: {args.dtype}}}"}
    began = time.monotonic()
    written = trainer(args, config, "--write-features", **cached)
    seconds = time.monotonic() - began
    pictures, size = re.search(r", ([\d,]+) images of (.+)$", written.strip()).groups()
    curves, speeds = {}, {"live": [], "cached": []}
    for number in range(args.rounds):
        for kind, given in (("live", settings), ("cached", cached)):
            run = folder / f"{kind}{number}"
            trainer(args, config, **{**given, "run.folder": run})
            speeds[kind] += [row["samples_per_second"] for row in rows(run)[FIRST_STEPS:]]
            curves[kind] = [row["loss"] for row in rows(run)]
    apart = max(abs(a - b) / abs(b) for a, b in zip(curves["cached"], curves["live"], strict=True))
    live, quick = statistics.median(speeds["live"]), statistics.median(speeds["cached"])
    print(f"| {config} | {curves['live'][0]:.4f}, {curves['live'][-1]:.4f} | {apart:.1e} | {live:,.0f} | {quick:,.0f} | "
          f"{quick / live:.2f} | {pictures} images of {size} in {seconds:.0f} s |", flush=True)
    return apart


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainer", type=pathlib.Path, default=ROOT / "build/bin/trainer")
    parser.add_argument("--configs", nargs="+", default=list(CONFIGS), choices=list(CONFIGS))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--tower-steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="settings for all runs")
    parser.add_argument("--at-most", type=float, default=1e-3, metavar="SHARE")
    args = parser.parse_args()
    args.trainer = args.trainer.resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        args.vocabulary = folder / "shapes.model"
        subprocess.run([args.trainer.parent / "tessera-data", "train-sentencepiece", "--source", "shapes", "--vocab-size", "120", "--out", args.vocabulary],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        args.settings = {"evaluation.tasks": "[]", "checkpoint.every_steps": 0}
        args.settings.update(word.split("=", 1) for word in args.set)
        print(f"{args.steps} steps, features as {args.dtype}\n")
        print("| configuration | loss, first and last | largest difference | live, pairs/s | cached, pairs/s | ratio | features |\n"
              "| --- | --- | ---: | ---: | ---: | ---: | --- |", flush=True)
        apart = [compare(args, config, folder / config) for config in args.configs]
    sys.exit(1 if max(apart) > args.at_most else 0)


if __name__ == "__main__":
    main()
