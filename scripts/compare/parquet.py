#!/usr/bin/env python3
"""Compares the images per second of Tessera's source parquet with Hugging Face's datasets + torchvision, on the same files and one core
each.

Both read the rows in random order, decode, take OpenCLIP's training crop (random-resized, scale 0.9 to 1, bicubic with antialias) of 224 x
224 and make batches of 64. Python uses torch's DataLoader without workers and makes normalized floats (ToTensor, Normalize); Tessera makes
bytes, which the device normalizes. The two take turns. The script prints images per second of CPU time, which other load on the machine
changes little, and per second of wall-clock time. The CPU time excludes the start of the process. The script also measures the time and
memory of filtering a million rows.

The images are generated like photographs (scripts/compare/loading.py): JPEG of quality 90, in row groups of 100, as datasets writes them.

Needs the Python packages torch, torchvision, datasets and webdataset (for the image generator), and build/bin/tessera-data.

  scripts/compare/parquet.py
  scripts/compare/parquet.py --rounds 5 --at-least 2
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]

try:
    import datasets
    import numpy
    import pyarrow
    import pyarrow.parquet
    import torch
    from loading import BATCH, HEADER, compare, generated, jpeg, training_crop
except ImportError as error:
    sys.exit(f"compare/parquet.py: {sys.executable} has no {error.name}: it needs torch, torchvision, datasets and webdataset")


def write_pictures(path, count, rows, width, height):
    files = [jpeg(generated(width, height, seed)) for seed in range(count)]
    features = datasets.Features({"image": datasets.Image(), "text": datasets.Value("string")})
    data = datasets.Dataset.from_list([{"image": {"bytes": files[i % count], "path": None}, "text": f"photograph {i}"} for i in range(rows)],
                                      features=features)
    data.to_parquet(str(path), batch_size=100)
    return sum(map(len, files)) / count / 1e3


class Python:
    def __init__(self, path, image_size, cache):
        transform = training_crop(image_size)
        data = datasets.load_dataset("parquet", data_files=str(path), split="train", cache_dir=str(cache))
        data.set_transform(lambda rows: {"image": [transform(each.convert("RGB")) for each in rows["image"]], "text": rows["text"]})
        self.loader = torch.utils.data.DataLoader(data, batch_size=BATCH, shuffle=True, drop_last=True)

    def measure(self, seconds):
        images, begin, cpu = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() < begin + seconds:
            for batch in self.loader:
                images += len(batch["text"])
                if time.perf_counter() >= begin + seconds:
                    break
        return images / (time.process_time() - cpu), images / (time.perf_counter() - begin)


def run(program, *words):
    """Returns tessera-data's report, its CPU time and its peak memory in KiB, sampled every 5 ms."""
    command, memory = [str(word) for word in (program, *words)], 0
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        while True:
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
            if ended:
                break
            found = re.search(r"VmHWM:\s*(\d+)", pathlib.Path(f"/proc/{process.pid}/status").read_text())
            memory = max(memory, int(found[1])) if found else memory
            time.sleep(0.005)
        process.returncode = status
        if status != 0:
            sys.exit(f"compare/parquet.py: {' '.join(command)} ended with {status}")
        out.seek(0)
        return out.read(), usage.ru_utime + usage.ru_stime, memory


class Ours:
    def __init__(self, program, path, image_size, rows):
        self.command = [program, "read", "--json", "--source", "parquet", "--set", f"path={path}", "--loader", "threads=1", "--loader",
                        f"batch_size={BATCH}", "--loader", "augmentation={scale: [0.9, 1]}", "--image-size", image_size]
        self.rows = rows

    def measure(self, seconds):
        epochs = max(2, round(seconds * 1000 / self.rows))
        _, start, _ = run(*self.command, "--epochs", 1)
        out, cpu, _ = run(*self.command, "--epochs", 1 + epochs)
        report = json.loads(out)
        return report["samples"] * epochs / (1 + epochs) / (cpu - start), report["samples_per_second"]


def measure_filter(program, folder, rows):
    path = folder / "million.parquet"
    random = numpy.random.default_rng(0)
    columns = {"width": random.integers(32, 2000, rows), "similarity": random.random(rows, dtype=numpy.float32),
               "language": random.choice(numpy.array(["en", "de", "fr"]), rows), "caption": [f"a picture {i}" for i in range(rows)],
               "image": ["missing.jpg"] * rows}
    pyarrow.parquet.write_table(pyarrow.table(columns), path, row_group_size=50_000)
    text = "width >= 224 and similarity > 0.28 and language == 'en'"
    expected = int(((columns["width"] >= 224) & (columns["similarity"] > 0.28) & (columns["language"] == "en")).sum())
    command = [program, "inspect", "--json", "--samples", 1, "--source", "parquet", "--set", f"path={path}"]
    began = time.perf_counter()
    _, _, without = run(*command)
    between = time.perf_counter()
    out, _, memory = run(*command, "--set", f"filter={text}")
    ended = time.perf_counter()
    described = json.loads(out)["source"]
    assert f"of which {expected:,} pass" in described, described
    print(f"\ntessera-data inspect --samples 1 with a filter over {rows:,} rows, of which {expected:,} pass: {ended - between:.1f} s and "
          f"{memory / 1024:.0f} MiB at most; without it {between - began:.1f} s and {without / 1024:.0f} MiB")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/bin/tessera-data")
    parser.add_argument("--size", default="500x375")
    parser.add_argument("--pictures", type=int, default=32, help="different images (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=640)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--rounds", type=int, default=5, help="turns; the median is printed (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=4, help="seconds of one turn (default: %(default)s)")
    parser.add_argument("--filtered-rows", type=int, default=1_000_000, help="rows for the filter; 0: do not measure it (default: %(default)s)")
    parser.add_argument("--at-least", type=float, help="exit 1 if ours is not this many times as fast")
    args = parser.parse_args()
    if not args.program.exists():
        sys.exit(f"compare/parquet.py: {args.program} does not exist: build it (cmake --build build --target tessera-data)")
    torch.set_num_threads(1)
    datasets.disable_progress_bars()
    width, height = map(int, args.size.split("x"))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        path = folder / "train.parquet"
        kilobytes = write_pictures(path, args.pictures, args.rows, width, height)
        loaders = {"datasets + torchvision": Python(path, args.image_size, folder / "cache"), "Tessera": Ours(args.program, path, args.image_size, args.rows)}
        print(HEADER)
        factor = compare(f"{args.size}, {kilobytes:.0f} kB", loaders, args)
        if args.filtered_rows:
            measure_filter(args.program, folder, args.filtered_rows)
    if args.at_least and factor < args.at_least:
        sys.exit(f"{factor:.2f} times Python's, less than {args.at_least}")


if __name__ == "__main__":
    main()
