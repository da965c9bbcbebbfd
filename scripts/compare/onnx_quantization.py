#!/usr/bin/env python3
"""Compares ONNX Runtime's ways to quantize an exported image tower (python -m tessera export ... --to onnx): the cosine of its embeddings
with those of the float32 file, processor time per image with one thread, and the size of the file.

  scripts/compare/onnx_quantization.py exported --images FOLDER

  dynamic   int8 weights (per tensor or per channel), activations in uint8 with one scale per call
  static    the same, with scales of activations from half of the images
  blocks    int8 weights in blocks with a scale each, as export --precision int8; level 0: activations in float32, 4: int8 per block

Exit code: 0; 77 if a Python package is missing.
"""
import argparse
import json
import logging
import os
import pathlib
import sys
import tempfile
import time

try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_dynamic, quantize_static
    from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer
    from onnxruntime.quantization.shape_inference import quant_pre_process
    from PIL import Image
except ImportError as error:
    print(f"skipped: {error}: {sys.executable} -m pip install onnx onnxruntime pillow")
    sys.exit(77)

PRODUCTS = {"op_types_to_quantize": ["MatMul", "Gemm"]}


def read_images(folder, settings):
    """Returns up to 24 images [N, 3, H, W] of a folder, squashed to the model's size."""
    size = (settings["crop_size"]["width"], settings["crop_size"]["height"])
    files = sorted(file for file in pathlib.Path(folder).iterdir() if file.suffix.lower() in (".jpg", ".jpeg", ".png"))[:24]
    pixels = np.stack([np.asarray(Image.open(file).convert("RGB").resize(size, Image.BICUBIC), np.float32) for file in files]) / 255
    return ((pixels - np.float32(settings["image_mean"])) / np.float32(settings["image_std"])).transpose(0, 3, 1, 2).copy()


def embed(path, pixels):
    """Returns the embeddings, and the least processor time of three calls, in milliseconds per image."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options)
    times = []
    for _ in range(3):
        begin = time.process_time()
        embeddings = session.run(["image_embeds"], {"pixel_values": pixels})[0]
        times.append(time.process_time() - begin)
    return embeddings, min(times) * 1000 / len(pixels)


class Half(CalibrationDataReader):
    """Every second image, one at a time."""

    def __init__(self, pixels):
        self.left = iter(pixels[::2])

    def get_next(self):
        image = next(self.left, None)
        return None if image is None else {"pixel_values": image[None]}


def in_blocks(source, path, size, level):
    settings = DefaultWeightOnlyQuantConfig(block_size=size, is_symmetric=True, accuracy_level=level, bits=8)
    quantizer = MatMulNBitsQuantizer(onnx.load(source), algo_config=settings)
    quantizer.process()
    quantizer.model.save_model_to_file(str(path), use_external_data_format=False)


def static(source, path, pixels):
    prepared = path.with_name("prepared.onnx")
    quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
    quantize_static(str(prepared), str(path), Half(pixels), per_channel=True, activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
                    **PRODUCTS)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=pathlib.Path, help="an exported folder with image.onnx in float32")
    parser.add_argument("--images", required=True, metavar="FOLDER")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    source = given.folder / "image.onnx"
    pixels = read_images(given.images, json.loads((given.folder / "preprocessor_config.json").read_text()))
    expected, duration = embed(source, pixels)
    print(f"float32: {duration:.1f} ms per image, {os.path.getsize(source) / 1e6:.0f} MB, {len(pixels)} images")
    ways = {f"dynamic, per {'channel' if each else 'tensor'}": lambda path, each=each: quantize_dynamic(
        str(source), str(path), weight_type=QuantType.QInt8, per_channel=each, **PRODUCTS) for each in (False, True)}
    ways["static, per channel"] = lambda path: static(source, path, pixels)
    for size, level in ((32, 0), (32, 4), (128, 4)):
        ways[f"blocks of {size}, level {level}"] = lambda path, size=size, level=level: in_blocks(source, path, size, level)
    with tempfile.TemporaryDirectory() as folder:
        for name, write in ways.items():
            path = pathlib.Path(folder) / "quantized.onnx"
            write(path)
            found, duration = embed(path, pixels)
            cosines = (found * expected).sum(1) / np.linalg.norm(found, axis=1)
            print(f"{name}: cosine {cosines.min():.4f} at least, {cosines.mean():.4f} on average; {duration:.1f} ms per image, "
                  f"{os.path.getsize(path) / 1e6:.0f} MB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
