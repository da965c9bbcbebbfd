#!/usr/bin/env python3
"""Measures the time and memory of `evaluate --suite datacomp` beside CLIP_benchmark, on the same made-up data sets in one run.

The script writes the data sets that both read, 37 of DataComp's 40 (without WinoGAViL, FairFace and UTKFace), as datacomp_scores.py
does, and an OpenCLIP model with random weights. Then it runs the two sides in turns, each as a process that measures all data sets:
`evaluate`, and CLIP_benchmark's own command line in float32 with the same batch size. It prints the medians of the wall time, from the
start of the process to its end, and of the peak of the memory of the process and its workers (PSS, so that shared pages count once). It
also compares the accuracies and recalls of both sides, which shows that they have measured the same images and texts.

    python3 -m pip install open_clip_torch safetensors pyarrow             # into an environment with torch
    python3 -m pip install --no-deps clip_benchmark webdataset==0.2.31 braceexpand
    python3 -m pip install scikit-learn pandas "numpy<2.4"
    python3 scripts/compare/suite_cost.py --model ViT-B-32 --samples 200

Exit code: 0 if all scores differ by at most 1 / samples, 77 if a Python package is missing, 1 otherwise.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import types

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import datacomp_scores as fixtures  # exits with 77 if a package is missing

# Captioning is not measured; its module needs a package with Java programs.
sys.modules["clip_benchmark.metrics.captioning"] = types.ModuleType("captioning")
try:
    import clip_benchmark.cli
    import numpy as np
    import open_clip
except ImportError as error:
    print(f"compare/suite_cost.py: skipped, {error}")
    sys.exit(77)

NAME = "tessera-suite-cost"
SETS = [entry for entry in fixtures.SUITE if entry.get("task", {"name": "zero_shot"})["name"] in ("zero_shot", "retrieval")]
SCORES = ("acc1", "mean_per_class_recall", "image_retrieval_recall@1", "text_retrieval_recall@1")


def is_retrieval(entry: dict) -> bool:
    return entry.get("task", {}).get("name") == "retrieval"


def name_in_clip_benchmark(entry: dict) -> str:
    return fixtures.folder_of(entry["key"]).removeprefix("wds_").removesuffix("_test")


def write_fixtures(arguments: argparse.Namespace, folder: pathlib.Path) -> None:
    if arguments.model:
        fixtures.ARCHITECTURE = open_clip.get_model_config(arguments.model)
        if fixtures.ARCHITECTURE is None:
            sys.exit(f"compare/suite_cost.py: --model {arguments.model}: OpenCLIP has no such model")
    fixtures.IMAGE_SIDE = arguments.side
    random = np.random.default_rng(1)
    for entry in SETS:
        fixtures.write_set(entry, folder / "data", random, arguments.samples)
    fixtures.publish(fixtures.random_model(), folder / "model")
    (folder / "configs").mkdir()
    (folder / "configs" / f"{NAME}.json").write_text(json.dumps(fixtures.ARCHITECTURE))


def run_clip_benchmark(folder: pathlib.Path, workers: int) -> None:
    """Measures all data sets in this process."""
    open_clip.add_model_config(folder / "configs")
    out = folder / "clip_benchmark"
    out.mkdir(exist_ok=True)
    for task, retrieval in (("zeroshot_classification", False), ("zeroshot_retrieval", True)):
        names = ["wds/" + name_in_clip_benchmark(entry) for entry in SETS if is_retrieval(entry) == retrieval]
        sys.argv = ["clip_benchmark", "eval", "--dataset", *names, "--dataset_root", str(folder / "data" / "wds_{dataset_cleaned}_test"),
                    "--model", NAME, "--pretrained", str(folder / "model/open_clip_model.safetensors"), "--task", task, "--no_amp",
                    "--batch_size", "64", "--num_workers", str(workers), "--recall_k", "1", "5", "10", "--quiet",
                    "--output", str(out / "{dataset}.json")]
        clip_benchmark.cli.main()


def memory_of(process: int) -> int:
    """The bytes of a process and its descendants, of which a page that n processes share counts 1 / n in each."""
    total = 0
    try:
        for line in pathlib.Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            total += int(line.split()[1]) * 1024 if line.startswith("Pss:") else 0
        for task in pathlib.Path(f"/proc/{process}/task").iterdir():
            total += sum(memory_of(int(child)) for child in (task / "children").read_text().split())
    except OSError:
        pass  # the process has ended
    return total


def measure(command: list, environment: dict) -> tuple[float, int]:
    """Runs a command. Returns its seconds and its greatest memory in bytes."""
    with tempfile.TemporaryFile("w+") as log:
        begin = time.perf_counter()
        process = subprocess.Popen([str(word) for word in command], stdout=log, stderr=subprocess.STDOUT, env=environment)
        peak = 0
        while process.poll() is None:
            peak = max(peak, memory_of(process.pid))
            time.sleep(0.05)
        seconds = time.perf_counter() - begin
        if process.returncode != 0:
            log.seek(0)
            sys.exit(f"compare/suite_cost.py: {' '.join(map(str, command))}\nexit code {process.returncode}\n{log.read()[-3000:]}")
    return seconds, peak


def compare_scores(folder: pathlib.Path) -> float:
    """Prints the number of compared scores, and returns the greatest difference."""
    lines = {line["key"]: line["metrics"] for line in map(json.loads, (folder / "out/eval_results.jsonl").read_text().splitlines())}
    differences = {}
    for entry in SETS:
        theirs = json.loads((folder / "clip_benchmark" / f"{name_in_clip_benchmark(entry)}.json").read_text())["metrics"]
        for name in SCORES:
            if name in theirs:
                differences[f"{entry['name']}, {name}"] = abs(theirs[name] - lines[entry["key"]][name])
    greatest = max(differences, key=differences.get)
    print(f"{len(differences)} scores of {len(SETS)} data sets; the greatest difference is {differences[greatest]:.2g} ({greatest})")
    return differences[greatest]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=fixtures.ROOT / "build")
    parser.add_argument("--model", help="an architecture of OpenCLIP, such as ViT-B-32; default: a very small one")
    parser.add_argument("--samples", type=int, default=24, help="images of each data set")
    parser.add_argument("--side", type=int, default=256, help="width and height of the images, a multiple of 4")
    parser.add_argument("--workers", type=int, default=2, help="worker processes of CLIP_benchmark's loader; evaluate has 2 threads")
    parser.add_argument("--threads", type=int, help="OMP_NUM_THREADS of both sides; default: as the environment says")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--clip-benchmark-in", type=pathlib.Path, help=argparse.SUPPRESS)  # the other side, in a process of its own
    arguments = parser.parse_args()
    if arguments.clip_benchmark_in:
        run_clip_benchmark(arguments.clip_benchmark_in, arguments.workers)
        return 0
    if arguments.samples < 10:
        sys.exit("compare/suite_cost.py: --samples must be at least 10, because CLIP_benchmark measures recall at 10")
    environment = os.environ | ({"OMP_NUM_THREADS": str(arguments.threads)} if arguments.threads else {})
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_fixtures(arguments, folder)
        sides = {
            "evaluate": [arguments.build / "bin/evaluate", "--checkpoint", folder / "model", "--suite", "datacomp",
                         "--data", folder / "data", "--out", folder / "out", "--no-pictures", "--overwrite"],
            "CLIP_benchmark": [sys.executable, __file__, "--clip-benchmark-in", folder, "--workers", arguments.workers],
        }
        results = {side: [] for side in sides}
        for _ in range(arguments.repetitions):
            for side, command in sides.items():
                results[side].append(measure(command, environment))
                print(f"{side:16}{results[side][-1][0]:10.1f} s{results[side][-1][1] / 2**20:10.0f} MiB", flush=True)
        print(f"medians of {arguments.repetitions} runs; {len(SETS)} data sets of {arguments.samples} images; "
              f"model {arguments.model or 'small'}:")
        for side, runs in results.items():
            seconds, peak = (statistics.median(values) for values in zip(*runs))
            print(f"{side:16}{seconds:10.1f} s{peak / 2**20:10.0f} MiB")
        return 0 if compare_scores(folder) <= 1 / arguments.samples + 1e-6 else 1


if __name__ == "__main__":
    sys.exit(main())
