#!/usr/bin/env python3
"""Trains each configuration with each seed, evaluates every run on one suite, and prints a Markdown table of means and deviations.

  scripts/compare/objectives.py configs/shapes/clip.yaml configs/shapes/sparc.yaml --seeds 0 1 2 --out runs/compare

With --rival it also prints the differences from that configuration, with 95 % intervals from a paired bootstrap over test samples.
Complete runs are not trained again, and stopped runs resume from their last checkpoint. Needs only the standard library and the built
programs (scripts/setup.sh).
"""
import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys

import paired_test

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIFFERENCES = "Differences in points with 95 % intervals, by a paired bootstrap over test samples of the seeds' mean; bold: beyond chance."


def name_of(config):
    """Returns the name that the trainer gives a run: shapes_clip for configs/shapes/clip.yaml, mine for a mine.yaml outside of configs."""
    folder = config.resolve().parent
    return f"{folder.name}_{config.stem}" if folder.parent == ROOT / "configs" else config.stem


@dataclasses.dataclass
class Cell:
    """One row of a table: a configuration with overrides, trained once with each seed."""
    name: str
    config: pathlib.Path
    suite: pathlib.Path = None  # None: the suite that all rows share
    set: tuple = ()             # KEY=VALUE overrides for the trainer
    evaluate_set: tuple = ()    # KEY=VALUE overrides for evaluate
    folder: str = None          # relative to --out; None: the configuration's name
    runs: list = dataclasses.field(default_factory=list)  # (metrics, minutes) of the run with each seed

    def evaluations(self, args):
        """Returns the folder with the results of each seed."""
        return [args.out.resolve() / (self.folder or name_of(self.config)) / f"seed{seed}" / "evaluation" for seed in args.seeds]


def run(command, log, environment=None):
    with open(log, "w") as out:
        status = subprocess.run([str(c) for c in command], stdout=out, stderr=subprocess.STDOUT, cwd=ROOT, env=environment).returncode
    if status != 0:
        sys.exit(f"{' '.join(str(c) for c in command)}\nfailed with exit code {status}; its output is in {log}")


def model_of(folder):
    """Returns the run's folder, or its last stage's folder if the run has stages."""
    stages = sorted(folder.glob("*/checkpoints"), key=lambda path: path.stat().st_mtime)
    return stages[-1].parent if stages else folder


def overridden(command, overrides):
    return [*command, *(word for override in overrides for word in ("--set", override))]


def check_settings(path, settings):
    """Writes the settings of a run into its folder. Exits if a run with other settings is there, whose results would be taken for its own."""
    if path.exists() and path.read_text() != settings:
        sys.exit(f"{path.parent} has a run with other settings (see {path.name}): choose another --out, or delete that folder")
    path.write_text(settings)


def train_and_evaluate(cell, seed, args):
    """Returns the metrics of one run, {task.metric: value}, and the minutes that its training took."""
    folder = args.out / (cell.folder or name_of(cell.config)) / f"seed{seed}"
    results = folder / "evaluation" / "results.json"
    # Parallel runs share the cores, so each run gets one thread.
    environment = {"OMP_NUM_THREADS": "1", **os.environ} if args.jobs > 1 else None
    folder.mkdir(parents=True, exist_ok=True)
    settings = [f"seed={seed}", *args.set, *cell.set]
    suite = cell.suite or args.suite
    check_settings(folder / "settings.txt", "\n".join([name_of(cell.config), *settings, str(suite and suite.name), *cell.evaluate_set]))
    if not results.exists():
        train = [ROOT / "build/bin/trainer", "--config", cell.config.resolve(), "--resume", "auto"]
        measure = [ROOT / "build/bin/evaluate", "--suite", suite, "--out", folder / "evaluation"]
        run(overridden(train, [*settings, f"run.folder={folder}"]), folder / "trainer.out", environment)
        run(overridden([*measure, "--checkpoint", model_of(folder)], cell.evaluate_set), folder / "evaluate.out", environment)
    return metrics_of(json.loads(results.read_text())), minutes_of(folder)


def minutes_of(folder):
    """Returns the minutes that the run, or all of its stages, trained. Time after a stop is not counted."""
    logs = [[json.loads(line) for line in log.read_text().splitlines()] for log in folder.glob("**/metrics.jsonl")]
    return sum(max(row.get("seconds", 0) for row in rows) for rows in logs) / 60  # rows of evaluations have no time


def metrics_of(results):
    """Returns {task.metric: value}. If the suite has a task twice, the second one is named task_2."""
    turns, metrics = {}, {}
    for result in results["tasks"]:
        task = result["task"]
        turns[task] = turns.get(task, 0) + 1
        if turns[task] > 1:
            task += f"_{turns[task]}"
        for name, value in result["metrics"].items():
            metrics[f"{task}.{name}"] = value
    return metrics


def run_cells(cells, args):
    """Trains and evaluates each cell with each seed, and stores the results in `runs`. Uses args.seeds, suite, out, set and jobs."""
    args.out = args.out.resolve()

    def run_one(pair):
        cell, seed = pair
        result = train_and_evaluate(cell, seed, args)
        print(f"{cell.name} seed {seed}: " + ", ".join(f"{k} {v:.4f}" for k, v in result[0].items()), file=sys.stderr)
        return result

    pairs = [(cell, seed) for cell in cells for seed in args.seeds]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(run_one, pairs))
    for i, cell in enumerate(cells):
        cell.runs = results[i * len(args.seeds):(i + 1) * len(args.seeds)]


def rows_of(cells):
    """Returns [(name, [(metrics, minutes) for each seed])]."""
    return [(cell.name, cell.runs) for cell in cells]


def variant(path, extends, **settings):
    """Writes a configuration that extends others by `settings`, as JSON, which is valid YAML. Returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"extends": [str(base) for base in extends], **settings}, indent=2) + "\n")
    return path


def mean_cell(runs, column, counts=()):
    """Returns the mean ± standard deviation of a column over runs, in percent unless the column is in `counts`."""
    values = [(1 if column in counts else 100) * metrics[column] for metrics, _ in runs if column in metrics]
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.1f} ± {deviation:.1f}" if values else "-"


def table(rows, columns, headings=None, counts=()):
    lines = ["| configuration | " + " | ".join(headings or columns) + " | minutes |", "| --- |" + " --- |" * (len(columns) + 1)]
    for name, runs in rows:
        minutes = statistics.mean(minutes for _, minutes in runs)
        lines.append(f"| {name} | " + " | ".join(mean_cell(runs, column, counts) for column in columns) + f" | {minutes:.1f} |")
    return "\n".join(lines)


def add_arguments(parser, out):
    """Adds the options that all comparisons share."""
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--out", type=pathlib.Path, default=out)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every run, like the trainer's --set")
    parser.add_argument("--jobs", type=int, default=1, help="number of runs in parallel")


def means_of(args, counts):
    return f"Mean ± standard deviation over seeds {', '.join(map(str, args.seeds))}, in percent{' except counts' if counts else ''}."


def print_table(rows, args, columns, headings=None, counts=()):
    """Prints the table. `counts` names the columns that are counts instead of shares."""
    print(means_of(args, counts) + "\n")
    print(table(rows, columns, headings, counts))


def against(cell, rival, args):
    """Returns a function that maps a column to the terms of paired_test.difference() for `cell` minus `rival`."""
    return lambda column: [(1, cell.evaluations(args), column), (-1, rival.evaluations(args), column)]


def print_differences(rows, columns, headings=None):
    """rows: (name, function that maps a column to the terms of paired_test.difference())."""
    print(f"\n{DIFFERENCES}\n")
    print("| difference | " + " | ".join(headings or columns) + " |")
    print("| --- |" + " --- |" * len(columns))
    for name, terms in rows:
        print(f"| {name} | " + " | ".join(paired_test.cell(terms(column)) for column in columns) + " |")


def print_side_by_side(cells, rival, args, columns, compared, counts=()):
    """Prints a table with one row per metric. Its first columns are the systems, the others the differences from `rival`, for the metrics
    in `compared`. columns: {metric: heading}."""
    others = [cell for cell in cells if cell is not rival]
    print(f"{means_of(args, counts)} {DIFFERENCES}\n")
    print("| | " + " | ".join([cell.name for cell in cells] + [f"{cell.name} - {rival.name}" for cell in others]) + " |")
    print("| --- |" + " --- |" * (len(cells) + len(others)))
    for column, heading in columns.items():
        differences = [paired_test.cell(against(cell, rival, args)(column)) if column in compared else "" for cell in others]
        print(f"| {heading} | " + " | ".join([mean_cell(cell.runs, column, counts) for cell in cells] + differences) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="+", type=pathlib.Path, help="configurations to compare")
    parser.add_argument("--suite", type=pathlib.Path, default=ROOT / "configs/suites/shapes.yaml")
    parser.add_argument("--columns", nargs="+", help="task.metric names (default: all metrics of the suite)")
    parser.add_argument("--rival", metavar="CONFIG", help="name of the configuration that the others are compared with, sample by sample")
    add_arguments(parser, pathlib.Path("runs/compare"))
    args = parser.parse_args()

    cells = [Cell(name_of(config), config) for config in args.configs]
    rivals = [cell for cell in cells if cell.name == args.rival]
    if args.rival and not rivals:
        parser.error(f"--rival {args.rival} is none of {', '.join(cell.name for cell in cells)}")
    run_cells(cells, args)
    columns = args.columns or list(cells[0].runs[0][0])
    print_table(rows_of(cells), args, columns)
    if rivals:
        others = [cell for cell in cells if cell is not rivals[0]]
        print_differences([(f"{cell.name} - {args.rival}", against(cell, rivals[0], args)) for cell in others], columns)


if __name__ == "__main__":
    main()
