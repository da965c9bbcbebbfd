"""Computes the difference between runs that were measured on the same test samples, with its 95 % interval.

The interval comes from a bootstrap over samples (Efron 1979; `evaluate --compare` does the same for two runs): 1,000 times, it draws as
many samples as there are, with replacement, and the same ones for every run. The interval holds the middle 95 % of the differences. With
several seeds, their means are compared. The interval shows how much a difference depends on the test samples; the table of scores has the
deviation over seeds. Needs only the standard library.
"""
import collections
import functools
import json
import random
import statistics
import sys

RESAMPLES = 1000


def outcomes_by_name(tasks):
    """Returns {task.metric: (mark, samples, outcomes)} of samples.json. A second task of the same name is named task_2."""
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
    """Returns, for each resample, the indices of the samples that it holds."""
    generator = random.Random(0)
    return [generator.choices(range(samples), k=samples) for _ in range(RESAMPLES)]


def by_sample(outcomes, samples):
    """Returns {group: (parts, wholes)}. `parts` and `wholes` hold one sum for every sample."""
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
    """Returns the metric, and then its value in every resample. The value is the mean over groups of sum(parts) / sum(wholes)."""
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
    """Returns the mean over seeds of what resampled() returns, and the marks of the samples that were measured."""
    marks, columns = set(), []
    for folder in folders:
        if metric not in outcomes_of(folder):
            sys.exit(f"{folder}/samples.json has no {metric}")
        mark, samples, outcomes = outcomes_of(folder)[metric]
        marks.add((mark, samples))
        columns.append(resampled(outcomes, samples))
    return [statistics.mean(values) for values in zip(*columns)], marks


def difference(terms):
    """Returns (value, low, high): the weighted sum of metrics and its interval. terms: (factor, folders with a samples.json, metric)."""
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
    """Returns text such as "+1.2 [0.3, 2.0]", in percent. It is bold if the interval does not contain 0."""
    value, low, high = (100 * number for number in difference(terms))
    text = f"{value:+.1f} [{low:.1f}, {high:.1f}]"
    return f"**{text}**" if low > 0 or high < 0 else text
