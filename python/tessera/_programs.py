"""The wheel's console commands: each becomes the program of its name, which uses the installed PyTorch's libraries."""
from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import sys
from typing import NoReturn

from . import _library

PROGRAMS = {
    "trainer": "trains a model as a YAML file says: trainer --config shapes_sparc",
    "evaluate": "measures checkpoints: retrieval, classification, segmentation, and an HTML report",
    "tessera-bench": "what steps, losses, kernels, read-outs, data and optimizers cost on this machine",
    "tessera-convert": "reads and writes models of OpenCLIP, transformers, timm and others",
    "tessera-data": "looks into data, packs it into shards, makes the shapes, trains tokenizers",
    "tessera-embed": "embeddings of pictures and texts, into .safetensors or .npy",
    "tessera-index": "inverted index of sparse embeddings, and search in it",
    "tessera-probe": "runs reference cases through the modules that they name",
    "tessera-report": "charts and tables of runs, beside each other",
}
HERE = pathlib.Path(__file__).resolve().parent


def torch_libraries(name: str) -> pathlib.Path:
    """The folder of the installed PyTorch's libraries; ends the process with one line where there is none of the right series.

    Nothing of torch is imported: that takes seconds.
    """
    series = _library.made_for(_library.library_file())
    try:
        found = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        found = None
    if found is None or found.origin is None:
        sys.exit(f"{name}: PyTorch is not installed in {sys.prefix}: pip install 'torch=={series}.*'")
    folder = pathlib.Path(found.origin).parent
    version = re.search(r"^__version__ = '([^']+)'", (folder / "version.py").read_text(encoding="utf-8"), re.M)
    has = version[1] if version else "of no known version"
    if has.split(".")[:2] != series.split("."):
        sys.exit(f"{name}: built for PyTorch {series}, but {folder} is PyTorch {has}: pip install 'torch=={series}.*'")
    return folder / "lib"


def program_file(name: str) -> pathlib.Path:
    """Where the program is: in the wheel, or in the source tree's build folder."""
    places = [HERE / "bin" / name, HERE.parents[1] / "build" / "bin" / name]
    for place in places:
        if place.is_file():
            return place
    sys.exit(f"{name}: neither {' nor '.join(map(str, places))} is there: install the wheel again (pip install --force-reinstall), "
             "or build (scripts/setup.sh)")


def main() -> NoReturn:
    """The console command that the process was started as."""
    name = pathlib.Path(sys.argv[0]).name
    program = program_file(name)
    environment = dict(os.environ)
    libraries = torch_libraries(name)
    # The program looks beside the wheel. PyTorch may lie elsewhere: behind a virtual environment with the system's packages, say.
    if libraries.resolve() != (HERE.parent / "torch" / "lib").resolve():
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, (str(libraries), environment.get("LD_LIBRARY_PATH"))))
    os.execve(program, [name, *sys.argv[1:]], environment)
