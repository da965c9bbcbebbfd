"""Models trained by Tessera (or read by it: OpenCLIP's checkpoints) as torch.nn.Module, with their own preprocessing and tokenizer."""
from __future__ import annotations

import json
import operator
import os
import pathlib
import warnings
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Optional, Sequence, Union, cast

import torch
from torch import Tensor

from ._library import Bound, plain_errors
from .loader import loaders_alive, vocabularies

__all__ = ["Encoded", "Explanation", "Model", "Tokenizer", "Word", "load"]

# An image is the path of a file, the bytes of a file, a PIL image, or levels [H, W, C] (gray: [H, W]) as a numpy array or a tensor. A tensor
# may also be uint8 [3, H, W], as preprocess() and torchvision.io.read_image() return it.
Picture = Any


class Encoded(NamedTuple):
    """What encode_image and encode_text return with tokens=True, on the model's device."""

    embedding: Tensor        # [B, D]
    tokens: Tensor           # [B, N, D], the patches in row-major order, or one for each id, as tessera-embed --dense writes them
    mask: Tensor             # bool [B, N], True = a real patch or token, not padding
    grids: Optional[Tensor]  # int64 [B, 2], rows and columns of each image's patches; None for texts and groups of patches


class Word(NamedTuple):
    """A word of a text, see Model.words."""

    text: str
    span: Optional[tuple[int, int]]  # its characters, text[span[0]:span[1]]; None if the tokens do not spell the text (an unknown word)
    positions: list[int]             # its places among the text's ids, and in Encoded.tokens
    pieces: list[str]                # the spelling of the tokens at these places


class Explanation(NamedTuple):
    """Where in an image the words of a text are found, see Model.explain."""

    words: list[str]
    spans: list[Optional[tuple[int, int]]]  # the characters of each word, text[span[0]:span[1]]; None as in Word
    maps: Tensor                            # float [words, rows, columns], on the CPU: the patches of each word
    rule: str                               # what the numbers are
    note: str                               # a warning if the model was not trained on single patches, otherwise empty


def load(path: Union[str, os.PathLike], device: Union[str, torch.device] = "auto", *, architecture: str = "",
         image_size: Union[int, Sequence[int], None] = None, state: str = "", blocks: bool = False) -> Any:
    """Loads the model of a run folder, a checkpoint folder or a model file, in evaluation mode.

    path          may also be an OpenCLIP checkpoint; for a run folder, the newest checkpoint is loaded
    device        auto (the GPU if there is one), cpu, cuda, cuda:N, or a torch.device
    architecture  OpenCLIP's name for the checkpoint's model (ViT-B-32), if neither open_clip_config.json next to it nor open_clip_train's
                  params.txt one folder above describes it
    image_size    pixels, one number or (height, width), instead of the model's own size; learned positions are resampled
    state         the key of the state dict to read, if a PyTorch file has several (model_ema)
    blocks        True: return a BlockModel, in plain PyTorch and in training mode, whose blocks fully_shard and others can wrap; False: return
                  a Model
    raises        RuntimeError, one line that names the file; if there is no such file, it is a FileNotFoundError, too
    """
    size = [] if image_size is None else [operator.index(n) for n in (image_size if hasattr(image_size, "__len__") else [image_size])]
    if image_size is not None and len(size) not in (1, 2):
        raise ValueError(f"load: image_size is {image_size}: give one number or (height, width)")
    with plain_errors():
        bound = Bound("model", os.fspath(path), str(device), architecture, size, state)
    if not blocks:
        return Model(bound)
    from .blocks import BlockModel
    return BlockModel(bound)


class Tokenizer:
    """A model's tokenizer, `model.tokenizer`. Like a tokenizer of OpenCLIP, it can be called: `ids = tokenizer(["a cat", "a dog"])`."""

    def __init__(self, bound: Any, settings: Mapping[str, Any]):
        self._bound = bound
        self.name, self.context_length, self.vocab_size, self.pad_id = bound.tokenizer_facts()
        self.settings = settings

    def __call__(self, texts: Union[str, Iterable[str]]) -> Tensor:
        """Returns ids, int64 [B, context_length]: cut so that the end token stays last, and padded with pad_id."""
        return self._bound.tokenize(_texts(texts, "tokenizer"))[0]

    def encode(self, text: str) -> list[int]:
        """Returns the ids of one text, with its start and end token and without padding."""
        return self._bound.token_ids(text)

    def decode(self, ids: Union[Tensor, Iterable[int]]) -> str:
        """Returns the text of ids, without special tokens and padding."""
        return self._bound.decode([int(i) for i in ids])

    @property
    def special_ids(self) -> list[int]:
        """The ids that are no text: padding, unknown, start and end."""
        return self._bound.special_ids()

    @property
    def vocabulary(self) -> bytes:
        """The bytes of the vocabulary's file."""
        return bytes(self.vocabulary_tensor().tolist())

    def vocabulary_tensor(self) -> Tensor:
        """The same bytes as a tensor, uint8 [n]."""
        return self._bound.vocabulary()

    def __repr__(self) -> str:
        return f"Tokenizer({self.name}, {self.vocab_size} entries, {self.context_length} tokens per text)"


class _Part(torch.nn.Module):
    """A module that holds tensors of the compiled towers under the last part of their dotted names."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__.get("_compiled", ()):
            raise AttributeError(f"{name} is a tensor of the compiled model, which would not use another one: copy into it, "
                                 f"with torch.no_grad(): {name}.copy_(value)")
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._facts())})"

    def _facts(self) -> list[str]:
        return [f"{sum(p.numel() for p in self.parameters()):,} parameters"]

    def _hold(self, name: str, tensor: Tensor) -> None:
        first, _, rest = name.partition(".")
        if rest:
            part = self._modules.get(first)
            if not isinstance(part, _Part):
                part = self._modules[first] = _Part()
            part._hold(rest, tensor)
            return
        self.__dict__.setdefault("_compiled", set()).add(first)
        if tensor.requires_grad or isinstance(tensor, torch.nn.Parameter):
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

        loader = tessera.Loader({"name": "webdataset", "path": "shards/*.tar"}, model=model)    # the model's size of images and tokenizer
        for batch in loader:
            images, texts = model.encode_image(batch["image"]), model.encode_text(batch["caption"], batch["caption_mask"])
            logits = model.logit_scale.exp() * images @ texts.T
        model.save("tuned.safetensors")                        # for evaluate, tessera.load, tessera-embed and start.weights

    Preprocessing, tokenizer and towers are Tessera's compiled ones, so the embeddings equal tessera-embed's. On a GPU the forward
    pass follows torch.autocast. half(), bfloat16() and double() change the towers; pixels follow the weights' type. `logit_scale` (a
    logarithm, as in OpenCLIP) and `logit_bias` are parameters, or None if the model was trained without them.
    """

    def __init__(self, bound: Any):
        super().__init__()
        self._attach(bound)
        self.eval()

    def _attach(self, bound: Any) -> None:
        self._bound = bound
        self._vocabulary: Optional[str] = None
        self._warned = False  # whether a warning has named another vocabulary
        for name, tensor in bound.tensors().items():
            self._hold(name, tensor)
        for name in ("logit_scale", "logit_bias"):
            if name not in self._parameters:
                self.register_parameter(name, None)

    def __setattr__(self, name: str, value: Any) -> None:
        is_new = name in ("logit_scale", "logit_bias") and self.__dict__.get("_parameters", {}).get(name, self) is None
        if is_new and isinstance(value, Tensor):
            if value.numel() != 1 or value.dtype != torch.float32:
                raise ValueError(f"{name} must be one float32 number, but it is {value.dtype} {list(value.shape)}")
            self._bound.add_temperature(name, value)
            self._hold(name, value)
        else:
            super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles hold the compiled model with its weights instead of the modules that refer to it."""
        state = dict(self.__dict__)
        compiled = {name.partition(".")[0] for name in self._bound.tensors()}
        for kind in ("_parameters", "_buffers", "_modules"):
            state[kind] = {name: part for name, part in state[kind].items() if name not in compiled}
        state["_trained"] = {name: tensor.requires_grad for name, tensor in self._bound.tensors().items()}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        trained, bound = state.pop("_trained"), state.pop("_bound")
        super().__setstate__(state)
        self._attach(bound)
        self.train(self.training)
        for name, tensor in bound.tensors().items():
            tensor.requires_grad_(trained[name])

    def features(self, batch: Mapping[str, Any], objective: Any) -> dict[str, Tensor]:
        """Returns what an Objective needs from the towers. The batch is of a Loader with model=model and objective=objective."""
        if not hasattr(objective, "_bound"):
            raise TypeError(f"features: the objective is a {type(objective).__name__}, not a tessera.objectives.Objective: objectives of your own "
                            "get their features from tessera.load(..., blocks=True)")
        with plain_errors():
            return self._bound.features({name: value for name, value in batch.items() if isinstance(value, Tensor)}, objective._bound.handle)

    def save(self, path: Union[str, os.PathLike], objective: Any = None) -> None:
        """Writes the model with its current weights, settings and tokenizer to a file that evaluate, tessera.load, tessera-embed and
        start.weights read. The file appears under its name when it is complete.

        path       ends in .safetensors
        objective  an Objective whose tensors the file gets, too
        raises     RuntimeError, one line that names the file
        """
        if not os.fspath(path).endswith(".safetensors"):
            raise RuntimeError(f"{os.fspath(path)}: a model file is written as safetensors: give it a name that ends in .safetensors")
        own = sorted(set(self.state_dict()) - set(self._bound.tensors()))
        if own:
            raise RuntimeError(f"{os.fspath(path)}: not written, because a model file has no place for what was added to the model, "
                               f"{', '.join(own[:5])}: save it with torch.save, and delete it from the model")
        with plain_errors():
            self._bound.save(os.fspath(path), {} if objective is None else objective.weights())

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

    @property
    def config(self) -> dict[str, Any]:
        """All settings: `model` and `tokenizer` as in a configuration; for a run's model, the run's other settings, too."""
        return json.loads(self._bound.config())

    @property
    def preprocessing(self) -> dict[str, Any]:
        """How an image becomes the model's input: image_size, mean, std, resize_mode, interpolation ..."""
        return self.config["model"]["preprocessing"]

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer. Raises RuntimeError if there is no text tower."""
        return Tokenizer(self._bound, self.config["tokenizer"])

    @property
    def grid(self) -> tuple[int, int]:
        """The rows and columns of an image's patches."""
        return self._bound.grid()

    @property
    def objective(self) -> dict[str, Tensor]:
        """The tensors of the objective that the model was trained with, apart from logit_scale and logit_bias. save() writes them."""
        return self._bound.objective()

    def _facts(self) -> list[str]:
        model = self.config["model"]
        towers = [f"{kind}: {model[kind]['encoder']['name']} + {model[kind]['readout']['name']}"
                  for kind in ("image", "text") if model.get(kind)]
        first = next(self.parameters())
        return [str(self.path), *towers, f"image_size {model['preprocessing']['image_size']}", f"embed_dim {self.embed_dim}",
                *super()._facts(), str(first.dtype).replace("torch.", ""), str(first.device)]

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        if assign:
            raise RuntimeError("load_state_dict: assign=True would replace the tensors of the compiled model, which would not use others: "
                               "leave it out")
        return super().load_state_dict(state_dict, strict)

    def train(self, mode: bool = True) -> "Model":
        self._bound.train(mode)
        return super().train(mode)

    def preprocess(self, picture: Picture) -> Tensor:
        """Turns an image into the model's input: uint8 [3, h, w], which encode_image normalizes.

        picture  a path; the bytes of an image file; a PIL image; uint8 or uint16 [H, W] or [H, W, C], an array or a tensor; a tensor may
                 also be uint8 [3, H, W]. C is 1 (gray) or 3, plus 1 with alpha, which is dropped. All give the same pixels; 16-bit gray
                 levels follow preprocessing.gray_range
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

    def encode_image(self, pictures: Union[Picture, Sequence[Picture], Tensor], *, normalize: bool = True, tokens: bool = False,
                     already_normalized: bool = False) -> Any:
        """Returns the embeddings of images.

            model.encode_image(["cat.jpg", "dog.png"])
            model.encode_image(batch["image"])                                # from tessera.Loader(..., model=model)
            model.encode_image(torch.stack([model.preprocess(f) for f in files]))

        pictures            one image or a list of images as for preprocess; or uint8 [B, 3, h, w] of the model's size. The model itself
                            divides by 255 and normalizes with its mean and std, so floating pixels are refused: see already_normalized
        normalize           True: scale embeddings to length 1; False: return the model's output
        tokens              True: return an Encoded, which also has the patches' embeddings [B, P, D], as tessera-embed --dense writes them
        already_normalized  True: pictures are floating [B, 3, h, w] or [3, h, w] of the model's size that hold (v / 255 - mean) / std, as
                            from OpenCLIP's preprocess for this model
        returns             [B, D], on the model's device and in its type; with a gradient unless under torch.no_grad()
        raises              RuntimeError if pixels have another type or size
        """
        if getattr(pictures, "ndim", 0) == 4:
            images = list(_array(pictures))
        elif isinstance(pictures, Tensor) and pictures.dim() == 3 and self._are_patches(pictures):
            raise RuntimeError(f"encode_image: got {list(pictures.shape)}, which is like the patches in a Loader's batch, which only the trainer "
                               "takes: give a list of images, or of what preprocess() returned")
        else:
            images = list(pictures) if isinstance(pictures, (list, tuple)) else [pictures]
            images = [_array(picture) if already_normalized else self.preprocess(picture) for picture in images]
        return _encoded(self._bound.encode_images(images, already_normalized, tokens), normalize, tokens)

    def _are_patches(self, pixels: Tensor) -> bool:
        settings = self.preprocessing
        size = settings["patch_size"] or 0
        rows, columns = (size, size) if isinstance(size, int) else size
        return settings["resize_mode"] == "naflex" and pixels.shape[2] == 3 * rows * columns

    def tokenize(self, texts: Union[str, Iterable[str]]) -> tuple[Tensor, Tensor]:
        """Returns ids, int64 [B, L], and mask, bool [B, L] (True: a real token), from the model's tokenizer."""
        ids, mask = self._bound.tokenize(_texts(texts, "tokenize"))
        vocabularies[ids] = self._identity()
        return ids, mask

    def _identity(self) -> str:
        """Returns Loader.tokenizer_identity of the model's own tokenizer."""
        if self._vocabulary is None:
            self._vocabulary = self._bound.tokenizer_identity()
        return self._vocabulary

    def words(self, text: str) -> list[Word]:
        """Returns the words of a text with the places of their tokens, without punctuation and special tokens.

            patches = model.encode_image("photo.jpg", tokens=True).tokens[0]                       # [P, D]
            tokens = model.encode_text(text, tokens=True).tokens[0]                                # [L, D]
            for word in model.words(text):
                heat = (tokens[word.positions].mean(0) @ patches.T).unflatten(0, model.grid)       # [rows, columns]
        """
        words, pieces = self._bound.words(text)
        return [Word(word, _characters(text, begin, end), positions, [pieces[p] for p in positions])
                for word, begin, end, positions in words]

    def explain(self, picture: Picture, text: str) -> Explanation:
        """Returns where in an image the words of a text are found, with the weights of the objective that the model was trained with:
        SPARC's sparse weights, FILIP's, PACL's and GLoRIA's similarities, FLAIR's attention, SPARO's slots; for other models, the cosines
        of patches with each word as a text of its own. evaluate's task `words` and tessera-serve draw the same maps.

            found = model.explain("photo.jpg", "a dog runs on the grass")
            dog = found.maps[found.words.index("dog")]                                             # [rows, columns]

        picture  one image as for preprocess
        raises   RuntimeError if the model has no text tower, or if its patches do not form a grid
        """
        with plain_errors():
            maps, words, rule, note = self._bound.explain(self.preprocess(picture), text)
        return Explanation([word for word, _, _ in words], [_characters(text, begin, end) for _, begin, end in words], maps, rule, note)

    def encode_text(self, texts: Union[str, Iterable[str], Tensor], mask: Optional[Tensor] = None, *, normalize: bool = True,
                    tokens: bool = False) -> Any:
        """Returns the embeddings of texts.

        texts      one text or several; or ids, int64 [B, L] or, with K texts per image, [B, K, L]
        mask       bool, of the ids' shape, True = a real token; None: all but the tokenizer's padding at the end of each row
        normalize  True: scale embeddings to length 1; False: return the model's output
        tokens     True: return an Encoded, which also has the tokens' embeddings [B, L, D], as tessera-embed --dense writes them
        returns    [B, D], on the model's device and in its type; with a gradient unless under torch.no_grad()
        raises     RuntimeError if ids or mask have another type, shape or range
        """
        if isinstance(texts, Tensor):
            self._compare_vocabularies(texts)
            if mask is not None and not isinstance(mask, Tensor):
                mask = torch.as_tensor(mask)
            return _encoded(self._bound.encode_ids(texts, mask, tokens), normalize, tokens)
        if mask is not None:
            raise TypeError("encode_text: a mask is for ids; texts get the tokenizer's own")
        return _encoded(self._bound.encode_texts(_texts(texts, "encode_text"), tokens), normalize, tokens)

    def _compare_vocabularies(self, ids: Tensor) -> None:
        """Warns once if ids come from a Loader with another tokenizer; for a copy of a Loader's ids, if all Loaders have another one."""
        others = ({vocabularies[ids]} if ids in vocabularies else {loader.tokenizer_identity for loader in loaders_alive}) - {""}
        if others and not self._warned and self._identity() and self._identity() not in others:
            self._warned = True
            warnings.warn(f"encode_text: the ids of the Loader are of another vocabulary ({min(others).split()[0]}) than the model's "
                          f"({self.tokenizer!r}): make the Loader with model=model", stacklevel=3)

    def forward(self, pictures: Union[Sequence[Picture], Tensor], texts: Union[Iterable[str], Tensor], mask: Optional[Tensor] = None, *,
                already_normalized: bool = False) -> tuple[Tensor, Tensor]:
        """Returns encode_image(pictures) and encode_text(texts, mask)."""
        return self.encode_image(pictures, already_normalized=already_normalized), self.encode_text(texts, mask)


def _encoded(found: Mapping[str, Tensor], normalize: bool, tokens: bool) -> Any:
    embedding = _scaled(found["embeddings"], normalize)
    if not tokens:
        return embedding
    if "tokens" not in found:
        raise RuntimeError("tokens=True needs at least one image or text")
    return Encoded(embedding, _scaled(found["tokens"], normalize), found["mask"], found.get("grids"))


def _characters(text: str, begin: int, end: int) -> Optional[tuple[int, int]]:
    """Returns the characters of the bytes [begin, end) of a text; None if the place is unknown (-1)."""
    def place(byte: int) -> int:
        return len(text.encode()[:byte].decode(errors="ignore"))
    return None if begin < 0 else (place(begin), place(end))


def _texts(texts: Union[str, Iterable[str]], name: str) -> list[str]:
    given = [texts] if isinstance(texts, str) else list(texts)
    for text in given:
        if not isinstance(text, str):
            raise TypeError(f"{name}: expected texts, or ids as a tensor int64 [B, L], but got a {type(text).__name__}")
    return given


def _scaled(embeddings: Tensor, normalize: bool) -> Tensor:
    return torch.nn.functional.normalize(embeddings, dim=-1) if normalize else embeddings


def _bytes(content: Union[bytes, bytearray, memoryview]) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8) if len(content) else torch.empty(0, dtype=torch.uint8)


def _array(numbers: Any) -> Tensor:
    """Returns an array as a tensor. Arrays may be reversed, read-only or of another byte order."""
    if isinstance(numbers, Tensor):
        return numbers
    if not hasattr(numbers, "__array_interface__"):
        raise TypeError(f"expected an array or a tensor, but got a {type(numbers).__name__}")
    import numpy

    array = numpy.asarray(numbers)
    return torch.from_numpy(numpy.array(array, dtype=array.dtype.newbyteorder("="), order="C"))


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
        if deep and min(image.getextrema()) >= 0 and max(image.getextrema()) <= 65535:
            pixels = pixels.to(torch.uint16)
        tag = picture.getexif().get(0x0112, 1)
        orientation = tag if isinstance(tag, int) else 1  # a damaged tag counts as none
    elif hasattr(picture, "__array_interface__"):
        pixels = _array(picture)
    else:
        raise TypeError(f"an image is a path, bytes, a PIL image, an array or a tensor, not {type(picture).__name__}")
    if pixels.dim() == 3 and pixels.shape[0] in (1, 3) and pixels.shape[2] not in (1, 2, 3, 4):  # channels first
        pixels = pixels.permute(1, 2, 0)
    return pixels.unsqueeze(-1) if pixels.dim() == 2 else pixels, orientation
