"""The trainer's objectives as PyTorch modules, for training loops in Python on one process or on the ranks of torch.distributed."""
from __future__ import annotations

import json
import os
from typing import Any, Mapping, NamedTuple, Optional, Union

import torch
import torch.distributed
from torch import Tensor

from ._library import Bound, load_library, plain_errors
from .models import Model, _Part

__all__ = ["Losses", "Objective", "gather_rows"]

Features = Mapping[str, Union[Tensor, Mapping[str, Tensor]]]
Group = Optional[torch.distributed.ProcessGroup]


class Losses(NamedTuple):
    """What an Objective returns."""

    total: Tensor                  # a scalar with a gradient: this rank's loss. The mean over the ranks is the global batch's loss
    terms: dict[str, Tensor]       # scalars without weights and gradients, as in the trainer's log
    statistics: dict[str, Tensor]  # further numbers of the trainer's log


class Objective(_Part):
    """An objective of the trainer: its loss, gradients and parameters (logit_scale, decoders, prototypes ...).

        model = tessera.load("runs/mine").train()
        objective = tessera.objectives.Objective("sparc", model, global_weight=0.5)
        loader = tessera.Loader({"name": "webdataset", "path": "shards/*.tar"}, model=model, objective=objective)
        optimizer = torch.optim.AdamW({*model.parameters(), *objective.parameters()})
        for step, batch in enumerate(loader):
            losses = objective(model.features(batch, objective), step=step)
            optimizer.zero_grad()
            losses.total.backward()
            optimizer.step()
            objective.after_step()
        model.save("tuned.safetensors", objective)

    On several ranks, the loss is contrasted with the samples of all of them over the process group of torch.distributed. As in the
    trainer, the mean of the ranks' gradients is the gradient of the global batch's loss; DistributedDataParallel and fully_shard compute
    this mean.
    """

    def __init__(self, name: str, model: Any = None, *, group: Group = None, seed: int = 0, embed_dim: int = 0, image_width: int = 0,
                 vocab_size: int = 0, **settings: Any):
        """
        name         as objective.name in a configuration
        model        a model of tessera.load, whose weights of the objective are the initial ones; its own logit_scale is shared. None: give
                     embed_dim, the width of embeddings, and, if the objective has a part that needs them, image_width, the width of the
                     image encoder's tokens, and vocab_size, the number of token ids
        group        the ranks that share a batch; None: all ranks of torch.distributed if it is initialized, otherwise this process
        seed         random numbers of the loss depend only on the seed and the step
        settings     the objective's settings (docs/configuration.md)
        raises       RuntimeError, one line that names the setting
        """
        super().__init__()
        self._group, self._seed, self._step = group, seed, 0
        compiled = model if isinstance(model, Model) else None
        scale = None if compiled is None or compiled.logit_scale is None else compiled.logit_scale
        if model is not None and compiled is None:
            embed_dim, image_width, vocab_size = model.widths
        choice = json.dumps({"objective": {"name": name, **settings}}, default=os.fspath)
        with plain_errors():
            self._bound = Bound("objective", choice, embed_dim, image_width, vocab_size,
                                None if compiled is None else compiled._bound.handle, scale)
        self.needs: dict[str, dict[str, list[str]]] = json.loads(self._bound.needs())
        for tensor_name, tensor in self._bound.tensors().items():
            self._hold(tensor_name, tensor)
        if model is not None:
            self._start_from(model)

    def _start_from(self, model: Any) -> None:
        """Copies the tensors of the model's file that fit; those of another objective do not."""
        weights = dict(model.objective)
        for name in ("logit_scale", "logit_bias"):
            if getattr(model, name, None) is not None:
                weights[name] = getattr(model, name)
        with torch.no_grad():
            for name, tensor in self._bound.tensors().items():
                if name in weights and weights[name].numel() == tensor.numel():
                    tensor.copy_(weights[name].reshape(tensor.shape))

    def __reduce__(self) -> Any:
        raise TypeError("an Objective cannot be copied or pickled: make another one and give it state_dict()")

    def train(self, mode: bool = True) -> "Objective":
        self._bound.train(mode)
        return super().train(mode)

    def forward(self, features: Features, *, step: Optional[int] = None, total_steps: int = 0, epoch: int = 0) -> Losses:
        """Returns the loss of this rank's samples.

        features     of model.features(batch, objective): for each view that self.needs names a dict of embeddings [B, D], tokens [B, N, W],
                     mask [B, N] and so on, from any towers; nothing is normalized
        step         the number of updates before this one; None: the number of calls of after_step()
        total_steps  of the run; 0: unknown
        raises       RuntimeError that names a tensor that is missing or has a wrong shape
        """
        self._step = self._step if step is None else step
        tensors: dict[str, Tensor] = {}
        for name, value in features.items():
            if isinstance(value, Tensor):
                tensors[name] = value
            else:
                tensors.update({f"{name}.{part}": tensor for part, tensor in value.items()})
        with plain_errors():
            return Losses(*self._bound.forward(tensors, self._step, total_steps, epoch, self._seed, group_name(self._group)))

    def after_step(self) -> None:
        """Does what the objective does after each update, such as keeping logit_scale in its range."""
        self._bound.after_step(self._step)
        self._step += 1

    def weights(self) -> dict[str, Tensor]:
        """The tensors under their names in model files."""
        return {name if name in ("logit_scale", "logit_bias") else f"objective.{name}": tensor.detach()
                for name, tensor in self._bound.tensors().items()}


def group_name(group: Group) -> str:
    """Returns the name of a process group for the library; empty if this process has no other ranks."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return ""
    chosen = torch.distributed.group.WORLD if group is None else group
    return chosen.group_name if chosen.size() > 1 else ""


def gather_rows(rows: Tensor, group: Group = None) -> Tensor:
    """Gathers the rows of all ranks, for losses of your own.

    rows     [n, ...], of the same shape on each rank
    returns  [ranks * n, ...], in the order of the ranks. In the backward pass each rank gets the sum of all ranks' gradients of its own rows
    """
    load_library()
    name = group_name(group)
    return torch.ops.tessera.gather_rows(rows, name) if name else rows
