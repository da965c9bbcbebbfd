"""Models trained by Tessera (or read by it: OpenCLIP's checkpoints) as torch.nn.Module, with their own preprocessing and tokenizer."""
from __future__ import annotations

import os
import pathlib
from typing import Any, Callable, Iterable, Sequence, Union, cast

import torch
from torch import Tensor

from ._library import bound_class

__all__ = ["Model", "load"]

# An image is the path of a file, the bytes of a file, a PIL image, or uint8 [H, W, 3] (gray: [H, W]) as a numpy array or a tensor.
Picture = Any


def load(path: Union[str, os.PathLike], device: str = "auto", *, architecture: str = "",
         image_size: Union[int, Sequence[int], None] = None, state: str = "") -> "Model":
    """Loads the model of a run folder, a checkpoint folder or a model file, in evaluation mode.

    path          may also be an OpenCLIP checkpoint; for a run folder, the newest checkpoint is loaded
    device        auto (the GPU if there is one), cpu, cuda or cuda:N
    architecture  OpenCLIP's name for the checkpoint's model (ViT-B-32), if neither open_clip_config.json next to it nor open_clip_train's
                  params.txt one folder above describes it
    image_size    pixels, one number or (height, width), instead of the model's own size; learned positions are resampled
    state         the key of the state dict to read, if a PyTorch file has several (model_ema)
    raises        RuntimeError, one line that names the file
    """
    size = [] if image_size is None else [image_size] if isinstance(image_size, int) else list(image_size)
    return Model(bound_class("Model")(os.fspath(path), device, architecture, size, state))


class _Part(torch.nn.Module):
    """A module that holds tensors of the compiled towers under the last part of their dotted names."""

    def _hold(self, name: str, tensor: Tensor) -> None:
        first, _, rest = name.partition(".")
        if rest:
            part = self._modules.get(first)
            if not isinstance(part, _Part):
                part = self._modules[first] = _Part()
            part._hold(rest, tensor)
        elif tensor.requires_grad:
            # Registers the tensor itself instead of a Parameter made from it, because the compiled towers fill this tensor's gradient.
            tensor._is_param = True  # type: ignore[attr-defined]
            self._parameters[first] = cast(torch.nn.Parameter, tensor)
        else:
            self._buffers[first] = tensor

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "_Part":
        # PyTorch's _apply() changes parameters in place but replaces buffers by new tensors, which the compiled towers would not use.
        buffers = dict(self._buffers)
        super()._apply(fn, recurse)
        for name, tensor in buffers.items():
            changed = self._buffers[name]
            if tensor is not None and changed is not None:
                tensor.data = changed.data
                self._buffers[name] = tensor
        return self


class Model(_Part):
    """A dual encoder of images and texts. `parameters()` has OpenCLIP's names, and fine-tuning and moving to a device work as usual.

    Preprocessing, tokenizer and towers are Tessera's compiled ones, so the embeddings equal tessera-embed's. On a GPU the forward
    pass follows torch.autocast.
    """

    def __init__(self, bound: Any):
        super().__init__()
        self._bound = bound
        for name, tensor in bound.tensors().items():
            self._hold(name, tensor)
        self.eval()

    @property
    def path(self) -> pathlib.Path:
        """The file that the weights were read from."""
        return pathlib.Path(self._bound.path())

    @property
    def embed_dim(self) -> int:
        """The width of an embedding."""
        return self._bound.embed_dim()

    @property
    def takes_texts(self) -> bool:
        """Whether there is a text tower."""
        return self._bound.takes_texts()

    def train(self, mode: bool = True) -> "Model":
        self._bound.train(mode)
        return super().train(mode)

    def preprocess(self, picture: Picture) -> Tensor:
        """Turns an image into the model's input: uint8 [3, h, w], which encode_image normalizes.

        picture  a path; the bytes of a JPEG, PNG or WebP file; a PIL image; uint8 [H, W, 3] or [H, W], an array or a tensor
        raises   RuntimeError that says what is wrong with the image
        """
        if isinstance(picture, (str, os.PathLike)):
            try:
                return self._bound.preprocess_file(_bytes(pathlib.Path(picture).read_bytes()))
            except RuntimeError as error:
                raise RuntimeError(f"{os.fspath(picture)}: {error}") from None
        if isinstance(picture, (bytes, bytearray, memoryview)):
            return self._bound.preprocess_file(_bytes(picture))
        return self._bound.preprocess_pixels(_pixels(picture))

    def encode_image(self, pictures: Union[Picture, Sequence[Picture], Tensor], *, normalize: bool = True) -> Tensor:
        """Returns the embeddings of images.

        pictures   one image or a list of images as for preprocess; or uint8 [B, 3, h, w], already preprocessed
        normalize  True: scale embeddings to length 1; False: return the model's output
        returns    [B, D], on the model's device; with a gradient unless under torch.no_grad()
        """
        if isinstance(pictures, Tensor) and pictures.dim() == 4:
            images = list(pictures)
        elif isinstance(pictures, (list, tuple)):
            images = [self.preprocess(picture) for picture in pictures]
        else:
            images = [self.preprocess(pictures)]
        return _scaled(self._bound.encode_images(images), normalize)

    def tokenize(self, texts: Union[str, Iterable[str]]) -> tuple[Tensor, Tensor]:
        """Returns ids, int64 [B, L], and mask, bool [B, L] (True: a real token), from the model's tokenizer."""
        return self._bound.tokenize([texts] if isinstance(texts, str) else list(texts))

    def encode_text(self, texts: Union[str, Iterable[str], Tensor], mask: Tensor | None = None, *, normalize: bool = True) -> Tensor:
        """Returns the embeddings of texts.

        texts      one text or several; or ids, int64 [B, L], with their mask
        normalize  True: scale embeddings to length 1; False: return the model's output
        returns    [B, D], on the model's device; with a gradient unless under torch.no_grad()
        """
        if isinstance(texts, Tensor):
            return _scaled(self._bound.encode_ids(texts, mask), normalize)
        return _scaled(self._bound.encode_texts([texts] if isinstance(texts, str) else list(texts)), normalize)

    def forward(self, pictures: Union[Sequence[Picture], Tensor], texts: Union[Iterable[str], Tensor]) -> tuple[Tensor, Tensor]:
        """Returns encode_image(pictures) and encode_text(texts)."""
        return self.encode_image(pictures), self.encode_text(texts)


def _scaled(embeddings: Tensor, normalize: bool) -> Tensor:
    return torch.nn.functional.normalize(embeddings, dim=-1) if normalize else embeddings


def _bytes(content: Union[bytes, bytearray, memoryview]) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8) if len(content) else torch.empty(0, dtype=torch.uint8)


def _pixels(picture: Picture) -> Tensor:
    if isinstance(picture, Tensor):
        pixels = picture
    elif hasattr(picture, "convert"):  # a PIL image, converted as in OpenCLIP
        image = picture.convert("RGB")
        pixels = _bytes(image.tobytes()).view(image.height, image.width, 3)
    elif hasattr(picture, "__array_interface__"):
        pixels = torch.as_tensor(picture)
    else:
        raise TypeError(f"an image is a path, bytes, a PIL image, an array or a tensor, not {type(picture).__name__}")
    return pixels.unsqueeze(-1).expand(-1, -1, 3) if pixels.dim() == 2 else pixels
