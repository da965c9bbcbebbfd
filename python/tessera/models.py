"""Models trained by Tessera (or read by it: OpenCLIP's checkpoints) as torch.nn.Module, with their own preprocessing and tokenizer."""
from __future__ import annotations

import os
import pathlib
from typing import Any, Callable, Iterable, Sequence, Union, cast

import torch
from torch import Tensor

from ._library import bound_class

__all__ = ["Model", "load"]

# An image is the path of a file, the bytes of a file, a PIL image, or levels [H, W, C] (gray: [H, W]) as a numpy array or a tensor.
Picture = Any


def load(path: Union[str, os.PathLike], device: str = "auto", *, architecture: str = "") -> "Model":
    """Loads the model of a run folder, a checkpoint folder or a model file, in evaluation mode.

    path          may also be an OpenCLIP checkpoint; for a run folder, the newest checkpoint is loaded
    device        auto (the GPU if there is one), cpu, cuda or cuda:N
    architecture  OpenCLIP's name for the checkpoint's model (ViT-B-32), if there is no open_clip_config.json next to it
    raises        RuntimeError, one line that names the file
    """
    return Model(bound_class("Model")(os.fspath(path), device, architecture))


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

        picture  a path; the bytes of an image file; a PIL image; uint8 or uint16 [H, W] or [H, W, C], an array or a tensor. C is 1 (gray)
                 or 3, plus 1 with alpha, which is dropped. All give the same pixels; 16-bit gray levels follow preprocessing.gray_range
        raises   RuntimeError that says what is wrong with the image
        """
        if isinstance(picture, (str, os.PathLike)):
            try:
                return self._bound.preprocess_file(_bytes(pathlib.Path(picture).read_bytes()))
            except RuntimeError as error:
                raise RuntimeError(f"{os.fspath(picture)}: {error}") from None
        if isinstance(picture, (bytes, bytearray, memoryview)):
            return self._bound.preprocess_file(_bytes(picture))
        return self._bound.preprocess_pixels(*_pixels(picture))

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


def _pixels(picture: Picture) -> tuple[Tensor, int]:
    """Returns the pixels [H, W, C] and the EXIF orientation of a PIL image, an array or a tensor."""
    orientation = 1
    if isinstance(picture, Tensor):
        pixels = picture
    elif hasattr(picture, "convert"):  # a PIL image
        if picture.mode == "F":
            raise TypeError("an image of floats (PIL's mode F) has no defined black and white: convert it to levels from 0 to 255 (mode L)")
        deep = picture.mode.startswith("I")  # 16-bit gray levels, which convert("RGB") would clip at 255
        image = picture.convert("I" if deep else "RGB")
        pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.int32 if deep else torch.uint8).view(image.height, image.width, -1)
        orientation = picture.getexif().get(0x0112, 1)
    elif hasattr(picture, "__array_interface__"):
        import numpy

        array = numpy.asarray(picture)
        pixels = torch.from_numpy(numpy.array(array, dtype=array.dtype.newbyteorder("="), order="C"))  # views may be reversed or read-only
    else:
        raise TypeError(f"an image is a path, bytes, a PIL image, an array or a tensor, not {type(picture).__name__}")
    return pixels.unsqueeze(-1) if pixels.dim() == 2 else pixels, orientation
