#!/usr/bin/env python3
"""Compares the images per second of Tessera's loader with torchvision + the Python webdataset library, on the same JPEG shards and one core
each.

Both read the shard, decode, take OpenCLIP's training crop (random-resized, scale 0.9 to 1, bicubic with antialias) of 224 x 224 and make
batches of 64. Python makes normalized floats (ToTensor, Normalize); Tessera makes bytes, which the device normalizes. The two take turns.
The script prints images per second of CPU time, which other load on the machine changes little, and per second of wall-clock time.

The images are photographs (--photographs FOLDER; each is cut to 4:3 and resized with Lanczos), or generated ones with the statistics of
photographs: noise of equal strength in each octave of frequency, as in nature, partly colored, and hard edges. Pillow saves both at
quality 90 with 4:2:0 chroma subsampling.

Needs the Python packages torch, torchvision and webdataset, and build/bin/tessera-bench.

  scripts/compare/loading.py
  scripts/compare/loading.py --photographs ~/photographs --rounds 5 --at-least 2 4
"""
import argparse
import io
import json
import pathlib
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BATCH = 64
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
HEADER = "| images | loader | images/s per core | times Python's | images/s by the clock, 1 thread |\n| --- | --- | ---: | ---: | ---: |"

try:
    import numpy
    import torch
    import torchvision.transforms as transforms
    import webdataset
    from PIL import Image
except ImportError as error:
    sys.exit(f"compare/loading.py: {sys.executable} has no {error.name}: it needs torch, torchvision, numpy and webdataset")


def generated(width, height, seed):
    random = numpy.random.default_rng(seed)
    levels = numpy.full((height, width, 3), 118, dtype=numpy.float32)
    for _ in range(12):
        top, left = random.integers(height), random.integers(width)
        bottom, right = top + 1 + random.integers(height - top), left + 1 + random.integers(width - left)
        levels[top:bottom, left:right] += random.uniform(-40, 40)
    grain = 2
    while grain < max(width, height):
        cells = random.integers(0, 256, (height // grain + 2, width // grain + 2, 3), dtype=numpy.uint8)
        noise = numpy.asarray(Image.fromarray(cells).resize((width, height), Image.BICUBIC), dtype=numpy.float32) - 127.5
        strength = 6 if grain == 2 else 14  # the finest noise is weaker, as with a soft lens, so that file sizes match those of photographs
        levels += strength / 73.9 * (noise[:, :, :1] + 0.25 * noise)
        grain *= 2
    return Image.fromarray(numpy.clip(levels, 0, 255).round().astype(numpy.uint8))


def photographs(folder, width, height):
    for path in sorted(folder.iterdir()):
        try:
            picture = Image.open(path).convert("RGB")
        except OSError:
            continue
        unit = min(picture.width / width, picture.height / height)
        yield picture.crop((0, 0, int(width * unit), int(height * unit))).resize((width, height), Image.LANCZOS)


def write_shard(path, pictures):
    total = 0
    with tarfile.open(path, "w") as tar:
        for index, picture in enumerate(pictures):
            for name, content in (("jpg", jpeg(picture)), ("txt", b"a photograph")):
                member = tarfile.TarInfo(f"{index:06d}.{name}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
                total += len(content)
    return total


def jpeg(picture):
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=90)
    return out.getvalue()


def pictures_of(args, width, height):
    if args.photographs:
        return list(photographs(args.photographs, width, height))
    return [generated(width, height, seed) for seed in range(args.pictures)]


def training_crop(image_size):
    crop = transforms.RandomResizedCrop(image_size, scale=(0.9, 1), interpolation=transforms.InterpolationMode.BICUBIC)
    return transforms.Compose([crop, transforms.ToTensor(), transforms.Normalize(MEAN, STD)])


def medians_of(measures, rounds):
    """measures: {name: function that returns several speeds}. Takes turns between the functions and returns the medians for each name."""
    speeds = {name: [] for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            speeds[name].append(measure())
    return {name: [statistics.median(column) for column in zip(*values)] for name, values in speeds.items()}


def compare(label, loaders, args):
    """Prints one row per loader. The first loader must be Python's. Returns how many times as fast "Tessera" is."""
    medians = medians_of({name: lambda loader=loader: loader.measure(args.seconds) for name, loader in loaders.items()}, args.rounds)
    base = next(iter(medians.values()))[0]
    for name, (core, clock) in medians.items():
        print(f"| {label} | {name} | {core:.0f} | {core / base:.1f} | {clock:.0f} |", flush=True)
    return medians["Tessera"][0] / base


class Python:
    def __init__(self, shard, image_size):
        transform = training_crop(image_size)
        data = webdataset.WebDataset(str(shard), shardshuffle=False, empty_check=False).decode("pilrgb").to_tuple("jpg", "txt")
        self.data = data.map_tuple(transform).repeat().batched(BATCH)
        self.batches = None

    def measure(self, seconds):
        if self.batches is None:
            self.batches = iter(self.data)
            next(self.batches)
        images, begin, cpu = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() < begin + seconds:
            images += len(next(self.batches)[0])
        return images / (time.process_time() - cpu), images / (time.perf_counter() - begin)


class Ours:
    def __init__(self, program, shard, image_size, settings):
        self.command = [program, "data", "--quiet", "--threads", "1", "--shards", shard, "--image-size", image_size]
        for setting in (f"batch_size={BATCH}", *settings):
            self.command += ["--set", setting]

    def measure(self, seconds):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "data.json"
            command = [*self.command, "--time-limit", seconds, "--json", out]
            subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
            loader = json.loads(out.read_text())["sources"][0]["loader"][0]
        return 1 / loader["core_seconds"], loader["images_per_second"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/bin/tessera-bench")
    parser.add_argument("--sizes", nargs="+", default=["500x375", "1600x1200"])
    parser.add_argument("--photographs", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--pictures", type=int, default=32, help="generated images of each size (default: %(default)s)")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--rounds", type=int, default=5, help="turns; the median is printed (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=4, help="seconds of one turn (default: %(default)s)")
    parser.add_argument("--at-least", type=float, nargs="+", help="exit 1 if ours is not this many times as fast, for each size")
    args = parser.parse_args()
    if not args.program.exists():
        sys.exit(f"compare/loading.py: {args.program} does not exist: build it (cmake --build build --target tessera-bench)")
    torch.set_num_threads(1)

    what = "photographs" if args.photographs else "generated images"
    print(f"JPEG, quality 90, {what}; crops of {args.image_size}; medians of {args.rounds} turns of {args.seconds:g} s; "
          f"PyTorch {torch.__version__}\n")
    print(HEADER)
    factors = []
    with tempfile.TemporaryDirectory() as folder:
        for size in args.sizes:
            width, height = map(int, size.split("x"))
            pictures = pictures_of(args, width, height)
            if args.photographs:
                pictures *= -(-BATCH // len(pictures))
            shard = pathlib.Path(folder) / f"{size}.tar"
            kilobytes = write_shard(shard, pictures) / len(pictures) / 1e3
            loaders = {"torchvision + webdataset": Python(shard, args.image_size),
                       "Tessera": Ours(args.program, shard, args.image_size, []),
                       "Tessera, dct_scaling: off": Ours(args.program, shard, args.image_size, ["dct_scaling=off"])}
            factors.append(compare(f"{size}, {kilobytes:.0f} kB", loaders, args))
    if args.at_least:
        sys.exit(any(factor < least for factor, least in zip(factors, args.at_least)))


if __name__ == "__main__":
    main()
