#!/usr/bin/env python3
"""Trains each configuration with each seed, evaluates every run on one suite, and prints a Markdown table of means and deviations.

  scripts/compare_objectives.py configs/shapes_clip.yaml configs/shapes_sparc.yaml --seeds 0 1 2 --out runs/compare

Runs that are complete already are not trained again, so a stopped comparison goes on where it was. Only the standard library is
needed; the programs must be built (scripts/setup.sh).
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(command, log):
    with open(log, "w") as out:
        status = subprocess.run([str(c) for c in command], stdout=out, stderr=subprocess.STDOUT, cwd=ROOT).returncode
    if status != 0:
        sys.exit(f"{' '.join(str(c) for c in command)}\nfailed with exit code {status}; its output: {log}")


def train_and_evaluate(config, seed, args):
    """The metrics of one run, {task.metric: value}, and the minutes its training took."""
    folder = args.out / config.stem / f"seed{seed}"
    results = folder / "evaluation" / "results.json"
    folder.mkdir(parents=True, exist_ok=True)
    if not results.exists():
        overrides = [f"seed={seed}", f"run.folder={folder}", *args.set]
        command = [ROOT / "build/bin/trainer", "--config", config, "--resume", "auto"]
        for override in overrides:
            command += ["--set", override]
        started = time.time()
        run(command, folder / "trainer.out")
        (folder / "minutes").write_text(f"{(time.time() - started) / 60:.2f}")
        run([ROOT / "build/bin/evaluate", "--checkpoint", folder, "--suite", args.suite, "--out", folder / "evaluation"],
            folder / "evaluate.out")
    metrics = {}
    for result in json.loads(results.read_text())["tasks"]:
        for name, value in result["metrics"].items():
            metrics[f"{result['task']}.{name}"] = value
    return metrics, float((folder / "minutes").read_text())


def table(rows, columns):
    lines = ["| configuration | " + " | ".join(columns) + " | minutes |", "| --- |" + " --- |" * (len(columns) + 1)]
    for name, runs in rows:
        cells = []
        for column in columns:
            values = [metrics.get(column, float("nan")) for metrics, _ in runs]
            deviation = statistics.stdev(values) if len(values) > 1 else 0.0
            cells.append(f"{100 * statistics.mean(values):.1f} ± {100 * deviation:.1f}")
        minutes = statistics.mean(minutes for _, minutes in runs)
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {minutes:.1f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="+", type=pathlib.Path, help="configurations to compare")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--suite", type=pathlib.Path, default=ROOT / "configs/suites/shapes.yaml")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/compare"))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every run, as the trainer's --set")
    parser.add_argument("--columns", nargs="+", help="task.metric names (default: all that the suite gives)")
    args = parser.parse_args()
    args.out = args.out.resolve()

    rows = []
    for config in args.configs:
        runs = []
        for seed in args.seeds:
            runs.append(train_and_evaluate(config.resolve(), seed, args))
            print(f"{config.stem} seed {seed}: " + ", ".join(f"{k} {v:.4f}" for k, v in runs[-1][0].items()), file=sys.stderr)
        rows.append((config.stem, runs))
    columns = args.columns or list(rows[0][1][0][0])
    print(f"Mean ± standard deviation over seeds {', '.join(map(str, args.seeds))}, in percent.\n")
    print(table(rows, columns))


if __name__ == "__main__":
    main()
