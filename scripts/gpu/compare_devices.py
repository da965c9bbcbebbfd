#!/usr/bin/env python3
"""Trains configurations for a few steps on the CPU, on the GPU and on the GPU with recorded steps, and compares the losses.

  scripts/gpu/compare_devices.py                                # all of configs/shapes
  scripts/gpu/compare_devices.py configs/shapes/sparc.yaml --trainer build/bin/trainer

Prints a Markdown table with each configuration's first loss and the largest relative differences from the CPU's losses. Configurations that
do not start on the CPU, for example because they need a downloaded model, are skipped with the reason. Exit code 0: all differences are
below --tolerance. Needs only the standard library.
"""
import argparse
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS = 8  # three rehearsals, the recording and a few replays
LIMIT = 120  # seconds of one run
RUNS = {"CPU": ("training.device=cpu",), "GPU": ("training.device=cuda",), "recorded": ("training.device=cuda", "training.cuda_graph=true")}


def losses_of(config, folder, settings, trainer):
    """Returns (the loss of every step, the last line of errors or None)."""
    stages = config.read_text().partition("\nstages:")[2].count("\n  - name:")
    command = [trainer, "--config", config]
    for setting in (f"run.folder={folder}", f"training.steps={STEPS}", *(f"stages.{i}.training.steps={STEPS}" for i in range(stages)),
                    "schedule.warmup_steps=2", "training.threads=1", "log.every_steps=1", "evaluation.tasks=[]", *settings):
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
    if len(losses) != len(expected):
        return float("inf")
    return max(abs(ours - theirs) / max(abs(theirs), 1e-3) for ours, theirs in zip(losses, expected))


def compare(config, folder, args):
    """Returns the cells of a configuration's row, and whether the row is as it should be."""
    found = {name: losses_of(config, folder / name, settings, args.trainer) for name, settings in RUNS.items()}
    expected, problem = found["CPU"]
    if problem:
        return [f"skipped: {problem}", "", ""], True
    cells, good = [f"{expected[0]:.6f}"], True
    for name in ("GPU", "recorded"):
        losses, problem = found[name]
        worst = difference(losses, expected)
        good &= problem is None and worst < args.tolerance
        cells.append(problem or f"{worst:.1e}")
    return cells, good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="*", type=pathlib.Path, help="default: all of configs/shapes")
    parser.add_argument("--trainer", type=pathlib.Path, default=ROOT / "build/bin/trainer")
    parser.add_argument("--tolerance", type=float, default=1e-3)
    parser.add_argument("--jobs", type=int, default=8, help="configurations at a time")
    args = parser.parse_args()
    configs = [path.resolve() for path in args.configs] or sorted((ROOT / "configs/shapes").glob("*.yaml"))
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        rows = list(pool.map(lambda config: compare(config, pathlib.Path(folder) / config.stem, args), configs))
    print("| configuration | first loss | GPU | recorded steps |\n| --- | ---: | ---: | ---: |")
    for config, (cells, good) in zip(configs, rows):
        print(f"| {config.stem} | " + " | ".join(cells) + (" |" if good else " **too large** |"))
    sys.exit(0 if all(good for _, good in rows) else 1)


if __name__ == "__main__":
    main()
