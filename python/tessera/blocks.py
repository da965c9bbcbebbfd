"""Models as a tree of plain PyTorch blocks, which fully_shard, torch.compile and checkpointing can wrap one by one."""
from __future__ import annotations

import base64
import json
import os
import pathlib
from typing import Any, Iterator, Mapping, NamedTuple, Optional, Union

import torch
from torch import Tensor

from . import plain_model
from ._library import Bound, plain_errors

__all__ = ["BlockModel", "StoredTokenizer"]

# What plain towers compute for an objective, apart from embeddings
PARTS = {"tokens", "dense", "slots", "ids"}


class StoredTokenizer(NamedTuple):
    """A model's tokenizer for tessera.Loader(..., model=model)."""

    settings: Mapping[str, Any]
    vocabulary: Optional[Tensor]  # the bytes of its file

    def vocabulary_tensor(self) -> Tensor:
        """The bytes of the vocabulary's file, uint8 [n]."""
        return torch.empty(0, dtype=torch.uint8) if self.vocabulary is None else self.vocabulary


def _of_objective(name: str) -> bool:
    return name in ("logit_scale", "logit_bias") or name.startswith("objective.")


def _refuse_other_training(settings: Mapping[str, Any], tensors: Mapping[str, Tensor], path: str) -> None:
    """Raises ValueError if the trainer's forward pass differs from the plain one."""
    if settings["preprocessing"].get("resize_mode") == "naflex":
        raise ValueError(f"{path}: model.preprocessing.resize_mode is naflex, which plain blocks do not train: use tessera.load without blocks")
    for tower in ("image", "text"):
        for part in ("encoder", "readout", "projection"):
            for name, value in ((settings.get(tower) or {}).get(part) or {}).items():
                if "drop" in name and value:
                    raise ValueError(f"{path}: model.{tower}.{part}.{name} is {value}, which plain blocks do not do: use tessera.load without blocks")
    if any(name.endswith("running_mean") for name in tensors):
        raise ValueError(f"{path}: has batch norms, which plain blocks do not train: use tessera.load without blocks")


class BlockModel(plain_model.Model):
    """A dual encoder in plain PyTorch whose transformer blocks are modules, for training in Python. tessera.load(..., blocks=True) makes it.

        model = tessera.load("runs/mine", blocks=True)
        for block in model.blocks():
            fully_shard(block)
        fully_shard(model)
        losses = objective(model(batch, objective))            # a batch of tessera.Loader(..., model=model, objective=objective)

    The parameters have OpenCLIP's names, as those of tessera.load, and the features equal its features to 1e-5 in float32.
    """

    def __init__(self, bound: Bound):
        """
        bound   the compiled model, whose tensors the blocks use
        raises  ValueError that names a part that plain PyTorch does not have, or not in training: dropout, batch norm, dropped patches
        """
        tensors, metadata, path, self._tokenizer_error = bound.state()
        settings = json.loads(metadata["tessera.model"])
        own = {name: tensor for name, tensor in tensors.items() if not _of_objective(name)}
        _refuse_other_training(settings, own, path)
        vocabulary = base64.b64decode(metadata.get("tessera.vocabulary", ""))
        super().__init__(settings, own, json.loads(metadata.get("tessera.tokenizer", "{}")), vocabulary)
        self.path, self.metadata, self.widths = pathlib.Path(path), dict(metadata), tuple(bound.widths())
        # Takes the place of the plain model's settings, which name the vocabulary's file but do not have its bytes.
        self.tokenizer = StoredTokenizer(self.tokenizer, torch.frombuffer(bytearray(vocabulary), dtype=torch.uint8) if vocabulary else None)
        self.objective = {name.removeprefix("objective."): tensor for name, tensor in tensors.items() if _of_objective(name)}
        for name in ("mean", "std"):
            value = torch.tensor(settings["preprocessing"][name], dtype=torch.float32, device=self.device).view(3, 1, 1)
            self.register_buffer(f"pixel_{name}", value, persistent=False)
        self.requires_grad_().train()

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.parameters()).device

    def blocks(self) -> Iterator[torch.nn.Module]:
        """The transformer blocks of both towers, in the order of their names."""
        for name, module in self.named_modules():
            parent, _, last = name.rpartition(".")
            if last.isdigit() and parent.rpartition(".")[2] in ("resblocks", "token_blocks", "group_blocks"):
                yield module

    def forward(self, batch: Mapping[str, Any], objective: Any) -> dict[str, Any]:
        """Returns what the objective needs from the towers: for each view embeddings [B, D], and as needed tokens, dense, slots, ids.

        batch      of a Loader with objective=objective
        objective  a tessera.objectives.Objective, or any object with such a member `needs`
        raises     ValueError if the objective needs what plain towers do not compute
        """
        out: dict[str, Any] = {}
        device = self.device
        for kind in ("images", "texts"):
            for view, parts in objective.needs[kind].items():
                if not PARTS.issuperset(parts):
                    raise ValueError(f"the objective needs {', '.join(sorted(set(parts) - PARTS))} of {view}, which plain blocks do not "
                                     "compute: use tessera.load(...).features(batch, objective)")
                values = batch[view].to(device)
                out[view] = self._image(values, parts) if kind == "images" else self._text(values, batch[view + "_mask"].to(device), parts)
        for name in ("image_group", "caption_group", "captions_group"):
            if name in batch:
                out[name] = batch[name].to(device)
        return out

    features = forward

    def _image(self, pixels: Tensor, parts: list[str]) -> dict[str, Tensor]:
        if pixels.dtype == torch.uint8:
            pixels = (pixels.float() / 255 - self.pixel_mean) / self.pixel_std
        return self.image_outputs(pixels, parts)

    def _text(self, ids: Tensor, mask: Tensor, parts: list[str]) -> dict[str, Tensor]:
        several = ids.shape[:-1]  # [B], or [B, K] with K texts per image
        rows, real = ids.flatten(0, -2), mask.flatten(0, -2)
        out = self.text_outputs(rows, real, parts)
        if any(part in out and out[part].shape[1] == real.shape[1] for part in ("tokens", "dense")):
            out["mask"] = real
        if "ids" in parts:
            out.update(ids=rows, ids_mask=real)
        out = {name: tensor.unflatten(0, several) for name, tensor in out.items()}
        if len(several) > 1:
            out["present"] = mask.any(-1)
        return out

    @property
    def takes_texts(self) -> bool:
        """Whether there is a text tower."""
        return self.text is not None

    @property
    def preprocessing(self) -> dict[str, Any]:
        """How an image becomes the model's input."""
        return self.settings["preprocessing"]

    def save(self, path: Union[str, os.PathLike], objective: Any = None, *, weights: Optional[Mapping[str, Tensor]] = None) -> None:
        """Writes a model file, as Model.save does.

        path       ends in .safetensors
        objective  the Objective that the model was trained with; None: the file has the objective's tensors of the file that was read
        weights    whole tensors by their names; None: those of the model, which must not be sharded. For a sharded model, give what
                   get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)) returned on rank 0
        raises     RuntimeError, one line that names the file
        """
        given = dict(self.state_dict() if weights is None else weights)
        stored = {name if name in ("logit_scale", "logit_bias") else f"objective.{name}": tensor for name, tensor in self.objective.items()}
        tensors = {name: tensor.detach() for name, tensor in {**stored, **given}.items()}
        with plain_errors():
            Bound("model", tensors, self.metadata, os.fspath(self.path), self._tokenizer_error, make="restore").save(
                os.fspath(path), {} if objective is None else objective.weights())
