#!/usr/bin/env python3
"""Trains DINO with and without SPARO on CIFAR-10 shards and prints the teacher's k-NN accuracy at the start, halfway and at the end.

  scripts/compare/dino_cifar.py DIR --out runs/dino_cifar        # DIR holds train-00000.tar ... and test-00000.tar

Complete runs are not trained again, so a stopped comparison can be continued. At the end a linear probe is fitted on each teacher's
features. Needs only the standard library and the built programs (scripts/setup.sh).
"""
import argparse
import json
import pathlib

from objectives import ROOT, name_of, run


def metric(results, task, name="top1"):
    return 100 * next(result["metrics"][name] for result in results if result["task"] == task)


def train_and_evaluate(config, args):
    """Returns the teacher's k-NN accuracy by step, and the accuracy of a linear probe at the end."""
    folder = args.out / name_of(config)
    folder.mkdir(parents=True, exist_ok=True)
    shards = sorted(args.data.glob("train-*.tar"))
    source = "{name: webdataset, path: [" + ", ".join(map(str, shards)) + "]}"
    overrides = [f"run.folder={folder}", f"data.train={source}", f"data.validation.path={args.data}/test-00000.tar", *args.set]
    command = [args.bin / "trainer", "--config", config, "--resume", "auto"]
    for override in overrides:
        command += ["--set", override]
    run(command, folder / "trainer.out")
    knn = {}
    for file in sorted((folder / "evaluation").glob("step_*.json")):
        measured = json.loads(file.read_text())
        knn[measured["step"]] = metric(measured["results"], "knn")
    last = max(folder.glob("checkpoints/step_*"))
    probe = folder / "linear_probe"
    if not (probe / "results.json").exists():
        run([args.bin / "evaluate", "--checkpoint", last / "teacher.safetensors", "--task", "linear_probe", "--out", probe],
            folder / "evaluate.out")
    return knn, metric(json.loads((probe / "results.json").read_text())["tasks"], "linear_probe")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path, help="folder with the shards")
    parser.add_argument("--configs", nargs="+", type=pathlib.Path,
                        default=[ROOT / "configs/cifar10/dino.yaml", ROOT / "configs/cifar10/dino_sparo.yaml"])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/dino_cifar"))
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/bin", help="folder with the programs")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every run, like the trainer's --set")
    args = parser.parse_args()
    args.data, args.out, args.bin = args.data.resolve(), args.out.resolve(), args.bin.resolve()

    rows = [(name_of(config), *train_and_evaluate(config.resolve(), args)) for config in args.configs]
    steps = sorted(rows[0][1])
    print("k-NN (k = 20) and linear probe on the teacher's features, top-1 in percent.\n")
    print("| configuration | " + " | ".join(f"k-NN, step {step:,}" for step in steps) + " | linear probe |")
    print("| --- |" + " --- |" * (len(steps) + 1))
    for name, knn, probe in rows:
        print(f"| {name} | " + " | ".join(f"{knn[step]:.1f}" for step in steps) + f" | {probe:.1f} |")


if __name__ == "__main__":
    main()
