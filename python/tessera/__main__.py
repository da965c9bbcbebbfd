"""python -m tessera prints the version and the programs; with --cmake-prefix, the folders for CMAKE_PREFIX_PATH; with export ..., writes a
model for ONNX Runtime or torch.export.load; with mteb ..., evaluates a model on tasks of the package mteb;
with NAME ..., runs a program."""
import sys

from . import _programs
from ._version import version

USAGE = """usage: python -m tessera [--version | --cmake-prefix | export RUN ... | mteb RUN ... | PROGRAM argument...]
  --version       print only the version
  --cmake-prefix  print the folders to put into CMAKE_PREFIX_PATH for find_package(Tessera)
  export RUN      write a model for ONNX Runtime or torch.export.load (export --help)
  mteb RUN        evaluate a model on MTEB's and MIEB's tasks (mteb --help)
  PROGRAM         run one of these programs, which are also console commands:"""


def run() -> None:
    if sys.argv[1:] == ["--version"]:
        print(version())
    elif sys.argv[1:] == ["--cmake-prefix"]:
        print(*_programs.cmake_prefixes(), sep=";")
    elif sys.argv[1:2] == ["export"]:
        from .export import main
        sys.exit(main(sys.argv[2:]))
    elif sys.argv[1:2] == ["mteb"]:
        from . import mteb
        sys.exit(mteb.main(sys.argv[2:]))
    elif len(sys.argv) > 1 and sys.argv[1] in _programs.PROGRAMS:
        sys.argv = sys.argv[1:]
        _programs.main()
    elif len(sys.argv) > 1 and sys.argv[1] not in ("-h", "--help"):
        sys.exit(f"tessera: there is no program {sys.argv[1]!r}; python -m tessera lists the programs")
    else:
        print(f"Tessera {version()}\n\n{USAGE}")
        for name, text in _programs.PROGRAMS.items():
            print(f"    {name:<16}{text}")


run()
