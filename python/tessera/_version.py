"""The version, read from CMakeLists.txt or the wheel's metadata."""
import importlib.metadata
import pathlib
import re


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
