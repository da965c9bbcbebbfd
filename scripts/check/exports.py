#!/usr/bin/env python3
"""Exports a small model of every family (tests/bindings/export_models.py) and published models (tests/data/foreign) to ONNX in float32,
float16 and int8, and compares ONNX Runtime with Tessera on photographs and captions. Prints a Markdown table.

  scripts/setup.sh --export
  PYTHON=~/.cache/tessera/libtorch-2.11.0/bin/python
  $PYTHON scripts/check/exports.py --images FOLDER --captions FILE                       # one row per model
  OMP_NUM_THREADS=1 $PYTHON scripts/check/exports.py --images tests/data/images --costs  # a ViT-B/32: the tables of docs/serving.md

The first 100 images of the folder and the first 100 lines of the file (default: 12 captions) are used. The bars are those of the export's
own check: an error of 1e-4 of the largest number in float32, and cosines of 0.999 in float16 and int8. Times are the shortest of ten calls,
for one input and for 16, with OMP_NUM_THREADS threads. Exit code: 0; 1 if a model misses a bar; 77 if a Python package is missing.
"""
import argparse
import contextlib
import importlib.util
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/bindings")]
import export_models  # noqa: E402

MISSING = [name for name in ("torch", "onnx", "onnxscript", "onnxruntime", "onnx_ir") if importlib.util.find_spec(name) is None]
PUBLISHED = ("clip_vision", "siglip_vision", "dinov2_registers", "dinov3", "vit")
VIT_B32 = {"vitb32": ("../openclip/vitb32", ("data.train={name: shapes, size: 100}", "training.precision=float32"), set())}
KINDS = ("1 image", "16 images", "1 text", "16 texts")
PRECISIONS = ("float32", "float16", "int8")


class Found(NamedTuple):
    good: bool                               # whether all outputs are within the bar
    error: float                             # the largest
    cosine: float                            # the least
    times: dict[str, tuple[float, float]]    # for each kind, milliseconds of ONNX Runtime and of Tessera


def measured(plan, samples, precision, folder):
    """Compares the files of a folder with the model."""
    from tessera import export
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        good = export.check(plan, samples, "onnx", precision, folder)
        export.print_times(plan, samples, "onnx", folder)
    said = out.getvalue()
    tokens = re.search(r"ids of (\d+) of (\d+) captions", said)
    errors = [float(number) for number in re.findall(r"error at most ([\d.e+-]+)", said)]
    cosines = [float(number) for number in re.findall(r"cosine at least ([\d.-]+)", said)]
    times = {kind: (float(a), float(b)) for kind, a, b in re.findall(r"^(\d+ \w+): ([\d.]+) ms .*? with onnx, ([\d.]+) ms", said, re.M)}
    return Found(good and (not tokens or tokens[1] == tokens[2]), max(errors), min(cosines), times)


def measure(name, model, folder, images, captions):
    """Returns {precision: Found}. The int8 files are quantized from those in float32. Raises RuntimeError, one line."""
    from tessera import export, models
    ours = models.load(model, device="cpu")
    samples, plan = export.Samples(ours, images, captions), export.Plan(ours, False)
    found = {}
    for precision in PRECISIONS:
        place = folder / precision / name.replace("/", "-")
        if precision == "int8":
            shutil.copytree(folder / "float32" / name.replace("/", "-"), place)
            for file in ("image.onnx", "text.onnx"):
                if (place / file).exists():
                    export.quantize(place / file)
        else:
            place.mkdir(parents=True)
            export.write_models(plan, "onnx", precision, place)
            export.write_files(plan, "onnx", precision, place)
        found[precision] = measured(plan, samples, precision, place)
    return found


def row_of(name, found):
    """Returns the table's row of a model."""
    times = [f"{found['float32'].times[kind][1]:.1f} / {' / '.join(f'{found[p].times[kind][0]:.1f}' for p in PRECISIONS)}"
             if kind in found["float32"].times else "" for kind in KINDS]
    cells = [f"{found['float32'].error:.1e}", f"{found['float16'].cosine:.5f}", f"{found['int8'].cosine:.5f}"]
    cells = [cell + ("" if found[precision].good else " **missed**") for cell, precision in zip(cells, PRECISIONS)]
    return "| " + " | ".join([name, *cells, *times]) + " |"


def print_costs(found, folder, images):
    """Prints the two tables of docs/serving.md: times beside Tessera's, and the ways to quantize an image tower."""
    print("\n| ms | Tessera | ONNX Runtime, float32 | float16 | int8 |\n| --- | --- | --- | --- | --- |")
    for kind in KINDS:
        own = [found[precision].times[kind][1] for precision in PRECISIONS]
        print(f"| {kind} | {min(own):.1f} to {max(own):.1f} | " + " | ".join(f"{found[p].times[kind][0]:.1f}" for p in PRECISIONS) + " |")
    print(flush=True)
    subprocess.run([sys.executable, str(ROOT / "scripts/compare/onnx_quantization.py"), str(folder / "float32/vitb32"), "--images", images],
                   check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--images", required=True, metavar="FOLDER")
    parser.add_argument("--captions", metavar="FILE")
    parser.add_argument("--models", nargs="+", metavar="NAME", help="only these rows")
    parser.add_argument("--costs", action="store_true", help="only a ViT-B/32 with random weights, and the ways to quantize it")
    parser.add_argument("--runs", metavar="FOLDER", help="keep the trained models in this folder, and use those that are there")
    parser.add_argument("--build", default=ROOT / "build", type=pathlib.Path, metavar="FOLDER")
    given = parser.parse_args()
    if MISSING:
        print(f"skipped: no {', '.join(MISSING)}: scripts/setup.sh --export")
        return 77
    os.environ.setdefault("TESSERA_LIBRARY", str(given.build / "lib/libtessera.so"))
    import torch
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", torch.get_num_threads())))
    export_models.RUNS.update(VIT_B32)
    names = given.models or (list(VIT_B32) if given.costs else
                             [name for name in export_models.RUNS if name not in VIT_B32] + [f"published {name}" for name in PUBLISHED])
    times = " | ".join(f"{kind}, ms: Tessera / float32 / float16 / int8" for kind in KINDS)
    print(f"| model | float32: largest error | float16: least cosine | int8: least cosine | {times} |\n" + "| --- " * (4 + len(KINDS)) + "|",
          flush=True)
    good = True
    with tempfile.TemporaryDirectory() as temporary:
        runs = pathlib.Path(given.runs or temporary)
        for name in names:
            if name.startswith("published "):
                model = ROOT / "tests/data/foreign" / name.removeprefix("published ")
            elif not (model := runs / name).exists():
                export_models.train(given.build / "bin", name, model)
            folder = pathlib.Path(temporary) / "exported"
            try:
                found = measure(name, model, folder, given.images, given.captions)
            except RuntimeError as error:
                print(f"| {name} | {str(error).splitlines()[0]} |" + " |" * (2 + len(KINDS)), flush=True)
                good = False
                continue
            print(row_of(name, found), flush=True)
            good &= all(result.good for result in found.values())
            if given.costs:
                print_costs(found, folder, given.images)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
