#!/usr/bin/env python3
"""Runs the training loader for one epoch over shards with 1% corrupt samples, corrupted in ten ways. Memory must stay flat, and the loader
must count every corrupt sample under its reason. Needs only the standard library.

  scripts/check/soak.py                      # 100,000 samples
  scripts/check/soak.py --samples 2000       # as ctest runs it
"""
import argparse
import collections
import io
import json
import pathlib
import struct
import subprocess
import tarfile
import tempfile
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def png_header(width, height):
    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))


def with_png_size(png, width, height):
    return png[:8] + png_header(width, height) + png[33:]


# kind of corruption -> (the reason under which the loader counts it, a function that corrupts the parts of a good sample)
CORRUPTIONS = {
    "image of 0 bytes": ("empty_image", lambda s, png: s.update(jpg=b"")),
    "text instead of an image": ("bad_image", lambda s, png: s.update(jpg=b"<html><body>404 not found</body></html>")),
    "cut JPEG": ("truncated", lambda s, png: s.update(jpg=s["jpg"][:len(s["jpg"]) * 2 // 3])),
    "cut PNG": ("bad_image", lambda s, png: (s.pop("jpg"), s.update(png=png[:len(png) // 2]))),
    "wrong size in the header": ("bad_image", lambda s, png: (s.pop("jpg"), s.update(png=with_png_size(png, 64, 400)))),
    "decompression bomb": ("too_large", lambda s, png: (s.pop("jpg"), s.update(png=with_png_size(png, 60000, 60000)))),
    "no caption": ("no_caption", lambda s, png: s.pop("txt")),
    "blank caption": ("no_caption", lambda s, png: s.update(txt=b" \n")),
    "caption not UTF-8": ("not_utf8", lambda s, png: s.update(txt=b"caf\xe9 \xff\xfe")),
    "no image": ("no_image", lambda s, png: s.pop("jpg")),
}


def read_parts(program, folder, kind):
    """Returns images of the built-in data set as JPEG or PNG files."""
    subprocess.run([program, "pack", "--source", "shapes", "--set", "size=200", "--set", "image_size=64", "--format", kind, "--name", kind,
                    "--out", folder], check=True, stdout=subprocess.DEVNULL)
    samples = collections.defaultdict(dict)
    with tarfile.open(folder / f"{kind}-00000.tar") as tar:
        for member in tar:
            key, part = member.name.split(".", 1)
            samples[key][part] = tar.extractfile(member).read()
    return list(samples.values())


def write_shards(program, folder, count):
    jpgs, pngs = read_parts(program, folder, "jpg"), read_parts(program, folder, "png")
    expected = collections.Counter()
    kinds = list(CORRUPTIONS.values())
    for first in range(0, count, 10000):
        with tarfile.open(folder / f"soak-{first // 10000:05d}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for i in range(first, min(first + 10000, count)):
                sample = {part: jpgs[i % len(jpgs)][part] for part in ("jpg", "txt")}
                if i % 100 == 37:
                    reason, corrupt = kinds[i // 100 % len(kinds)]
                    corrupt(sample, pngs[i % len(pngs)]["png"])
                    expected[reason] += 1
                for part, content in sample.items():
                    info = tarfile.TarInfo(f"{i:08d}.{part}")
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
    return dict(expected)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=ROOT / "build/bin/tessera-data", type=pathlib.Path)
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--growth-mib", type=float, default=16, help="allowed growth of memory after 10%% of the samples")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        expected = write_shards(args.program, folder, args.samples)
        merges = ROOT / "configs/vocabularies/clip-bpe/bpe_simple_vocab_16e6.txt.gz"
        command = [args.program, "read", "--source", "webdataset", "--set", f"path={folder}/soak-*.tar", "--tokenizer", "clip-bpe",
                   "--tokenizer-set", f"merges={merges}", "--image-size", "32", "--loader", "batch_size=10", "--loader",
                   f"threads={args.threads}", "--skipped", folder / "skipped.jsonl", "--json"]
        result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        listed = [json.loads(line) for line in (folder / "skipped.jsonl").read_text().splitlines()]
    bad = sum(expected.values())
    resident = {when: size / 2**20 for when, size in result["resident_bytes"].items()}
    growth = max(size for when, size in resident.items()) - resident["10%"]
    print(f"{args.samples:,} samples, {bad:,} of them corrupt in {len(CORRUPTIONS)} ways, {args.threads} threads, "
          f"{result['samples_per_second']:,.0f} samples/s")
    counted = collections.Counter(line["reason"] for line in listed if line["epoch"] == 0)
    print("skipped: " + ", ".join(f"{count} {reason}" for reason, count in sorted(counted.items())))
    print("memory of the process, MiB: " + ", ".join(f"{when} {size:.1f}" for when, size in resident.items()))
    # Up to 9 samples after the last full batch are not read.
    assert args.samples - bad - 9 <= result["samples"] <= args.samples - bad, result["samples"]
    assert counted == expected, (counted, expected)
    assert len({line["key"] for line in listed}) == len(listed), "a sample is listed twice"
    # The statistics may include the skipped samples of one more batch, because the program reads one batch past the epoch.
    assert 0 <= sum(result["skipped"].values()) - bad <= 5, result["skipped"]
    assert growth <= args.growth_mib, f"the memory grew by {growth:.1f} MiB"
    print(f"all counts are correct; the memory grew by {growth:.1f} MiB from 10% on")


if __name__ == "__main__":
    main()
