#!/usr/bin/env python3
"""Compares how Tessera and Pillow decode all image files in folders. Prints a Markdown table with a row for each kind of file, and a line for
each file that is not decoded equally. The pixels expected are those of Pillow's convert("RGB"), except that 16-bit gray levels keep their
upper 8 bits, which is Tessera's rule. A kind's files are those that begin like it, whatever their names.

  scripts/compare/decoding.py FOLDER... --probe build/bin/tessera-probe

Needs the packages pillow, numpy and safetensors, and a build of tessera-probe.
"""
import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings

try:
    import numpy
    from PIL import Image
    from safetensors.numpy import save_file
except ImportError as error:
    sys.exit(f"compare/decoding.py: {sys.executable}: {error}: pip install pillow numpy safetensors")

KINDS = {"JPEG": rb"\xff\xd8\xff", "PNG": rb"\x89PNG\r\n\x1a\n", "WebP": rb"RIFF....WEBP", "GIF": rb"GIF8[79]a", "BMP": rb"BM",
         "TIFF": rb"II[*+]\0|MM\0[*+]"}
COLUMNS = ["equal", "different", "refused", "refused by Pillow", "refused by both"]


def expected(file):
    """Returns Pillow's pixels [H, W, 3], or its error."""
    try:
        image = Image.open(file)
        image.load()
        if not image.mode.startswith("I"):
            return numpy.ascontiguousarray(image.convert("RGB")), None
        levels = numpy.asarray(image.convert("I"))
        if levels.min() < 0 or levels.max() > 65535:
            return None, "gray levels that are not from 0 to 65535"
        return numpy.repeat((levels >> 8).astype(numpy.uint8)[:, :, None], 3, 2), None
    except Exception as error:  # Pillow raises errors of many types for damaged files
        return None, f"{type(error).__name__}: {error}"


def decoded(probe, cases):
    """Runs tessera-probe on the cases. Returns for each its answer: the largest difference of a level, or the reason why it was refused."""
    run = subprocess.run([probe, "--json", *map(str, cases)], capture_output=True, text=True, errors="replace")
    said = {pathlib.Path(line[1]): line[2] for line in re.finditer(r"^tessera-probe: (.*?\.safetensors): (.*)$", run.stderr, re.MULTILINE)}
    for report in json.loads(run.stdout):
        row = report["rows"][0] if report["rows"] else {"error": 0, "problem": report.get("failure", "")}
        said[pathlib.Path(report["path"])] = "another size" if row.get("problem") else row["error"]
    return said


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--probe", default="build/bin/tessera-probe")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    table, notes = {kind: collections.Counter() for kind in KINDS}, []
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for file in sorted(file for each in arguments.folders for file in each.rglob("*") if file.is_file()):
            content = file.read_bytes()
            kind = next((kind for kind, start in KINDS.items() if re.match(start, content, re.DOTALL)), None)
            if kind:
                pixels, error = expected(file)
                case = pathlib.Path(folder) / f"{len(files)}.safetensors"
                save_file({"in.file": numpy.frombuffer(content, numpy.uint8), "out.rgb": numpy.zeros((1, 1, 3), numpy.uint8) if pixels is None else pixels},
                          case, {"module": "image_decode", "settings": "{}", "rtol": "0", "note": ""})
                files.append((kind, file, error, case))
        said = decoded(arguments.probe, [case for *_, case in files])
    for kind, file, error, case in files:
        ours = said.get(case, "no answer")
        refused = isinstance(ours, str) and ours != "another size"
        column = (COLUMNS[4] if refused else COLUMNS[3]) if error else COLUMNS[2] if refused else COLUMNS[0] if ours == 0 else COLUMNS[1]
        table[kind][column] += 1
        if column != "equal":
            notes.append(f"{kind}, {column}: {file}" + (f": {ours}" if refused or not error else "") + (f" (Pillow: {error})" if error else ""))
    print("| |", " | ".join(COLUMNS), "|\n|", " --- |" * (len(COLUMNS) + 1))
    for kind, counts in table.items():
        print(f"| {kind} |", " | ".join(str(counts[column]) for column in COLUMNS), "|")
    print("", *notes, sep="\n")


if __name__ == "__main__":
    main()
