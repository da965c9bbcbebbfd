#!/usr/bin/env python3
"""Trains a small CLIP model on Flickr8k with OpenCLIP's training program, open_clip_train, and with Tessera, and compares both.

    python3 -m pip install open_clip_torch pandas 'webdataset<=0.2.86' braceexpand     # in an environment that has torch
    scripts/compare/open_clip_photographs.py --data FOLDER

FOLDER/flickr8k has WebDataset shards train-*.tar and test-*.tar with KEY.jpg and KEY.txt (one caption per line). Both programs start from
the same random weights (4.7 million parameters and a token table: a ViT of 6 layers on 112 x 112 pixels, a causal text transformer
of 4 layers, both 192 wide, OpenCLIP's tokenizer). They read the same shards, in which each caption is a sample of its own, and train
--epochs times on all of them in batches of 64. Tessera's configuration comes from `trainer --from-open-clip`. Each program shuffles and
crops with its own random numbers, so the losses agree only on average.

Prints the mean training loss of every epoch, and a table of retrieval on the test photographs with a paired test of the difference: with
one seed with 95 % intervals from a bootstrap over photographs, with several seeds means and deviations. Both programs resume when the
script is started again, open_clip_train at the last complete epoch; `timeout 2h scripts/...` makes a long run in parts. Exit code: 77 if a
Python package is missing.
"""
import argparse
import concurrent.futures
import io
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tarfile

import objectives
import paired_test
import photographs

try:
    import open_clip
    import torch
    import open_clip_train.main  # also imports pandas, webdataset and braceexpand
except ImportError as error:
    print(f"compare/open_clip_photographs.py: skipped, {error}")
    sys.exit(77)

BIN = objectives.ROOT / "build/bin"
CAPTIONS, BATCH = 5, 64
MODEL = {
    "embed_dim": 192,
    "vision_cfg": {"image_size": 112, "layers": 6, "width": 192, "head_width": 64, "patch_size": 16},
    "text_cfg": {"context_length": 32, "vocab_size": 49408, "width": 192, "heads": 3, "layers": 4},
}
COLUMNS = photographs.RETRIEVAL


def write_model(folder, weights):
    """Writes a model as OpenCLIP publishes it."""
    folder.mkdir(parents=True, exist_ok=True)
    preprocessing = {"mean": list(open_clip.OPENAI_DATASET_MEAN), "std": list(open_clip.OPENAI_DATASET_STD)}
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": MODEL, "preprocess_cfg": preprocessing}))
    torch.save(weights, folder / "open_clip_pytorch_model.bin")


def write_shards(data, folder):
    """Writes one shard for each of an image's captions. Each shard holds all images in the same order. Writes the number of samples."""
    folder.mkdir(exist_ok=True)
    count = 0
    shards = [tarfile.open(folder / f"train-{number:05}.tar", "w") for number in range(CAPTIONS)]
    for source in sorted((data / "flickr8k").glob("train-*.tar")):
        with tarfile.open(source) as tar:
            members = {member.name: tar.extractfile(member).read() for member in tar}
        for name in [name for name in members if name.endswith(".txt")]:
            key = name.removesuffix(".txt")
            for number, caption in enumerate(members[name].decode().splitlines()):
                add(shards[number], f"{key}-{number}.jpg", members[f"{key}.jpg"])
                add(shards[number], f"{key}-{number}.txt", caption.encode())
                count += 1
    for shard in shards:
        shard.close()
    (folder / "count").write_text(str(count))  # written last, so that after an interrupted call the next call starts over


def add(tar, name, content):
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def arguments_of(args, seed, samples):
    """Returns the arguments of open_clip_train."""
    warmup = samples * args.epochs // BATCH // 10
    return ["--model", f"local-dir:{args.out}/start", "--train-data", f"{args.out}/shards/train-{{00000..0000{CAPTIONS - 1}}}.tar",
            "--dataset-type", "webdataset", "--train-num-samples", str(samples), "--batch-size", str(BATCH), "--epochs", str(args.epochs),
            "--lr", "1e-3", "--wd", "0.2", "--warmup", str(warmup), "--grad-clip-norm", "1", "--precision", "fp32", "--device", args.device,
            "--workers", "1", "--aug-cfg", "scale=(0.6,1.0)", "--log-every-n-steps", "20", "--save-frequency", "1",
            "--seed", str(seed), "--logs", f"{args.out}/seed{seed}/logs", "--name", "theirs", "--resume", "latest"]


def train_theirs(args, seed, samples):
    """Trains with open_clip_train, and returns the mean loss of each epoch."""
    folder = args.out / f"seed{seed}"
    logs, last = folder / "logs/theirs", folder / f"logs/theirs/checkpoints/epoch_{args.epochs}.pt"
    if not last.exists():
        objectives.run([sys.executable, "-m", "open_clip_train.main", *arguments_of(args, seed, samples)], folder / "open_clip.out")
    weights = torch.load(last, map_location="cpu", weights_only=True)["state_dict"]
    write_model(folder / "theirs", weights)
    losses = {}
    for line in (logs / "out.log").read_text().splitlines():
        row = re.search(r"Train Epoch: (\d+) .* Loss: ([\d.]+)", line)
        if row:
            losses.setdefault(int(row[1]), []).append(float(row[2]))
    return [statistics.mean(losses[epoch]) for epoch in range(args.epochs)]


def train_ours(args, seed, samples):
    """Trains with Tessera, from the params.txt of open_clip_train, and returns the mean loss of each epoch."""
    folder = args.out / f"seed{seed}"
    config = folder / "ours.yaml"
    config.write_text(subprocess.run([BIN / "trainer", "--from-open-clip", folder / "logs/theirs/params.txt"], check=True, text=True,
                                     stdout=subprocess.PIPE).stdout)
    objectives.run([BIN / "trainer", "--config", config, "--resume", "auto", "--set", f"run.folder={folder}/ours",
                    f"training.device={args.device}", "checkpoint.every_minutes=5"], folder / "trainer.out")
    rows = [json.loads(line) for line in (folder / "ours/metrics.jsonl").read_text().splitlines()]
    losses = {}
    for row in rows:
        if "loss" in row:
            losses.setdefault(int((row["samples"] - 1) // samples), []).append(row["loss"])
    return [statistics.mean(losses[epoch]) for epoch in sorted(losses)]


def evaluate(args, name):
    """Evaluates the models of this name, and returns the folder with the results of each seed."""
    source, folders = photographs.flickr8k(args.data / "flickr8k/test-*.tar"), []
    suite = photographs.write_suite("retrieval", {"source": source, "tasks": [photographs.RETRIEVAL_TASK]}, args)
    for seed in args.seeds:
        folder = args.out / f"seed{seed}"
        folders.append(folder / f"evaluation_{name}")
        objectives.run([BIN / "evaluate", "--checkpoint", folder / name, "--suite", suite, "--out", folders[-1], "--device", args.device],
                       folder / f"evaluate_{name}.out")
    return folders


def row_of(name, folders):
    results = [json.loads((folder / "results.json").read_text())["tasks"][0] for folder in folders]
    columns = [column.removeprefix("retrieval.") for column in COLUMNS]
    cells = [photographs.cell([(result["metrics"][column], result["intervals"][column]) for result in results]) for column in columns]
    return f"| {name} | " + " | ".join(cells) + " |"


def prepare(args):
    """Writes the weights that both programs start from, and the shards. Returns the number of samples."""
    if not (args.out / "start").exists():
        torch.manual_seed(0)
        write_model(args.out / "start.part", open_clip.CLIP(**MODEL).state_dict())
        (args.out / "start.part").rename(args.out / "start")
    if not (args.out / "shards/count").exists():
        write_shards(args.data, args.out / "shards")
    return int((args.out / "shards/count").read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True, metavar="FOLDER")
    parser.add_argument("--epochs", type=int, default=9, help="9 epochs of 34,150 captions are about 4,800 steps (default)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], help="of the order of samples and of the crops, in both programs")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--jobs", type=int, default=1, help="number of seeds in parallel")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/open_clip_photographs"))
    args = parser.parse_args()
    args.data, args.out = args.data.resolve(), args.out.resolve()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    samples = prepare(args)

    def train(seed):
        return train_theirs(args, seed, samples), train_ours(args, seed, samples)

    for seed in args.seeds:
        (args.out / f"seed{seed}").mkdir(exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        losses = list(pool.map(train, args.seeds))
    theirs, ours = ([statistics.mean(epoch) for epoch in zip(*curves)] for curves in zip(*losses))
    print("Mean training loss of each epoch:\n\n| epoch | open_clip_train | Tessera |\n| --- | --- | --- |")
    for epoch, (a, b) in enumerate(zip(theirs, ours), 1):
        print(f"| {epoch} | {a:.3f} | {b:.3f} |")
    folders = {name: evaluate(args, name) for name in ("theirs", "ours")}
    print(f"\nRetrieval on the test photographs, seeds {', '.join(map(str, args.seeds))}, in percent:\n")
    print("| | " + " | ".join(COLUMNS.values()) + " |")
    print("| --- |" + " --- |" * len(COLUMNS))
    print(row_of("open_clip_train", folders["theirs"]) + "\n" + row_of("Tessera", folders["ours"]))
    print("| Tessera - open_clip_train | " + " | ".join(
        paired_test.cell([(1, folders["ours"], column), (-1, folders["theirs"], column)]) for column in COLUMNS) + " |")


if __name__ == "__main__":
    main()
