"""Tessera's training loader as an iterable of PyTorch tensors."""
from __future__ import annotations

import json
import os
import pathlib
import weakref
from typing import TYPE_CHECKING, Any, Dict, Iterator, Mapping, Optional, Sequence, Union

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from ._library import Bound, plain_errors

if TYPE_CHECKING:
    from .blocks import BlockModel
    from .models import Model, Tokenizer

__all__ = ["Loader"]

Batch = Dict[str, Union[Tensor, list[str]]]
Choice = Union[str, Mapping[str, Any]]

loaders_alive: "weakref.WeakSet[Loader]" = weakref.WeakSet()  # a model compares their tokenizers with its own
vocabularies = WeakIdKeyDictionary()  # token ids -> Loader.tokenizer_identity of the tokenizer that made them


class Loader:
    """Yields batches of decoded, augmented images and token ids, made by C++ threads without Python's lock.

        model = tessera.load("runs/mine")
        loader = tessera.Loader({"name": "webdataset", "path": "shards/*.tar"}, model=model, batch_size=256, threads=8)
        for epoch in range(3):
            for batch in loader:                                                        # one epoch
                images = model.encode_image(batch["image"])                             # uint8, which the model itself normalizes
                texts = model.encode_text(batch["caption"], batch["caption_mask"])

    For a model of your own, name a tokenizer and a size: tessera.Loader(source, tokenizer="clip-bpe", image_size=224).
    A batch is a dict: `image` uint8 [B, 3, H, W], not normalized, `caption` int64 [B, L] and `caption_mask` bool [B, L],
    `labels` int64 [B] (-1: none), `keys` a list of the samples' names. The threads fill these tensors directly: nothing is copied.
    The samples, their order and their augmentation depend only on `seed`, the source and the settings, not on `threads`.
    """

    def __init__(self, source: Choice, *, model: Union["Model", "BlockModel", None] = None, tokenizer: Union[Choice, "Tokenizer", None] = None,
                 image_size: Union[int, Sequence[int], None] = None, batch_size: int = 64, threads: int = 2, shuffle: bool = True,
                 seed: int = 0, rank: int = 0, world_size: int = 1, pin_memory: bool = False,
                 preprocessing: Optional[Mapping[str, Any]] = None, objective: Any = None, images: Sequence[str] = ("image",), texts: Sequence[str] = ("caption",),
                 **settings: Any):
        """
        source         like data.train of a configuration: a name ("shapes") or {"name": NAME, ...}
        model          a model of tessera.load, which gives tokenizer, image_size and preprocessing
        tokenizer      like tokenizer of a configuration, or a model's tokenizer; None: no texts; "clip-bpe" uses CLIP's shipped vocabulary
        image_size     pixels: the side of a square, or [height, width]; None: 224
        threads        decoding threads; they affect only the speed
        rank           the index of this process among world_size processes, which share the samples
        pin_memory     batches are in page-locked memory, from which a GPU copies without waiting
        preprocessing  like model.preprocessing of a configuration, without image_size
        objective      a tessera.objectives.Objective, whose views and other tensors the batches then have; or an objective of your own with a
                       member `needs` of this form, {"images": {"image": [...]}, "texts": {"caption": [...]}}
        images, texts  the names of the views, without an objective
        settings       further settings of data.loader (docs/configuration.md): augmentation={"scale": [0.9, 1.0]}, caption_choice="first", ...
        raises         RuntimeError, one line that names the setting or file; if a file is missing, it is a FileNotFoundError, too
        """
        if model is not None:
            if not hasattr(model, "takes_texts"):
                raise TypeError(f"Loader: model is a {type(model).__name__}: give the result of tessera.load()")
            own = {"tokenizer": tokenizer, "image_size": image_size, "preprocessing": preprocessing}
            given = [name for name, value in own.items() if value is not None]
            if given:
                raise RuntimeError(f"Loader: {given[0]} is the model's, so with model= leave it out")
            tokenizer, preprocessing = model.tokenizer if model.takes_texts else None, model.preprocessing
        handle = objective._bound.handle if hasattr(objective, "_bound") else None
        if objective is not None:
            images, texts = objective.needs["images"], objective.needs["texts"]
        vocabulary = torch.empty(0, dtype=torch.uint8)
        if model is None and image_size is not None and "image_size" in (preprocessing or {}):
            raise RuntimeError("Loader: image_size is given twice: leave it out of preprocessing")
        if tokenizer is not None and not isinstance(tokenizer, (str, Mapping)):
            if not hasattr(tokenizer, "vocabulary_tensor"):
                raise TypeError(f"Loader: tokenizer is a {type(tokenizer).__name__}: give a name, settings, or a model's tokenizer")
            tokenizer, vocabulary = tokenizer.settings, tokenizer.vocabulary_tensor()
        if tokenizer in ("clip-bpe", {"name": "clip-bpe"}):
            tokenizer = {"name": "clip-bpe", "merges": str(_shipped() / "vocabularies/clip-bpe/bpe_simple_vocab_16e6.txt.gz")}
        description = {
            "source": source,
            "tokenizer": tokenizer,
            "preprocessing": {"image_size": 224 if image_size is None else image_size, **(preprocessing or {})},
            "loader": {"batch_size": batch_size, "threads": threads, "shuffle": shuffle, **settings},
            "images": list(images),
            "texts": list(texts),
        }
        with plain_errors():
            self._bound = Bound("loader", json.dumps(description, default=os.fspath), vocabulary, seed, rank, world_size,
                                pin_memory, handle)
        self.tokenizer_identity = self._bound.tokenizer_identity()
        loaders_alive.add(self)

    def __reduce__(self) -> Any:
        raise TypeError("a Loader has threads and open files, so it cannot be copied or pickled: make another one and give it state_dict()")

    def __len__(self) -> int:
        """The number of batches per epoch, if no sample is skipped."""
        return self._bound.batches_per_epoch()

    def __iter__(self) -> Iterator[Batch]:
        """Iterates over the rest of the current epoch. The next iteration starts the next epoch."""
        epoch = self._bound.position()[0]
        while self._bound.position()[0] == epoch:
            yield self.next()

    def next(self) -> Batch:
        """Returns the next batch, across epochs. Raises RuntimeError if too many samples are bad or the source fails."""
        tensors, keys = self._bound.next()
        for tensor in tensors.values():
            if tensor.dtype == torch.int64:
                vocabularies[tensor] = self.tokenizer_identity
        return {**tensors, "keys": keys}

    __next__ = next

    @property
    def epoch(self) -> int:
        """The epoch of the next batch."""
        return self._bound.position()[0]

    def skipped(self) -> dict[str, int]:
        """The number of samples skipped so far, by reason."""
        return dict(self._bound.skipped())

    def state_dict(self) -> dict[str, int]:
        """The position of the next batch. Another loader of the same data can continue there, also with another number of processes."""
        epoch, cursor = self._bound.position()
        return {"epoch": epoch, "cursor": cursor}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continues at the position that state_dict() returned."""
        self._bound.seek(state["epoch"], state["cursor"])


def _shipped() -> pathlib.Path:
    """The folder of the shipped configurations in the wheel, the source tree, or the installation."""
    here = pathlib.Path(__file__).resolve().parent
    places = [here / "share/tessera/configs", here.parents[1] / "configs"]
    return next((place for place in places if place.is_dir()), places[0])
