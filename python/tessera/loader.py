"""Tessera's training loader as an iterable of PyTorch's tensors."""
from __future__ import annotations

import json
import os
import pathlib
from typing import Any, Dict, Iterator, Mapping, Optional, Sequence, Union

from torch import Tensor

from ._library import bound_class

__all__ = ["Loader"]

Batch = Dict[str, Union[Tensor, list[str]]]
Choice = Union[str, Mapping[str, Any]]


class Loader:
    """Batches of decoded, augmented images and token ids, made by threads of C++ without Python's lock.

        loader = tessera.Loader({"name": "webdataset", "path": "shards/*.tar"}, tokenizer="clip-bpe", batch_size=256, threads=8)
        for epoch in range(3):
            for batch in loader:                                    # an epoch
                images = batch["image"].to("cuda").float() / 255    # uint8 [B, 3, H, W]
                ids, mask = batch["caption"], batch["caption_mask"]

    A batch is a dict: `image` uint8 [B, 3, H, W] (normalize it on the device), `caption` int64 [B, L] and `caption_mask` bool [B, L],
    `labels` int64 [B] (-1: none), `keys` a list of the samples' names. The tensors are those that the threads filled: nothing is
    copied. What comes, in which order and how augmented follows from `seed`, the source and the settings alone, not from `threads`.
    """

    def __init__(self, source: Choice, *, tokenizer: Optional[Choice] = None, image_size: Union[int, Sequence[int]] = 224, batch_size: int = 64,
                 threads: int = 2, shuffle: bool = True, seed: int = 0, rank: int = 0, world_size: int = 1, pin_memory: bool = False,
                 preprocessing: Optional[Mapping[str, Any]] = None, images: Sequence[str] = ("image",), texts: Sequence[str] = ("caption",),
                 **settings: Any):
        """
        source         as data.train of a configuration: a name ("shapes") or {"name": NAME, ...}
        tokenizer      as tokenizer of a configuration; None: no texts; "clip-bpe" alone has CLIP's shipped vocabulary
        image_size     pixels: the side of a square, or [height, width]
        threads        that decode; they change nothing but the speed
        rank           which of world_size processes this is: each sample belongs to one of them
        pin_memory     batches lie in page-locked memory, from where a GPU copies without waiting
        preprocessing  as model.preprocessing of a configuration, besides image_size
        images, texts  views, by the names that objectives know them by
        settings       further ones of data.loader (docs/configuration.md): augmentation={"scale": [0.9, 1.0]}, caption_choice="first", ...
        raises         RuntimeError, one line that names the setting or file
        """
        if tokenizer in ("clip-bpe", {"name": "clip-bpe"}):
            tokenizer = {"name": "clip-bpe", "merges": str(_shipped() / "vocabularies/clip-bpe/bpe_simple_vocab_16e6.txt.gz")}
        description = {
            "source": source,
            "tokenizer": tokenizer,
            "preprocessing": {"image_size": image_size, **(preprocessing or {})},
            "loader": {"batch_size": batch_size, "threads": threads, "shuffle": shuffle, **settings},
            "images": list(images),
            "texts": list(texts),
        }
        self._bound = bound_class("Loader")(json.dumps(description, default=os.fspath), seed, rank, world_size, pin_memory)

    def __len__(self) -> int:
        """Batches of an epoch, if no sample is left out."""
        return self._bound.batches_per_epoch()

    def __iter__(self) -> Iterator[Batch]:
        """What is left of the epoch that the next batch is of. The loader goes on with the next epoch when it is asked again."""
        epoch = self._bound.position()[0]
        while self._bound.position()[0] == epoch:
            yield self.next()

    def next(self) -> Batch:
        """The next batch, whatever epoch it is of. RuntimeError: too many samples are bad, or the source fails."""
        tensors, keys = self._bound.next()
        return {**tensors, "keys": keys}

    @property
    def epoch(self) -> int:
        """Of the batch that comes next."""
        return self._bound.position()[0]

    def skipped(self) -> dict[str, int]:
        """Samples left out so far, by reason."""
        return dict(self._bound.skipped())

    def state_dict(self) -> dict[str, int]:
        """Where the next batch starts; a loader of the same data goes on there, also one of another number of processes."""
        epoch, cursor = self._bound.position()
        return {"epoch": epoch, "cursor": cursor}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Goes on where state_dict() was taken."""
        self._bound.seek(state["epoch"], state["cursor"])


def _shipped() -> pathlib.Path:
    """The configurations that ship: of the wheel, the source tree, or the installation."""
    here = pathlib.Path(__file__).resolve().parent
    places = [here / "share/tessera/configs", here.parents[1] / "configs"]
    return next((place for place in places if place.is_dir()), places[0])
