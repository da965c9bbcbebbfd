"""The version, which CMakeLists.txt has and the wheel's metadata repeat."""
import importlib.metadata
import pathlib
import re


def version() -> str:
    """That of the installed wheel, or of the source tree that this file lies in; "unknown" where there is neither."""
    project = pathlib.Path(__file__).resolve().parents[2] / "CMakeLists.txt"
    if project.is_file():
        found = re.search(r"project\(tessera VERSION ([\d.]+)", project.read_text(encoding="utf-8"))
        if found:
            return found[1]
    try:
        return importlib.metadata.version("tessera")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
