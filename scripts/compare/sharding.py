#!/usr/bin/env python3
"""Measures distributed.shard on CPUs (Gloo): the peak memory of a rank and the bytes that it sends per step, for each value of the setting.

  scripts/compare/sharding.py [--ranks 2 4] [--layers 12] [--trainer build/bin/trainer]

The model is a CLIP ViT-B/32 with AdamW and two pairs per rank, so that weights, gradients and moments are nearly all of a rank's memory. The
bytes are those that leave the loopback device of this machine (Linux), from the difference between a longer and a shorter run, so nothing
else should use it. Gloo sends a reduce-scatter as an all-reduce; the last column says what NCCL's ring would send. Needs only the standard
library.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MERGES = ROOT / "configs/vocabularies/clip-bpe/bpe_simple_vocab_16e6.txt.gz"
CONFIG = f"""
seed: 5
data: {{train: {{name: shapes, size: 200, image_size: 224}}, loader: {{batch_size: 2, threads: 1}}}}
tokenizer: {{name: clip-bpe, merges: {MERGES}}}
model:
  preprocessing: {{image_size: 224}}
  image: {{encoder: {{name: vit, patch_size: 32, width: 768, layers: LAYERS, heads: 12}}, readout: {{name: cls}},
          projection: {{name: linear, embed_dim: 512}}}}
  text: {{encoder: {{name: text_transformer, width: 512, layers: LAYERS, heads: 8}}, readout: {{name: eos}},
         projection: {{name: linear, embed_dim: 512}}}}
training: {{threads: 1, device: cpu}}
checkpoint: {{every_steps: 0, background: false}}
log: {{every_steps: 1, tensorboard: false}}
"""
SENT = pathlib.Path("/sys/class/net/lo/statistics/tx_bytes")
MIB = 2 ** 20


def children(pid):
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()
    return [int(each) for each in found] + [below for each in found for below in children(each)]


def peak_of(pid):
    try:
        return int(re.search(r"VmHWM:\s*(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) / 1024
    except (OSError, TypeError):
        return 0.0


def run(args, folder, ranks, shard, steps):
    """Returns the peak memory of the largest rank in MiB, the bytes that left the loopback device, the last loss, and the parameters."""
    out = folder / f"{shard}_{ranks}_{steps}"
    command = [args.trainer, "--config", folder / "run.yaml", "--nproc", ranks, "--set", f"run.folder={out}", f"training.steps={steps}",
               f"distributed.shard={shard}"]
    before, peaks, log = int(SENT.read_text()), {}, folder / "log"
    with open(log, "w") as said:
        # Large blocks go back to the system when they are freed. By default, glibc keeps some for later, and the peak would show those.
        process = subprocess.Popen([str(word) for word in command], stdout=said, stderr=said, env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "1000000"})
        while process.poll() is None:
            for pid in children(process.pid):
                peaks[pid] = max(peaks.get(pid, 0), peak_of(pid))
            time.sleep(0.2)
    text = log.read_text()
    if process.returncode:
        sys.exit(f"shard {shard}, {ranks} ranks: exit code {process.returncode}:\n{text[-2000:]}")
    parameters = int(re.search(r"parameters ([\d,]+)", text)[1].replace(",", ""))
    return max(peaks.values()), int(SENT.read_text()) - before, re.findall(r"loss (\S+)", text)[-1], parameters


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--trainer", type=pathlib.Path, default=ROOT / "build/bin/trainer")
    args = parser.parse_args()
    print("| ranks | distributed.shard | peak of a rank, MiB | less than none | 1 - 1/W of moments (and gradients) | MiB sent per step and rank | NCCL, "
          "MiB | last loss |\n| --- | --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "run.yaml").write_text(CONFIG.replace("LAYERS", str(args.layers)))
        for ranks in args.ranks:
            whole = None
            for shard in ("none", "optimizer", "gradients"):
                short, long = run(args, folder, ranks, shard, 2), run(args, folder, ranks, shard, 5)
                weights, share = 4 * long[3] / MIB, (ranks - 1) / ranks
                whole = whole or long[0]
                saved = {"none": 0, "optimizer": 2, "gradients": 3}[shard] * weights * share
                nccl = {"none": 2, "optimizer": 3, "gradients": 2}[shard] * weights * share
                print(f"| {ranks} | {shard} | {long[0]:,.0f} | {whole - long[0]:,.0f} | {saved:,.0f} | "
                      f"{(long[1] - short[1]) / 3 / ranks / MIB:,.0f} | {nccl:,.0f} | {long[2]} |", flush=True)


if __name__ == "__main__":
    main()
