#!/usr/bin/env python3
"""Writes tests/data/images: pictures in the formats that users have, as Pillow encodes them, and what Pillow and torchvision make of them.

Needs the Python packages pillow, numpy, torchvision and safetensors.

  scripts/generate_image_vectors.py
"""
import pathlib
import sys

try:
    import numpy
    from PIL import Image
except ImportError as error:
    sys.exit(f"generate_image_vectors.py: {sys.executable} has no {error.name}: it needs pillow, numpy, torchvision and safetensors")

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests/data/images"


def picture(width, height):
    """Smooth, with edges: what chroma subsampling and scaled decoding are made for."""
    y, x = numpy.mgrid[:height, :width].astype(float)
    wave = 128 + 100 * numpy.sin(0.03 * x) * numpy.cos(0.05 * y)
    checks = numpy.where((x // 37 + y // 23) % 2 == 0, 200, 40)
    return Image.fromarray(numpy.stack([wave, 255 * x / width, checks], 2).astype(numpy.uint8))


def write_jpegs():
    small, large = picture(203, 117), picture(603, 417)
    for name, sampling in {"444": 0, "422": 1, "420": 2}.items():
        small.save(FOLDER / f"small_{name}.jpg", quality=85, subsampling=sampling)
        small.save(FOLDER / f"small_{name}_progressive.jpg", quality=85, subsampling=sampling, progressive=True)
    small.convert("L").save(FOLDER / "small_grey.jpg", quality=85)
    large.save(FOLDER / "large_420.jpg", quality=85, subsampling=2)
    large.save(FOLDER / "large_422_progressive.jpg", quality=85, subsampling=1, progressive=True)
    large.convert("L").save(FOLDER / "large_grey.jpg", quality=85)


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_jpegs()


if __name__ == "__main__":
    main()
