"""Finds and loads Tessera's shared library. This module imports torch only when the library is loaded."""
from __future__ import annotations

import contextlib
import functools
import mmap
import os
import pathlib
import re
from typing import Any, Iterator, Optional, Union

from ._version import SERIES, wheel_name

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


def remedy(series: str, here: str) -> str:
    """Returns what to do if the library is for one PyTorch series and the installed PyTorch is of another."""
    other = f"'torch=={series}.*'"
    if here not in SERIES:
        return f"pip install {other}"
    return f"pip install {other} or {wheel_name(here)}; in a source tree, TESSERA_TORCH={here} scripts/setup.sh builds for this PyTorch"


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
        series, here = made_for(file), ".".join(torch.__version__.split(".")[:2])
        if here != series:
            raise ImportError(f"tessera: {file} was built for PyTorch {series}, but this is PyTorch {torch.__version__}: {remedy(series, here)}")
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


class Bound:
    """A C++ object of the library. Its methods are the operators torch.ops.tessera.KIND_*, which get the object's handle as first argument:
    an empty tensor that owns the object."""

    def __init__(self, kind: str, *arguments: Any, make: str = "make"):
        """Calls the operator KIND_make. Raises ImportError if the library has only operators for tensors."""
        import torch
        file = load_library()
        if not hasattr(torch.ops.tessera, f"{kind}_{make}"):
            raise ImportError(f"tessera: {file} has no {kind}: it has only operators, because it was built without data libraries "
                              "(scripts/setup.sh builds them)")
        self._kind = kind
        self.handle = self._operator(make)(*arguments)

    def _operator(self, name: str) -> Any:
        import torch
        return getattr(torch.ops.tessera, f"{self._kind}_{name}")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return functools.partial(self._operator(name), self.handle)

    def __reduce__(self) -> Any:
        """Copies and pickles hold the object's state, from which the operator KIND_restore makes another object."""
        return _restored, (self._kind, *self.state())


def _restored(kind: str, *state: Any) -> Bound:
    return Bound(kind, *state, make="restore")
