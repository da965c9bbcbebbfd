#!/usr/bin/env python3
"""Trains the same small model in one process and on several ranks on CPUs (Gloo), with equal global batches, and prints the largest
differences of the loss curves and of the first step's gradients.

  scripts/compare/ranks.py [--steps 50] [--ranks 1 2 4] [--objectives clip siglip sparc filip]

Each objective runs plain, with `chunk`, with accumulation, and with GradCache and patch dropout. The script computes the gradients from
SGD's momentum after one step without clipping, and compares them over all parameters together, relative to the gradient's norm. The exit
code is 1 if a gradient differs by more than --gradients-at-most or a curve by more than --curves-at-most. Needs only the standard library;
takes minutes.
"""
import argparse
import array
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BATCH = 32
CONFIG = """
seed: 5
data: {train: {name: shapes, size: 1000, image_size: 32}, loader: {threads: 1}}
tokenizer: {name: sentencepiece, context_length: 40}
model:
  preprocessing: {image_size: 32}
  image: {encoder: {name: vit, patch_size: 8, width: 64, layers: 2, heads: 2}, readout: {name: cls},
          projection: {name: linear, embed_dim: 32}}
  text: {encoder: {name: text_transformer, width: 64, layers: 2, heads: 2, attention: bidirectional}, readout: {name: gap},
         projection: {name: linear, embed_dim: 32}}
training: {threads: 1, device: cpu}
checkpoint: {every_steps: 0, background: false}
log: {every_steps: 1}
"""
VARIANTS = {
    "plain": [],
    "chunk": ["objective.chunk=5"],
    "accumulation": ["training.accumulation=2"],
    "GradCache, patch dropout": ["training.micro_batch=3", "model.image.encoder.patch_dropout=0.5"],
}
CURVE = ["schedule.warmup_steps=5", "optimizer={name: adamw, lr: 1.0e-3}"]
GRADIENT = ["schedule={schedule: constant}", "optimizer={name: sgd, lr: 0.01, momentum: 0.9, weight_decay: 0}", "training.clip_norm=null"]


def train(args, run, objective, ranks, steps, settings):
    micro_batches = 2 if any("accumulation" in setting for setting in settings) else 1
    given = [f"run.folder={run}", f"tokenizer.model={args.vocabulary}", f"objective={{name: {objective}}}", f"data.loader.batch_size={BATCH // ranks // micro_batches}",
             f"training.steps={steps}", *settings]
    command = [args.trainer, "--config", run.parent / "run.yaml", *(["--nproc", ranks] if ranks > 1 else [])]
    for setting in given:
        command += ["--set", setting]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{objective}, {ranks} ranks, {settings}: exit code {done.returncode}:\n{done.stderr[-2000:]}")


def losses(run):
    return [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def gradients(run):
    """Returns {name: numbers} from the optimizer's state in the newest checkpoint."""
    data = (run / "checkpoints" / (run / "checkpoints/latest").read_text().strip() / "state.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header, body, out = json.loads(data[8 : 8 + length]), data[8 + length :], {}
    for name, tensor in header.items():
        if "momentum_buffer." in name:
            out[name] = array.array("f", body[slice(*tensor["data_offsets"])])
    return out


def distance(ours, theirs):
    assert ours.keys() == theirs.keys() and theirs
    difference = math.fsum((a - b) ** 2 for name in theirs for a, b in zip(ours[name], theirs[name]))
    return math.sqrt(difference / math.fsum(b * b for values in theirs.values() for b in values))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainer", type=pathlib.Path, default=ROOT / "build/bin/trainer")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4], help="numbers of ranks; the others are compared with the first")
    parser.add_argument("--objectives", nargs="+", default=["clip", "siglip", "sparc", "filip"])
    parser.add_argument("--gradients-at-most", type=float, default=1e-6, metavar="SHARE")
    parser.add_argument("--curves-at-most", type=float, default=1e-2, metavar="SHARE")
    args = parser.parse_args()
    if any(BATCH % (2 * ranks) for ranks in args.ranks):
        sys.exit(f"--ranks: each must divide {BATCH // 2}")
    with tempfile.TemporaryDirectory() as name:
        args.vocabulary = pathlib.Path(name, "shapes.model")
        tool = args.trainer.parent / "tessera-data"
        subprocess.run([tool, "train-sentencepiece", "--source", "shapes", "--vocab-size", "120", "--out", args.vocabulary], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        sys.exit(compare(args))


def compare(args):
    """Prints the table; returns 1 if a difference is too large."""
    first, others = args.ranks[0], args.ranks[1:]
    print(f"{args.steps} steps of {BATCH} pairs, compared with {first} rank{'s' if first > 1 else ''}\n")
    names = [f"{what}, {ranks} ranks" for what in ("gradients", "losses") for ranks in others]
    print("| objective | | loss, first and last | " + " | ".join(names) + " |\n| --- | --- | --- |" + " --- |" * len(names))
    bad = False
    for objective in args.objectives:
        for variant, settings in VARIANTS.items():
            with tempfile.TemporaryDirectory() as name:
                folder = pathlib.Path(name)
                (folder / "run.yaml").write_text(CONFIG)
                for ranks in args.ranks:
                    train(args, folder / f"gradient{ranks}", objective, ranks, 1, [*GRADIENT, *settings])
                    train(args, folder / f"curve{ranks}", objective, ranks, args.steps, [*CURVE, *settings])
                expected = gradients(folder / f"gradient{first}")
                shares = [distance(gradients(folder / f"gradient{ranks}"), expected) for ranks in others]
                curve = losses(folder / f"curve{first}")
                apart = []
                for ranks in others:
                    other = losses(folder / f"curve{ranks}")
                    assert len(other) == len(curve) == args.steps
                    apart.append(max(abs(a - b) / abs(b) for a, b in zip(other, curve)))
            bad |= max(shares) > args.gradients_at_most or max(apart) > args.curves_at_most
            cells = [f"{share:.1e}" for share in shares + apart]
            print(f"| {objective} | {variant} | {curve[0]:.3f}, {curve[-1]:.3f} | " + " | ".join(cells) + " |", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    main()
