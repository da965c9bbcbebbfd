#!/usr/bin/env python3
"""Exports a small model of every family (tests/bindings/export_models.py) and published models (tests/data/foreign) to ONNX in float32,
float16 and int8, and compares ONNX Runtime with Tessera on photographs and captions. Prints a Markdown table.

  scripts/setup.sh --export
  PYTHON=~/.cache/tessera/libtorch-2.11.0/bin/python
  $PYTHON scripts/check/exports.py --images FOLDER --captions FILE                       # one row per model
  $PYTHON scripts/check/exports.py --images FOLDER --captions FILE --costs               # a ViT-B/32 only: the tables of docs/serving.md

The first 100 images of the folder and the first 100 lines of the file are used. The bars are those of the export's own check: an error of 1e-4
of the largest number in float32, 2e-2 in float16, and cosines of 0.999 in int8. Times are the shortest of ten calls, for one input and for
16, with OMP_NUM_THREADS threads. Exit code: 0; 1 if a model misses a bar; 77 if a Python package is missing.
"""
import argparse
import contextlib
import importlib.util
import io
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/bindings")]
import export_models  # noqa: E402

MISSING = [name for name in ("torch", "onnx", "onnxscript", "onnxruntime", "onnx_ir") if importlib.util.find_spec(name) is None]
PUBLISHED = ("clip_vision", "siglip_vision", "dinov2_registers", "dinov3", "vit", "openai/vit.pt", "openai/resnet.pt")
VIT_B32 = {"vitb32": ("../openclip/vitb32", ("data.train={name: shapes, size: 100}", "training.precision=fp32"), set())}
KINDS = ("1 image", "16 images", "1 text", "16 texts")
PRECISIONS = ("float32", "float16", "int8")


def exported(model, precision, folder, arguments):
    """Exports a model, and returns the exit code, the largest error, the smallest cosine, and {kind: (ONNX Runtime's ms, Tessera's)}."""
    from tessera import export
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = export.main([str(model), "--to", "onnx", "--precision", precision, "--out", str(folder), "--time", *arguments])
    said = out.getvalue()
    if code == 2 or not said:
        return code, err.getvalue().strip(), None, {}
    errors = [float(number) for number in re.findall(r"error at most ([\d.e+-]+)", said)]
    cosines = [float(number) for number in re.findall(r"cosine at least ([\d.-]+)", said)]
    times = {kind: (float(a), float(b)) for kind, a, b in re.findall(r"^(\d+ \w+): ([\d.]+) ms .*? with onnx, ([\d.]+) ms", said, re.M)}
    return code, max(errors), min(cosines), times


def row_of(name, model, folder, arguments):
    """Returns the table's row of a model, and whether it is within the bars."""
    found = {precision: exported(model, precision, folder / f"{name.replace('/', '-')}-{precision}", arguments) for precision in PRECISIONS}
    refused = next((result[1] for result in found.values() if result[0] == 2), None)
    if refused:
        return f"| {name} | {refused.removeprefix('tessera export: ')} |" + " |" * (3 + len(KINDS) - 1), False
    mark = lambda precision, text: text + (" **missed**" if found[precision][0] else "")
    times = [f"{found['float32'][3][kind][1]:.1f} / {' / '.join(f'{found[p][3][kind][0]:.1f}' for p in PRECISIONS)}" if kind in found["float32"][3] else ""
             for kind in KINDS]
    cells = [name, mark("float32", f"{found['float32'][1]:.1e}"), mark("float16", f"{found['float16'][2]:.5f}"),
             mark("int8", f"{found['int8'][2]:.5f}"), *times]
    return "| " + " | ".join(cells) + " |", not any(result[0] for result in found.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--images", required=True, metavar="FOLDER")
    parser.add_argument("--captions", required=True, metavar="FILE")
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
    print("| model | float32: largest error | float16: least cosine | int8: least cosine | " +
          " | ".join(f"{kind}, ms: Tessera / float32 / float16 / int8" for kind in KINDS) + " |\n" + "| --- " * (4 + len(KINDS)) + "|", flush=True)
    good = True
    with tempfile.TemporaryDirectory() as temporary:
        runs = pathlib.Path(given.runs or temporary)
        for name in names:
            if name.startswith("published "):
                model = ROOT / "tests/data/foreign" / name.removeprefix("published ")
            elif not (model := runs / name).exists():
                export_models.train(given.build / "bin", name, model)
            row, within = row_of(name, model, pathlib.Path(temporary) / "exported", ["--images", given.images, "--captions", given.captions])
            print(row, flush=True)
            good &= within
        if given.costs:
            print(flush=True)
            subprocess.run([sys.executable, str(ROOT / "scripts/compare/onnx_quantization.py"), str(pathlib.Path(temporary) / "exported/vitb32-float32"),
                            "--images", given.images], check=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
