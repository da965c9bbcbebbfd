"""Tessera in Python: trained models as PyTorch modules, the data loader, the operators of its losses, and its programs.

    import tessera
    model = tessera.load("runs/mine")                            # a run folder, a checkpoint or a model file
    similarity = model.encode_image(["cat.jpg"]) @ model.encode_text(["a cat"]).T
    for batch in tessera.Loader({"name": "webdataset", "path": "shards/*.tar"}, model=model, batch_size=256): ...
    loss = tessera.sparsify_group(words, patches, mask)          # tessera.functional contains all operators
    objective = tessera.objectives.Objective("sparc", model)     # the trainer's losses as modules, for training loops in Python
    tessera.read_runs("runs")                                    # the results of runs, as a table

The library is built for one version series of PyTorch, CUDA or CPU. `python -m tessera` lists the programs.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .functional import (flops_regularizer, linear_cross_entropy, linear_soft_cross_entropy, max_similarity, roi_align,  # noqa: F401
                             sparsify_group, text_conditioned_loss, text_conditioned_pool, token_max_projection)
    from .loader import Loader  # noqa: F401
    from .models import Model, load  # noqa: F401
    from .runs import read_runs  # noqa: F401

# These names are loaded on first use, because their modules import torch, which the console commands do not need.
_FROM = {
    **dict.fromkeys(("flops_regularizer", "linear_cross_entropy", "linear_soft_cross_entropy", "max_similarity", "roi_align",
                     "sparsify_group", "text_conditioned_loss", "text_conditioned_pool", "token_max_projection"), "functional"),
    **dict.fromkeys(("library_file", "load_library"), "_library"),
    **dict.fromkeys(("Model", "load"), "models"),
    "Loader": "loader",
    "read_runs": "runs",
}
_MODULES = ("functional", "loader", "models", "objectives", "plain_model", "runs")

__all__ = sorted([*_FROM, *_MODULES, "__version__"])


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from ._version import version
        return version()
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _FROM:
        return getattr(importlib.import_module(f"{__name__}.{_FROM[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
