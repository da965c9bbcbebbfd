#!/usr/bin/env python3
"""Interrupts a small training run in several ways, resumes it, and checks that its result is bit-identical to an uninterrupted run's.

  scripts/check/kill_test.py [--only kill9,sigterm,torn,disk,rank_killed,rank_stopped,ranks_killed] [--kills 20] [--seed 0] [--data '{name: parquet, path: ...}']
                       [--trainer build/bin/trainer] [--device cpu]

kill9         SIGKILL at --kills random moments, with --resume auto each time: the result is bit-identical.
sigterm       the step is finished and saved, exit code 143 (128 + signal); after --resume auto the result is bit-identical.
torn          the newest checkpoint is cut short: a warning is printed and the previous one is used; the result is bit-identical.
disk          the run's disk is full (a small tmpfs, so this needs root): a failed save is one error line, training continues and the
              earlier checkpoint stays intact. Once there is room, the next save succeeds, and the run ends with exit code 0 and a
              bit-identical result. If the disk is still full at the end: exit code 2 and a line that names the kept checkpoint; with room
              again, --resume auto gives a bit-identical result.
rank_killed   one of two ranks gets SIGKILL mid-step: exit code 1 or 137 and a line that names the rank; no process is left.
rank_stopped  one of two ranks gets SIGSTOP mid-step: within distributed.heartbeat (5 s here) plus 4 s the job ends with exit
              code 1 and a line that names rank, host, phase and last step; no process is left, and --resume auto finishes the run.
ranks_killed  one of four ranks, drawn at random, gets SIGKILL at --kills random moments, evaluations and saves included, with a sharded
              optimizer state, gradients and --resume auto each time: the result is bit-identical to that of four ranks without a kill.

Not part of CI because it takes minutes; needs only the standard library. Exit code 0: every outcome is as described.
"""
import argparse
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MERGES = ROOT / "configs/vocabularies/clip-bpe/bpe_simple_vocab_16e6.txt.gz"
STEPS = 400
CONFIG = f"""
seed: 5
data: {{train: DATA, loader: {{batch_size: 16, threads: 2}}}}
tokenizer: {{name: clip-bpe, merges: {MERGES}}}
model:
  preprocessing: {{image_size: 32}}
  image: {{encoder: {{name: vit, patch_size: 8, width: 64, layers: 2, heads: 2, patch_dropout: 0.25}}, readout: {{name: cls}},
          projection: {{name: linear, embed_dim: 32}}}}
  text: {{encoder: {{name: text_transformer, width: 64, layers: 2, heads: 2}}, readout: {{name: eos}},
         projection: {{name: linear, embed_dim: 32}}}}
training: {{steps: {STEPS}, threads: 1, device: DEVICE, deterministic: ON_GPU, ema: {{decay: 0.99}}}}
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
    """Returns {name: (dtype, shape, bytes)} of a safetensors file."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    body = data[8 + length :]
    return {name: (t["dtype"], t["shape"], body[slice(*t["data_offsets"])]) for name, t in header.items()}


def newest(run):
    folder = run / "checkpoints" / (run / "checkpoints/latest").read_text().strip()
    return {file.name: tensors(file) for file in folder.glob("*.safetensors")}


MEASURED = ("time", "seconds", "samples_per_second", "wait_share", "ranks", "tflops", "mfu", "memory", "cut")  # these may differ between runs


def rows_of(run):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in MEASURED} for row in rows]


def wait_for_rows(run):
    rows = run / "metrics.jsonl"
    while not rows.exists() or not rows.stat().st_size:
        time.sleep(0.05)


def check_same(run, unbroken, what, rows=True):
    ours, theirs = newest(run), newest(unbroken)
    for file in theirs:
        different = [name for name in theirs[file] if ours[file].get(name) != theirs[file][name]]
        if different or ours[file].keys() != theirs[file].keys():
            sys.exit(f"{what}: {len(different)} tensors of {file} differ from the uninterrupted run's, {different[:3]}")
    if rows and rows_of(run) != rows_of(unbroken):
        sys.exit(f"{what}: metrics.jsonl differs from the uninterrupted run's")
    print(f"{what}: the result is bit-identical to the uninterrupted run's", flush=True)


class Runs:
    """The uninterrupted run, and the ways to interrupt others."""

    def __init__(self, folder, trainer, data, device):
        self.folder, self.trainer = pathlib.Path(folder), trainer
        self.config, self.whole = self.folder / "run.yaml", self.folder / "whole"
        self.config.write_text(CONFIG.replace("DATA", data).replace("DEVICE", device).replace("ON_GPU", str(device == "cuda").lower()))
        began = time.time()
        finish(self.begin(self.whole), 0)
        self.duration = time.time() - began
        print(f"uninterrupted run: {STEPS} steps in {self.duration:.1f} s", flush=True)

    def begin(self, run, *more):
        return start(self.trainer, self.config, run, *more)

    def kill9(self, kills, chance):
        run, done = self.folder / "killed", 0
        while done < kills:
            process = self.begin(run)
            try:
                process.wait(chance.uniform(0.1, 0.5 * self.duration))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                done += 1
            finish(process, 0, -signal.SIGKILL)
            if process.returncode == 0:
                check_same(run, self.whole, f"finished after {done} kills")
                shutil.rmtree(run)
        finish(self.begin(run), 0)
        check_same(run, self.whole, f"SIGKILL at {done} random moments")

    def sigterm(self):
        run = self.folder / "told"
        process = self.begin(run)
        wait_for_rows(run)
        process.send_signal(signal.SIGTERM)
        finish(process, 128 + signal.SIGTERM)
        finish(self.begin(run), 0)
        check_same(run, self.whole, "SIGTERM (exit code 143)")

    def torn(self):
        run = self.folder / "torn"
        shutil.copytree(self.whole, run)
        state = run / "checkpoints" / (self.whole / "checkpoints/latest").read_text().strip() / "state.safetensors"
        state.write_bytes(state.read_bytes()[:1000])
        said = finish(self.begin(run), 0)
        if "state.safetensors: damaged" not in said:
            sys.exit(f"torn checkpoint: no warning names it:\n{said[-2000:]}")
        check_same(run, self.whole, "torn newest checkpoint (warning printed, previous one used)")

    def disk(self):
        checkpoint = folder_bytes(next((self.whole / "checkpoints").glob("step_*")))
        # The disk has room for 3.5 checkpoints, or for 1.5 while it holds the ballast file.
        with small_disk(self.folder / "disk", checkpoint * 7 // 2) as disk:
            if disk is None:
                return
            ballast = disk / "ballast"
            ballast.write_bytes(bytes(2 * checkpoint))

            run = disk / "run"
            process = self.begin(run, "--set", "log.tensorboard=false")
            errors = wait_for_line(process, " is not saved: ")
            kept = [step.name for step in (run / "checkpoints").glob("step_*")]
            if kept != ["step_0000015"]:
                sys.exit(f"full disk: expected only the checkpoint of step 15, found {kept}")
            ballast.unlink()
            finish(process, 0)
            print("full disk, reported while training continued: " + errors)
            check_same(run, self.whole, "full disk, freed during the run", rows=False)
            shutil.rmtree(run)

            ballast.write_bytes(bytes(2 * checkpoint))
            said = finish(self.begin(run, "--set", "log.tensorboard=false"), 2).splitlines()[-1]
            print("full disk until the end, exit code 2: " + said)
            if "the previous checkpoint is " not in said or not (run / "checkpoints/step_0000015").is_dir():
                sys.exit("full disk: the previous checkpoint is gone or not named")
            ballast.unlink()
            finish(self.begin(run, "--set", "log.tensorboard=false"), 0)
            check_same(run, self.whole, "full disk until the end, then freed and --resume auto", rows=False)

    def lost_rank(self, name, sign, codes):
        run = self.folder / name
        process = self.begin(run, "--nproc", "2", "--set", "distributed.heartbeat=5")
        wait_for_rows(run)
        workers = [int(pid) for pid in children(process.pid)]
        began = time.time()
        os.kill(workers[1], sign)
        said = finish(process, *codes)
        seconds = time.time() - began
        left = [pid for pid in workers if pathlib.Path(f"/proc/{pid}").exists()]
        if left:
            sys.exit(f"{name}: processes left behind: {left}")
        lines = [line for line in said.splitlines() if "rank" in line]
        print(f"{name}: exit code {process.returncode} after {seconds:.1f} s, no process is left:")
        for line in lines:
            print(f"    {line}")
        return run, lines, seconds

    def rank_killed(self):
        self.lost_rank("rank_killed", signal.SIGKILL, (1, 137))

    def ranks_killed(self, kills, chance):
        # Evaluates and saves so often that a kill often falls into an evaluation or a save.
        ranks = ("--nproc", "4", "--set", "distributed.shard=gradients", "data.loader.batch_size=4", "checkpoint.every_steps=5",
                 "data.validation={name: shapes, split: validation, size: 200, image_size: 32}", "evaluation.every_steps=20",
                 "evaluation.tasks=[{name: retrieval}, {name: validation_loss}]", "training.steps=120")
        whole, run, done, phases = self.folder / "whole_ranks", self.folder / "ranks_killed", 0, {}
        began = time.time()
        finish(self.begin(whole, *ranks), 0)
        duration = time.time() - began
        while done < kills:
            process = self.begin(run, *ranks)
            try:
                process.wait(chance.uniform(0.2, 0.6 * duration))
            except subprocess.TimeoutExpired:
                workers = children(process.pid)
                if workers:
                    done += 1
                    os.kill(int(chance.choice(workers)), signal.SIGKILL)
            said = finish(process, 0, 1, 137, -signal.SIGKILL)
            for phase in re.findall(r"in (the evaluation|saving|the optimizer|forward and backward pass|reading data)", said)[:1]:
                phases[phase] = phases.get(phase, 0) + 1
            if process.returncode == 0:
                check_same(run, whole, f"four ranks, finished after {done} kills")
                shutil.rmtree(run)
        finish(self.begin(run, *ranks), 0)
        check_same(run, whole, f"SIGKILL of one of four ranks at {done} random moments (phases that the reports name: {phases})")

    def rank_stopped(self):
        run, lines, seconds = self.lost_rank("rank_stopped", signal.SIGSTOP, (1,))
        if not any(re.search(r"no sign of life for 5 s from rank 1 on \S+, in .+ of step \d+", line) for line in lines):
            sys.exit("rank_stopped: no line names rank, host, phase and step")
        if seconds > 9:
            sys.exit("rank_stopped: took longer than the heartbeat's time-out and 4 s")
        finish(self.begin(run, "--nproc", "2"), 0)
        print("rank_stopped: --resume auto finished the run", flush=True)


def folder_bytes(folder):
    return sum(file.stat().st_size for file in folder.iterdir())


def children(pid):
    return subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()


def wait_for_line(process, text):
    """Reads the program's messages until a line contains the text."""
    before = []
    for line in process.stderr:
        if text in line:
            return line.rstrip()
        before.append(line)
    sys.exit(f"the run ended without a line with '{text}':\n{''.join(before)[-2000:]}")


@contextlib.contextmanager
def small_disk(folder, size):
    """Mounts a separate disk of `size` bytes; yields None and prints a message if it cannot be mounted."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    problem = "needs root" if os.geteuid() != 0 else subprocess.run(mount, capture_output=True, text=True).stderr.strip()
    if problem:
        print(f"disk: SKIPPED: cannot mount a small tmpfs: {problem}", flush=True)
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="kill9,sigterm,torn,disk,rank_killed,rank_stopped,ranks_killed", help="comma-separated")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", default="{name: shapes, size: 1000, image_size: 32}", help="data.train, with absolute paths (default: %(default)s)")
    parser.add_argument("--trainer", type=pathlib.Path, default=ROOT / "build/bin/trainer")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="with cuda, rank_killed and rank_stopped need two GPUs")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(folder, arguments.trainer, arguments.data, arguments.device)
        ways = {"kill9": lambda: runs.kill9(arguments.kills, random.Random(arguments.seed)),
                "sigterm": runs.sigterm, "torn": runs.torn, "disk": runs.disk,
                "rank_killed": runs.rank_killed, "rank_stopped": runs.rank_stopped,
                "ranks_killed": lambda: runs.ranks_killed(arguments.kills, random.Random(arguments.seed))}
        for name in arguments.only.split(","):
            if name not in ways:
                parser.error(f"--only {name}: expected some of {', '.join(ways)}")
            ways[name]()


if __name__ == "__main__":
    main()
