#!/usr/bin/env python3
"""Trains configurations for a few steps on the CPU, on the GPU and on the GPU with recorded steps, and compares the losses.

  scripts/gpu/compare_devices.py                                # all of configs/shapes
  scripts/gpu/compare_devices.py configs/shapes/sparc.yaml --trainer build/bin/trainer

Prints a Markdown table with each configuration's first loss on the CPU, and the largest relative differences from the CPU's losses in the
first two steps and in all steps. Configurations that need another model or precomputed features are skipped, and so are recorded steps if
the trainer refuses to record a configuration's steps. Exit code 0: at least one configuration was compared, nothing failed, and all
differences are small enough. Needs only the standard library.
"""
import argparse
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS = 8  # three rehearsals, the recording and a few replays
LIMIT = 120  # seconds of one run
# The largest accepted relative differences. In later steps FILIP's are larger, because its gradient goes only to the best patch and token:
# if two are nearly equal, rounding decides which one gets it.
EARLY, LATE = 2e-5, 5e-3
RUNS = {"CPU": ("training.device=cpu",), "GPU": ("training.device=cuda",), "recorded": ("training.device=cuda", "training.cuda_graph=true")}


def losses_of(config, folder, settings, trainer):
    """Returns (the loss of every step, the last line of errors or None)."""
    stages = len(re.findall(r"^  - .*name:", config.read_text().partition("\nstages:")[2], re.M))
    short = [f"{place}{key}" for place in ("", *(f"stages.{i}." for i in range(stages)))
             for key in (f"training.steps={STEPS}", "schedule.warmup_steps=2", "evaluation.tasks=[]")]
    command = [trainer, "--config", config]
    for setting in (f"run.folder={folder}", *short, "training.threads=1", "log.every_steps=1", *settings):
        command += ["--set", setting]
    try:
        done = subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return [], f"stopped after {LIMIT} s"
    if done.returncode != 0:
        return [], (done.stderr.strip() or "no message").splitlines()[-1]
    logs = sorted(folder.glob("**/metrics.jsonl"), key=lambda path: path.stat().st_mtime)
    rows = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    return [row["loss"] for row in rows if "loss" in row], None


def difference(losses, expected):
    """Returns the largest relative difference, or infinity if a loss is missing or not finite (null in the log)."""
    if len(losses) != len(expected) or None in losses:
        return float("inf")
    return max(abs(ours - theirs) / max(abs(theirs), 1e-3) for ours, theirs in zip(losses, expected))


def compare(config, folder, args):
    """Returns the cells of a configuration's row, and whether the row is as it should be: True, False, or None if it is skipped."""
    expected, problem = losses_of(config, folder / "CPU", RUNS["CPU"], args.trainer)
    if problem:
        skipped = "no such file or folder" in problem or "holds no features" in problem
        return [f"skipped: {problem}" if skipped else f"**{problem}**", "", ""], None if skipped else False
    cells, good = [f"{expected[0]:.6f}"], True
    for name in ("GPU", "recorded"):
        losses, problem = losses_of(config, folder / name, RUNS[name], args.trainer)
        if problem:
            refused = name == "recorded" and "training.cuda_graph: " in problem
            good &= refused
            cells.append("refused" if refused else f"**{problem}**")
            continue
        early, all_steps = difference(losses[:2], expected[:2]), difference(losses, expected)
        fits = early < EARLY and all_steps < LATE
        good &= fits
        cells.append(f"{early:.1e}, {all_steps:.1e}" if fits else f"**{early:.1e}, {all_steps:.1e}**")
    return cells, good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="*", type=pathlib.Path, help="default: all of configs/shapes")
    parser.add_argument("--trainer", type=pathlib.Path, default=ROOT / "build/bin/trainer")
    parser.add_argument("--jobs", type=int, default=8, help="configurations at a time")
    args = parser.parse_args()
    configs = [path.resolve() for path in args.configs] or sorted((ROOT / "configs/shapes").glob("*.yaml"))
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        rows = list(pool.map(lambda config: compare(config, pathlib.Path(folder) / config.stem, args), configs))
    print("| configuration | first loss | GPU: first two steps, all | recorded steps: the same |\n| --- | ---: | ---: | ---: |")
    for config, (cells, _) in zip(configs, rows):
        print(f"| {config.stem} | " + " | ".join(cells) + " |")
    outcomes = [good for _, good in rows]
    sys.exit(0 if True in outcomes and False not in outcomes else 1)


if __name__ == "__main__":
    main()
