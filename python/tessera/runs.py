"""Reads run folders into a table."""
from __future__ import annotations

import json
import os
import pathlib
import re
from typing import Any, Union

__all__ = ["read_runs"]


def read_runs(*folders: Union[str, os.PathLike]) -> Any:
    """Returns the results of runs, one row per run.

    folders  run folders, or folders that contain some at any depth; default: runs
    returns  a pandas.DataFrame if pandas is installed, otherwise a list of dicts. Columns: name and folder; from the last row of the log
             step, epoch, samples, loss and its terms (loss_global ...), lr, samples_per_second, seconds; from the newest evaluation
             with the task TASK.METRIC, or TASK_2.METRIC for a second task of that name. Values that a run does not have are missing (NaN)
    raises   ValueError if a folder contains no run

    >>> read_runs("no/such/folder")
    Traceback (most recent call last):
    ValueError: no/such/folder: no run in it: none of its folders has a metrics.jsonl
    """
    rows = []
    for folder in folders or ("runs",):
        found = sorted(log.parent for log in pathlib.Path(folder).rglob("metrics.jsonl"))
        if not found:
            raise ValueError(f"{os.fspath(folder)}: no run in it: none of its folders has a metrics.jsonl")
        rows += [_row(run) for run in found]
    try:
        import pandas
    except ImportError:
        return rows
    return pandas.DataFrame(rows)


def _row(run: pathlib.Path) -> dict[str, Any]:
    row: dict[str, Any] = {"name": run.name, "folder": str(run), **_last_row(run / "metrics.jsonl")}
    in_training = sorted((run / "evaluation").glob("step_*.json"), key=lambda file: int(re.sub(r"\D", "", file.stem) or 0))
    files = [*in_training[-1:], *(file for folder in ("evaluation", "evaluation-*", "mteb") for file in run.glob(f"{folder}/results.json"))]
    for results in sorted((json.loads(file.read_text(encoding="utf-8")) for file in files), key=_age):
        row.update(_scores(results))
    return row


def _age(results: dict[str, Any]) -> tuple[float, str]:
    """A key that sorts evaluations: first those of older checkpoints, then those that were made earlier."""
    step = results.get("step")
    return step if isinstance(step, int) else float("inf"), results.get("date", "")


def _last_row(log: pathlib.Path) -> dict[str, Any]:
    # The last line may be incomplete if the run was killed.
    for line in reversed(log.read_text(encoding="utf-8").splitlines()):
        try:
            values = json.loads(line)
        except json.JSONDecodeError:
            continue
        if "loss" in values:
            kept = ("step", "epoch", "samples", "loss", "lr", "samples_per_second", "seconds")
            return {**{key: values[key] for key in kept if key in values}, **values.get("terms", {})}
    return {}


def _scores(results: dict[str, Any]) -> dict[str, float]:
    scores: dict[str, float] = {}
    times: dict[str, int] = {}
    for result in results.get("tasks", results.get("results", [])):  # as written by evaluate, or in training
        task = result["task"]
        times[task] = times.get(task, 0) + 1
        name = task if times[task] == 1 else f"{task}_{times[task]}"
        scores.update({f"{name}.{metric}": value for metric, value in result.get("metrics", {}).items()})
    return scores
