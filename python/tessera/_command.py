"""What the commands of `python -m tessera` share: the options that choose a model, and their errors."""
from __future__ import annotations

import argparse
import sys
from typing import Any, Callable, Union


class Refused(RuntimeError):
    """A mistake of the caller's, or something that a command cannot do, in one line."""


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options that load_model() reads."""
    parser.add_argument("--architecture", default="", help="OpenCLIP's name of the model, if no file next to the checkpoint says it")
    parser.add_argument("--image-size", type=int, nargs="+", metavar="PIXELS", help="another size of images: a side, or height and width")
    parser.add_argument("--state", default="", help="the key of the state dict to read, if a PyTorch file has several")


def load_model(given: argparse.Namespace, device: str) -> Any:
    """Loads the model `given.run`."""
    if len(given.image_size or []) > 2:
        raise Refused(f"--image-size {given.image_size}: give a side, or height and width")
    size: Union[int, list[int], None] = given.image_size[0] if given.image_size and len(given.image_size) == 1 else given.image_size
    from . import models
    return models.load(given.run, device, architecture=given.architecture, image_size=size, state=given.state)


def run_command(name: str, command: Callable[[argparse.Namespace], int], given: argparse.Namespace) -> int:
    """Runs a command and returns its exit code: 2, with one line of explanation, after a mistake."""
    try:
        return command(given)
    except (RuntimeError, ImportError, OSError, ValueError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        print(f"{name}: {lines[0]}", file=sys.stderr)
        return 2
