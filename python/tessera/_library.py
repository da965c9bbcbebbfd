"""Finds and loads Tessera's shared library. This module imports torch only when the library is loaded."""
from __future__ import annotations

import contextlib
import mmap
import os
import pathlib
import re
from typing import Any, Iterator, Optional, Union

__all__ = ["MissingFile", "library_file", "load_library"]

# libtessera.so has everything (operators, models, loader). A build without data libraries has only libtessera_ops.so, with the operators.
_NAMES = ("libtessera.so", "libtessera_ops.so")
_MADE_FOR = re.compile(rb"tessera_ops for PyTorch (\d+\.\d+)")
loaded: Optional[pathlib.Path] = None


def _places() -> list[pathlib.Path]:
    here = pathlib.Path(__file__).resolve().parent
    # In the wheel, the library is in tessera/lib/. In the source tree, it is in build/lib/, next to python/tessera/. In an installation, it
    # is in lib/ or the distribution's equivalent, and this file is in share/tessera/python/tessera/.
    prefix = here.parents[3] if len(here.parents) > 3 else here
    return [here / "lib", here.parents[1] / "build" / "lib", prefix / "lib", *sorted(prefix.glob("lib*/*-linux-gnu")), prefix / "lib64"]


def library_file(library: Union[str, os.PathLike, None] = None) -> pathlib.Path:
    """Returns the path of the library.

    library  a path to use instead of searching; None: search TESSERA_LIBRARY, the wheel, build/lib of the source tree, and lib of the
             installation
    returns  a pathlib.Path of an existing file
    raises   ImportError that lists the searched places
    """
    for named, by in ((library, "the argument"), (os.environ.get("TESSERA_LIBRARY"), "TESSERA_LIBRARY")):
        if named and not pathlib.Path(named).is_file():
            raise ImportError(f"tessera: {by} names {named}, but there is no such file")
        if named:
            return pathlib.Path(named)
    places = _places()
    for place in places:
        for name in _NAMES:
            if (place / name).is_file():
                return place / name
    raise ImportError(f"tessera: no {' or '.join(_NAMES)} in {', '.join(map(str, places))}: build Tessera "
                      "(scripts/setup.sh), or name the file in TESSERA_LIBRARY")


def made_for(file: pathlib.Path) -> str:
    """Returns the PyTorch series that the library was built for, such as "2.11". Raises ImportError if the file is not Tessera's
    library."""
    if file.stat().st_size:
        with open(file, "rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
            found = _MADE_FOR.search(content)
            if found:
                return found[1].decode()
    raise ImportError(f"tessera: {file} is not Tessera's library, or is older than this module")


def load_library(library: Union[str, os.PathLike, None] = None) -> pathlib.Path:
    """Loads the library, unless it is already loaded.

    library  its path; None: search for it
    returns  the pathlib.Path of the loaded file
    raises   ImportError if there is no such file or it was built for another PyTorch
    """
    global loaded
    if loaded is None:
        import torch
        file = library_file(library)
        series = made_for(file)
        if torch.__version__.split(".")[:2] != series.split("."):
            raise ImportError(f"tessera: {file} was built for PyTorch {series}, but this is PyTorch {torch.__version__}: install "
                              f"torch=={series}.*, or build Tessera with this one (CMAKE_PREFIX_PATH=its folder scripts/setup.sh)")
        try:
            torch.ops.load_library(str(file))
        except OSError as error:
            raise ImportError(f"tessera: {file} cannot be loaded: {error}") from error
        loaded = file
    return loaded


class MissingFile(FileNotFoundError, RuntimeError):
    """A file or folder that does not exist. All other mistakes are a RuntimeError."""


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Raises the library's errors with the names of Python's arguments instead of the programs' options."""
    try:
        yield
    except RuntimeError as error:
        text = re.sub(r"(?<![\w-])--(device|architecture|image-size|state)\b", lambda option: option[1].replace("-", "_"), str(error))
        raise (MissingFile if re.search(r"no such file|no file matches|does not exist", text) else RuntimeError)(text) from None


def bound_class(name: str) -> Any:
    """Returns a class that the library registers. Raises ImportError if the library has only operators."""
    import torch
    file = load_library()
    try:
        return getattr(torch.classes.tessera, name)
    except RuntimeError as error:
        raise ImportError(f"tessera: {file} has no {name}: it has only operators, because it was built without data libraries "
                          "(scripts/setup.sh builds them)") from error
