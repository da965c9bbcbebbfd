"""The version, read from CMakeLists.txt or the wheel's metadata."""
import importlib.metadata
import pathlib
import re

SERIES = ("2.11", "2.12", "2.13", "2.14", "2.15")  # of PyTorch, for which there can be a library (scripts/torch_series.sh)


def version() -> str:
    """Returns the version of the source tree, installation or wheel that contains this file, or "unknown"."""
    root = pathlib.Path(__file__).resolve().parents[2]  # share/tessera in an installation
    if (root / "VERSION").is_file():
        return (root / "VERSION").read_text(encoding="utf-8").strip()
    project = root / "CMakeLists.txt"
    if project.is_file():
        found = re.search(r"project\(tessera VERSION ([\d.]+)", project.read_text(encoding="utf-8"))
        if found:
            return found[1]
    try:
        return importlib.metadata.version("tessera")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def wheel_name(series: str) -> str:
    """Returns the name of the wheel of this version for a PyTorch series, such as "2.15". There is one wheel per series; the series is the
    local part of the wheel's version (PEP 440), so that "tessera==0.1.0" fits all of them and "tessera==0.1.0+torch2.15" only one."""
    return f"tessera-{version().partition('+')[0]}+torch{series}-py3-none-manylinux_2_34_x86_64.whl"
