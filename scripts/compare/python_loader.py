#!/usr/bin/env python3
"""Compares a plain PyTorch loop fed by tessera.Loader with one fed by torchvision and the Python webdataset library, on the same JPEG
shards.

Both loops take batches of 64 images and token ids, normalize the images and run a small, cheap convolution, so that data loading determines
the speed. Both decode, take OpenCLIP's training crop (random-resized, scale 0.9 to 1, bicubic with antialias) of 224 x 224, and
tokenize captions with CLIP's byte pairs. Python uses torch's DataLoader with as many worker processes as our side has threads. The two take
turns in one process. The script prints images per second of wall-clock time, and per second of CPU time of the process and its workers,
which other load on the machine changes little.

Needs the Python packages torch, torchvision, webdataset and open_clip (without it, both skip captions), and the library (scripts/setup.sh).

  PYTHONPATH=python scripts/compare/python_loader.py
  PYTHONPATH=python scripts/compare/python_loader.py --photographs ~/photographs --threads 8 --at-least 2.5
"""
import argparse
import pathlib
import resource
import sys
import tempfile
import time

import torch
import torch.utils.data
import webdataset
from loading import BATCH, MEAN, STD, medians_of, pictures_of, training_crop, write_shard

import tessera

try:
    from open_clip import SimpleTokenizer
except ImportError:
    SimpleTokenizer = None


class Caption:
    """Converts a sample's caption to ids. It is a class so that worker processes can receive it."""

    def __init__(self):
        self.tokenizer = SimpleTokenizer() if SimpleTokenizer else None

    def __call__(self, text):
        return self.tokenizer([text])[0] if self.tokenizer else 0


def of_python(shard, args):
    data = webdataset.WebDataset([str(shard)] * args.threads, shardshuffle=False, empty_check=False).decode("pilrgb").to_tuple("jpg", "txt")
    data = data.map_tuple(training_crop(args.image_size), Caption()).repeat().batched(BATCH)
    loader = torch.utils.data.DataLoader(data, batch_size=None, num_workers=args.threads)
    for pixels, ids in loader:
        yield pixels, ids


def of_tessera(shard, args):
    loader = tessera.Loader({"name": "webdataset", "path": str(shard)}, tokenizer="clip-bpe" if SimpleTokenizer else None, batch_size=BATCH,
                            image_size=args.image_size, threads=args.threads, augmentation={"scale": [0.9, 1.0]})
    mean, std = (255 * torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    while True:
        batch = loader.next()
        yield batch["image"].float().sub_(mean).div_(std), batch.get("caption")


def processor_seconds():
    """Returns the CPU time of the process and of its finished workers."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def measure(make, shard, args):
    """Creates a loop with `make`. Returns its images per second of wall-clock time and of CPU time."""
    torch.manual_seed(0)
    model = torch.nn.Conv2d(3, 8, 32, stride=32)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = make(shard, args)
    began = processor_seconds()
    next(batches)
    images, begin = 0, time.perf_counter()
    while time.perf_counter() < begin + args.seconds:
        pixels, _ = next(batches)
        loss = model(pixels).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        images += len(pixels)
    clock = images / (time.perf_counter() - begin)
    batches.close()
    return clock, (images + BATCH) / (processor_seconds() - began)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["500x375"])
    parser.add_argument("--photographs", type=pathlib.Path, metavar="FOLDER", help="photographs to use (default: generated images like photographs)")
    parser.add_argument("--pictures", type=int, default=128, help="generated images of each size (default: %(default)s)")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--threads", type=int, default=2, help="our threads, and Python's worker processes (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="turns; the median is printed (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=8, help="seconds of one turn (default: %(default)s)")
    parser.add_argument("--at-least", type=float, help="exit 1 if ours is not this many times as fast by the clock")
    args = parser.parse_args()
    torch.set_num_threads(1)

    print(f"JPEG, quality 90; crops of {args.image_size}; {args.threads} threads or workers; medians of {args.rounds} turns of {args.seconds:g} s; "
          f"PyTorch {torch.__version__}{'' if SimpleTokenizer else '; no captions'}\n")
    print("| images | loop fed by | images/s | times Python's | images/s per core | times Python's |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    least = float("inf")
    for size in args.sizes:
        width, height = map(int, size.split("x"))
        pictures = pictures_of(args, width, height)
        pictures *= -(-BATCH // len(pictures))
        with tempfile.TemporaryDirectory() as folder:
            shard = pathlib.Path(folder) / f"{size}.tar"
            write_shard(shard, pictures)
            medians = medians_of({"torchvision + webdataset": lambda: measure(of_python, shard, args),
                                  "tessera.Loader": lambda: measure(of_tessera, shard, args)}, args.rounds)
        base = medians["torchvision + webdataset"]
        for name, (clock, core) in medians.items():
            print(f"| {size} | {name} | {clock:.0f} | {clock / base[0]:.1f} | {core:.0f} | {core / base[1]:.1f} |")
        least = min(least, medians["tessera.Loader"][0] / base[0])
    if args.at_least:
        sys.exit(least < args.at_least)


if __name__ == "__main__":
    main()
