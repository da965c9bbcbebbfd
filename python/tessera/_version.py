"""The version, which CMakeLists.txt has and the wheel's metadata repeat."""
import importlib.metadata
import pathlib
import re


def version() -> str:
    """That of the source tree or the installation that this file lies in, or of the wheel; "unknown" where there is none."""
    root = pathlib.Path(__file__).resolve().parents[2]  # of an installation, share/tessera
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
