#!/usr/bin/env python3
"""Trains each configuration with each seed, evaluates every run on one suite, and prints a Markdown table of means and deviations.

  scripts/compare_objectives.py configs/shapes_clip.yaml configs/shapes_sparc.yaml --seeds 0 1 2 --out runs/compare

Complete runs are not trained again, so a stopped comparison can be continued. Needs only the standard library and the built programs
(scripts/setup.sh).
"""
import argparse
import concurrent.futures
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
        sys.exit(f"{' '.join(str(c) for c in command)}\nfailed with exit code {status}; its output is in {log}")


def model_of(folder):
    """The run's folder, or the last stage's folder if the run has stages."""
    stages = sorted(folder.glob("*/checkpoints"), key=lambda path: path.stat().st_mtime)
    return stages[-1].parent if stages else folder


def train_and_evaluate(config, seed, args):
    """Returns the metrics of one run, {task.metric: value}, and the minutes that its training took."""
    folder = args.out / config.stem / f"seed{seed}"
    results = folder / "evaluation" / "results.json"
    folder.mkdir(parents=True, exist_ok=True)
    if not results.exists():
        overrides = [f"seed={seed}", f"run.folder={folder}", *args.set]
        command = [ROOT / "build/bin/trainer", "--config", config, "--resume", "auto"]
        for override in overrides:
            command += ["--set", override]
        minutes = folder / "minutes"
        before = float(minutes.read_text()) if minutes.exists() else 0
        started = time.time()
        run(command, folder / "trainer.out")
        minutes.write_text(f"{before + (time.time() - started) / 60:.2f}")
        run([ROOT / "build/bin/evaluate", "--checkpoint", model_of(folder), "--suite", args.suite, "--out", folder / "evaluation"],
            folder / "evaluate.out")
    return metrics_of(json.loads(results.read_text())), float((folder / "minutes").read_text())


def metrics_of(results):
    """Returns {task.metric: value}; a task that occurs a second time in the suite is called task_2."""
    turns, metrics = {}, {}
    for result in results["tasks"]:
        task = result["task"]
        turns[task] = turns.get(task, 0) + 1
        if turns[task] > 1:
            task += f"_{turns[task]}"
        for name, value in result["metrics"].items():
            metrics[f"{task}.{name}"] = value
    return metrics


def compare(configs, args):
    """Returns [(configuration, [(metrics, minutes) of each seed])]; uses args.seeds, suite, out, set and jobs."""
    args.out = args.out.resolve()

    def run_one(pair):
        config, seed = pair
        result = train_and_evaluate(config.resolve(), seed, args)
        print(f"{config.stem} seed {seed}: " + ", ".join(f"{k} {v:.4f}" for k, v in result[0].items()), file=sys.stderr)
        return result

    pairs = [(config, seed) for config in configs for seed in args.seeds]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(run_one, pairs))
    count = len(args.seeds)
    return [(config.stem, results[i * count:(i + 1) * count]) for i, config in enumerate(configs)]


def table(rows, columns, headings=None, counts=()):
    lines = ["| configuration | " + " | ".join(headings or columns) + " | minutes |", "| --- |" + " --- |" * (len(columns) + 1)]
    for name, runs in rows:
        cells = []
        for column in columns:
            factor = 1 if column in counts else 100
            values = [factor * metrics[column] for metrics, _ in runs if column in metrics]
            deviation = statistics.stdev(values) if len(values) > 1 else 0.0
            cells.append(f"{statistics.mean(values):.1f} ± {deviation:.1f}" if values else "-")
        minutes = statistics.mean(minutes for _, minutes in runs)
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {minutes:.1f} |")
    return "\n".join(lines)


def add_arguments(parser, out):
    """Adds the options that all comparisons share."""
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--out", type=pathlib.Path, default=out)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every run, like the trainer's --set")
    parser.add_argument("--jobs", type=int, default=1, help="number of runs in parallel")


def print_table(rows, args, columns, headings=None, counts=()):
    """counts: columns that are counts, not shares."""
    print(f"Mean ± standard deviation over seeds {', '.join(map(str, args.seeds))}, in percent{' except counts' if counts else ''}.\n")
    print(table(rows, columns, headings, counts))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="+", type=pathlib.Path, help="configurations to compare")
    parser.add_argument("--suite", type=pathlib.Path, default=ROOT / "configs/suites/shapes.yaml")
    parser.add_argument("--columns", nargs="+", help="task.metric names (default: all metrics of the suite)")
    add_arguments(parser, pathlib.Path("runs/compare"))
    args = parser.parse_args()

    rows = compare(args.configs, args)
    print_table(rows, args, args.columns or list(rows[0][1][0][0]))


if __name__ == "__main__":
    main()
