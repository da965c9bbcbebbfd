"""The difference between runs that were measured on the same test samples, with its 95 % interval.

A bootstrap over samples: 1,000 times as many samples are drawn with replacement, the same ones for every run, and the middle 95 % of the
differences are the interval (Efron 1979; `evaluate --compare` does the same for two runs). Of several seeds the mean is compared. The
interval says how much a difference depends on the test samples; the deviation over seeds stands in the table of scores. Only the standard
library is needed.
"""
import collections
import functools
import json
import random
import statistics
import sys

RESAMPLES = 1000


def outcomes_by_name(tasks):
    """{task.metric: (mark, samples, outcomes)} of samples.json; a task's second turn counts as task_2, as in the table of scores."""
    turns, out = collections.Counter(), {}
    for task in tasks:
        turns[task["task"]] += 1
        turn = turns[task["task"]]
        name = task["task"] if turn == 1 else f"{task['task']}_{turn}"
        for metric, outcomes in task["metrics"].items():
            out[f"{name}.{metric}"] = task["mark"], task["samples"], outcomes
    return out


@functools.lru_cache(None)
def outcomes_of(folder):
    return outcomes_by_name(json.loads((folder / "samples.json").read_text())["tasks"])


@functools.lru_cache(None)
def draws(samples):
    """For each resample the samples that it holds."""
    generator = random.Random(0)
    return [generator.choices(range(samples), k=samples) for _ in range(RESAMPLES)]


def by_sample(outcomes, samples):
    """{group: (parts, wholes)}, each with a sum for every sample."""
    groups = {}
    count = len(outcomes["parts"])
    columns = (outcomes.get("group", [0] * count), outcomes.get("sample", range(count)), outcomes["parts"],
               outcomes.get("wholes", [1] * count))
    for group, sample, part, whole in zip(*columns):
        parts, wholes = groups.setdefault(group, ([0] * samples, [0] * samples))
        parts[sample] += part
        wholes[sample] += whole
    return groups


def resampled(outcomes, samples):
    """The metric, and its value in every resample: the mean over groups of the sum of parts over that of wholes."""
    values = [[] for _ in range(RESAMPLES + 1)]
    for parts, wholes in by_sample(outcomes, samples).values():
        same = len(set(wholes)) == 1
        for place, draw in enumerate([range(samples), *draws(samples)]):
            whole = wholes[0] * samples if same else sum(map(wholes.__getitem__, draw))
            if whole > 0:
                values[place].append(sum(map(parts.__getitem__, draw)) / whole)
    return [statistics.mean(ratios) if ratios else float("nan") for ratios in values]


@functools.lru_cache(None)
def resampled_mean(folders, metric):
    """The same of several seeds' mean, and the marks of the samples that were measured."""
    marks, columns = set(), []
    for folder in folders:
        if metric not in outcomes_of(folder):
            sys.exit(f"{folder}/samples.json has no {metric}")
        mark, samples, outcomes = outcomes_of(folder)[metric]
        marks.add((mark, samples))
        columns.append(resampled(outcomes, samples))
    return [statistics.mean(values) for values in zip(*columns)], marks


def difference(terms):
    """terms: (factor, folders with a samples.json, metric); their sum and its interval: (value, low, high)."""
    marks, columns = set(), []
    for factor, folders, metric in terms:
        values, measured = resampled_mean(tuple(folders), metric)
        marks |= measured
        columns.append([factor * value for value in values])
    if len(marks) > 1:
        sys.exit("the runs were measured on different samples: " + ", ".join(str(term[1][0]) for term in terms))
    value, *drawn = [sum(values) for values in zip(*columns)]
    drawn.sort()
    return value, drawn[round(0.025 * (RESAMPLES - 1))], drawn[round(0.975 * (RESAMPLES - 1))]


def cell(terms):
    """"+1.2 [0.3, 2.0]" in percent; bold where the interval does not hold 0."""
    value, low, high = (100 * number for number in difference(terms))
    text = f"{value:+.1f} [{low:.1f}, {high:.1f}]"
    return f"**{text}**" if low > 0 or high < 0 else text
