#!/usr/bin/env python3
"""Measures which share of a run's time its ranks wait for evaluations and saves, on CPUs (Gloo).

  scripts/compare/waiting.py [--ranks 4] [--repeats 3] [--trainer build/bin/trainer] [--set distributed.shard=gradients]

The run is trained four times: with evaluations and saves, without evaluations, without saves, and without both. The differences of the wall
times are the costs, because no rank trains while the ranks evaluate, or while a save holds them up. The evaluation has the tasks
`zero_shot` and `retrieval` on 384 images and `validation_loss` on 256. Run the script with two versions of the trainer for a comparison;
nothing else should run. Needs only the standard library.
"""
import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MERGES = ROOT / "configs/vocabularies/clip-bpe/bpe_simple_vocab_16e6.txt.gz"
CONFIG = f"""
seed: 5
data: {{train: {{name: shapes, size: 4000, image_size: 64}}, loader: {{batch_size: 8, threads: 1}}}}
tokenizer: {{name: clip-bpe, context_length: 40, merges: {MERGES}}}
model:
  preprocessing: {{image_size: 64}}
  image: {{encoder: {{name: vit, patch_size: 8, width: 384, layers: 6, heads: 6}}, readout: {{name: cls}},
          projection: {{name: linear, embed_dim: 256}}}}
  text: {{encoder: {{name: text_transformer, width: 256, layers: 4, heads: 4}}, readout: {{name: eos}},
         projection: {{name: linear, embed_dim: 256}}}}
training: {{threads: 1, device: cpu, steps: 20}}
log: {{every_steps: 10, tensorboard: false}}
"""
EVALUATION = """
evaluation:
  every_steps: 10
  tasks:
    - {name: zero_shot, source: {name: shapes, split: test, size: 384, image_size: 64, label: color}}
    - {name: retrieval, source: {name: shapes, split: test, size: 384, image_size: 64}}
    - {name: validation_loss, source: {name: shapes, split: test, size: 256, image_size: 64}}
"""
SAVES = {True: "checkpoint: {every_steps: 5, keep_last: 2}\n", False: "checkpoint: {every_steps: 0}\n"}


def seconds(args, folder, evaluates, saves):
    """Returns the wall time of one run."""
    config, out = folder / "run.yaml", folder / f"run_{time.monotonic_ns()}"
    config.write_text(CONFIG + (EVALUATION if evaluates else "") + SAVES[saves])
    begin = time.monotonic()
    done = subprocess.run([str(args.trainer), "--config", str(config), "--nproc", str(args.ranks), "--set", f"run.folder={out}", *args.set],
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"waiting.py: exit code {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
    return time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--trainer", type=pathlib.Path, default=ROOT / "build/bin/trainer")
    parser.add_argument("--set", nargs="*", default=[], help="further settings, such as distributed.shard=gradients")
    args = parser.parse_args()
    cases = [(True, True), (False, True), (True, False), (False, False)]
    with tempfile.TemporaryDirectory() as name:
        times = {case: [] for case in cases}
        for _ in range(args.repeats):
            for case in cases:
                times[case].append(seconds(args, pathlib.Path(name), *case))
    whole, no_evaluation, no_saves, neither = (statistics.median(times[case]) for case in cases)
    print(f"{args.trainer}, {args.ranks} ranks, {' '.join(args.set) or 'default settings'}: the run takes {whole:.1f} s, without evaluations "
          f"{no_evaluation:.1f} s, without saves {no_saves:.1f} s, without both {neither:.1f} s")
    print(f"waiting for evaluations {1 - no_evaluation / whole:.1%}, for saves {1 - no_saves / whole:.1%}, for both {1 - neither / whole:.1%} of the time")


if __name__ == "__main__":
    main()
