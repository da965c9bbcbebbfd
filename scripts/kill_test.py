#!/usr/bin/env python3
"""Kills a small training run with SIGKILL at random moments, resumes it each time, and compares its end bit for bit with an unbroken
run's. Then a SIGTERM, a torn newest checkpoint, and with --nproc a rank that is killed.

  scripts/kill_test.py [--kills 20] [--seed 0] [--trainer build/bin/trainer]

Outside CI, for it takes minutes; needs only the standard library.
"""
import argparse
import json
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MERGES = ROOT / "configs/vocabularies/clip-bpe/bpe_simple_vocab_16e6.txt.gz"
STEPS = 400
CONFIG = f"""
seed: 5
data: {{train: {{name: shapes, size: 1000, image_size: 32}}, loader: {{batch_size: 16, threads: 2}}}}
tokenizer: {{name: clip-bpe, merges: {MERGES}}}
model:
  preprocessing: {{image_size: 32}}
  image: {{encoder: {{name: vit, patch_size: 8, width: 64, layers: 2, heads: 2, patch_dropout: 0.25}}, readout: {{name: cls}},
          projection: {{name: linear, embed_dim: 32}}}}
  text: {{encoder: {{name: text_transformer, width: 64, layers: 2, heads: 2}}, readout: {{name: eos}},
         projection: {{name: linear, embed_dim: 32}}}}
training: {{steps: {STEPS}, threads: 1, device: cpu, weight_average: {{decay: 0.99}}}}
checkpoint: {{every_steps: 15, keep_last: 2}}
"""


def start(trainer, config, run, *more):
    command = [trainer, "--config", config, "--resume", "auto", "--set", f"run.folder={run}", *more]
    return subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def finish(process, *expected):
    errors = process.communicate()[1]
    if process.returncode not in expected:
        sys.exit(f"exit code {process.returncode}, expected one of {expected}:\n{errors[-2000:]}")
    return errors


def tensors(path):
    """Name -> (dtype, shape, bytes) of a safetensors file."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    body = data[8 + length :]
    return {name: (t["dtype"], t["shape"], body[slice(*t["data_offsets"])]) for name, t in header.items()}


def newest(run):
    folder = run / "checkpoints" / (run / "checkpoints/latest").read_text().strip()
    return {name: tensors(folder / f"{name}.safetensors") for name in ("model", "averaged", "state")}


MEASURED = ("seconds", "samples_per_second", "wait_share", "tflops", "mfu", "memory")  # may differ from run to run


def rows_of(run):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in MEASURED} for row in rows]


def wait_for_rows(run):
    rows = run / "metrics.jsonl"
    while not rows.exists() or not rows.stat().st_size:
        time.sleep(0.05)


def check_same(run, unbroken, what):
    ours, theirs = newest(run), newest(unbroken)
    for file in theirs:
        different = [name for name in theirs[file] if ours[file].get(name) != theirs[file][name]]
        if different or ours[file].keys() != theirs[file].keys():
            sys.exit(f"{what}: {len(different)} tensors of {file} differ from the unbroken run's, {different[:3]}")
    if rows_of(run) != rows_of(unbroken):
        sys.exit(f"{what}: metrics.jsonl has other rows than the unbroken run's")
    print(f"{what}: the end is bit for bit the unbroken run's", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trainer", type=pathlib.Path, default=ROOT / "build/bin/trainer")
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as folder:
        config, whole = pathlib.Path(folder, "run.yaml"), pathlib.Path(folder, "whole")
        config.write_text(CONFIG)

        def begin(run, *more):
            return start(arguments.trainer, config, run, *more)

        began = time.time()
        finish(begin(whole), 0)
        duration = time.time() - began
        print(f"unbroken run: {STEPS} steps in {duration:.1f} s", flush=True)

        killed, kills = pathlib.Path(folder, "killed"), 0
        while kills < arguments.kills:
            process = begin(killed)
            try:
                process.wait(chance.uniform(0.1, 0.5 * duration))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                kills += 1
            finish(process, 0, -signal.SIGKILL)
            if process.returncode == 0:
                check_same(killed, whole, f"finished after {kills} kills")
                shutil.rmtree(killed)
        finish(begin(killed), 0)
        check_same(killed, whole, f"{kills} times SIGKILL at random moments")

        told = pathlib.Path(folder, "told")
        process = begin(told)
        wait_for_rows(told)
        process.send_signal(signal.SIGTERM)
        finish(process, 128 + signal.SIGTERM)
        finish(begin(told), 0)
        check_same(told, whole, "SIGTERM (exit code 143)")

        torn = pathlib.Path(folder, "torn")
        shutil.copytree(whole, torn)
        state = torn / "checkpoints" / (whole / "checkpoints/latest").read_text().strip() / "state.safetensors"
        state.write_bytes(state.read_bytes()[:1000])
        said = finish(begin(torn), 0)
        if "state.safetensors: damaged" not in said:
            sys.exit(f"torn checkpoint: nothing was said of it:\n{said[-2000:]}")
        check_same(torn, whole, "torn newest checkpoint (said aloud, the one before taken)")

        ranks = pathlib.Path(folder, "ranks")
        process = begin(ranks, "--nproc", "2")
        wait_for_rows(ranks)
        workers = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
        began = time.time()
        subprocess.run(["kill", "-9", workers[1]], check=True)
        said = finish(process, 1, 137)
        print(f"a rank of two killed: exit code {process.returncode} after {time.time() - began:.1f} s: "
              f"{[line for line in said.splitlines() if 'rank' in line][-1]}")


if __name__ == "__main__":
    main()
