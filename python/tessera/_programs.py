"""The wheel's console commands: each replaces itself with the program of the same name, which uses the installed PyTorch's libraries."""
from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import sys
from typing import NoReturn, Optional

from . import _library

PROGRAMS = {
    "trainer": "trains a model from a YAML file: trainer --config shapes_sparc",
    "evaluate": "evaluates checkpoints: retrieval, classification, segmentation, and an HTML report",
    "tessera-bench": "measures the cost of steps, losses, kernels, read-outs, data loading and optimizers on this machine",
    "tessera-convert": "reads and writes models of OpenCLIP, transformers, timm and others",
    "tessera-data": "inspects data, packs it into shards, makes hard negatives, trains tokenizers",
    "tessera-embed": "writes embeddings of images and texts to .safetensors or .npy files",
    "tessera-index": "builds and searches an inverted index of sparse embeddings",
    "tessera-report": "compares runs in charts and tables",
    "tessera-serve": "answers requests over HTTP: embeddings, similarity, classes, search, maps of words; and shows a page",
}
HERE = pathlib.Path(__file__).resolve().parent


def torch_folder() -> Optional[pathlib.Path]:
    """Returns the folder of the installed PyTorch, or None. It does not import torch, which takes seconds."""
    try:
        found = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        found = None
    return None if found is None or found.origin is None else pathlib.Path(found.origin).parent


def torch_libraries(name: str) -> pathlib.Path:
    """Returns the folder of the installed PyTorch's libraries. Exits with a one-line message if there is no PyTorch of the right series."""
    series = _library.made_for(_library.library_file())
    folder = torch_folder()
    if folder is None:
        sys.exit(f"{name}: PyTorch is not installed in {sys.prefix}: pip install 'torch=={series}.*'")
    version = re.search(r"^__version__ = '([^']+)'", (folder / "version.py").read_text(encoding="utf-8"), re.M)
    has = version[1] if version else "of an unknown version"
    here = ".".join(has.split(".")[:2])
    if here != series:
        sys.exit(f"{name}: built for PyTorch {series}, but {folder} is PyTorch {has}: {_library.remedy(series, here)}")
    return folder / "lib"


def cmake_prefixes() -> list[pathlib.Path]:
    """Returns the folders for CMAKE_PREFIX_PATH: Tessera's and, unless it is next to Tessera's, PyTorch's."""
    torch = torch_folder()
    return [HERE] if torch is None or torch.parent.resolve() == HERE.parent else [HERE, torch]


def program_file(name: str) -> pathlib.Path:
    """Returns the path of the program: in the build folder of TESSERA_LIBRARY, in the wheel, or in the source tree's build folder."""
    places = [HERE / "bin" / name, HERE.parents[1] / "build" / "bin" / name]
    if library := os.environ.get("TESSERA_LIBRARY"):  # lib/libtessera.so of another build folder
        places.insert(0, pathlib.Path(library).resolve().parents[1] / "bin" / name)
    for place in places:
        if place.is_file():
            return place
    sys.exit(f"{name}: neither {' nor '.join(map(str, places))} exists: install the wheel again (pip install --force-reinstall), "
             "or build (scripts/setup.sh)")


def main() -> NoReturn:
    """Runs the console command that the process was started as."""
    name = pathlib.Path(sys.argv[0]).name
    program = program_file(name)
    environment = dict(os.environ)
    libraries = torch_libraries(name)
    # By default the program looks for PyTorch next to the wheel. PyTorch may be elsewhere, for example if a virtual environment uses the
    # system's PyTorch.
    if libraries.resolve() != (HERE.parent / "torch" / "lib").resolve():
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, (str(libraries), environment.get("LD_LIBRARY_PATH"))))
    os.execve(program, [name, *sys.argv[1:]], environment)
