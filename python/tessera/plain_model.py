"""Loads a model trained by Tessera in plain PyTorch: it builds towers and read-outs from one model file and needs no other package. To use
it without Tessera, copy this file and the folder plain_parts.

    import torch, tessera
    model = tessera.plain_model.load("model.safetensors")        # a model file, or a checkpoint's model.safetensors
    images = model.encode_image(torch.stack([model.preprocess("cat.jpg")]))    # [B, D], Pillow reads the image
    texts = model.encode_text(ids, mask)                   # arguments: ids int64 [B, L]; mask bool [B, L], True for real tokens
    similarity = torch.nn.functional.cosine_similarity(images, texts)

Embeddings equal Tessera's to 1e-5 in float32. `image_outputs` and `text_outputs` also return the embeddings of patches and tokens, and
slots. The model is a torch.nn.Module, whose parameters have the file's names (OpenCLIP's names, where OpenCLIP has such a part); to
fine-tune, run `model.requires_grad_()`.

Texts: `model.tokenizer` has the tokenizer's settings and `model.vocabulary` the bytes of its file. Cut a text to
`context_length` ids so that the end token stays last; pad on the right, with mask False.
    clip-bpe       OpenCLIP's SimpleTokenizer (the file is its bpe_simple_vocab_16e6.txt.gz); `cleanup`: full = ftfy.fix_text,
                   basic = only HTML entities and white space; start and end token around the text, padding is 0
    sentencepiece  the sentencepiece package: SentencePieceProcessor(model_proto=model.vocabulary); `add_bos`, `add_eos`
    wordpiece      BERT's: transformers.BertTokenizer(vocab_file=...); [CLS] and [SEP] around the text

Self-check against embeddings from Tessera:
    tessera-embed --checkpoint model.safetensors --images *.jpg --out embeddings.safetensors
    python plain_model.py --check model.safetensors embeddings.safetensors
"""
import argparse
import base64
import json
import struct
import sys

import torch
import torch.nn.functional as F

if __package__:
    from .plain_parts import image_encoders, inputs, readouts, text_encoders
    from .plain_parts.blocks import Part, Weights, zero_padding
else:  # a copy outside of the package, or run as a program
    from plain_parts import image_encoders, inputs, readouts, text_encoders
    from plain_parts.blocks import Part, Weights, zero_padding

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
          "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool}


def read_safetensors(path):
    """Returns the tensors by name, and the file's metadata."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = bytearray(file.read())
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        values = torch.frombuffer(data[begin:end], dtype=DTYPES[entry["dtype"]]) if end > begin else \
            torch.empty(0, dtype=DTYPES[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"])
    return tensors, metadata


def load(path, device="cpu"):
    """Loads a model file. If this module cannot build a part of the model, raises ValueError naming the part."""
    tensors, metadata = read_safetensors(path)
    if "tessera.model" not in metadata:
        raise ValueError(f"{path}: no model settings in it: this is not a model file of Tessera")
    tokenizer = json.loads(metadata.get("tessera.tokenizer", "{}"))
    vocabulary = base64.b64decode(metadata.get("tessera.vocabulary", ""))
    return Model(json.loads(metadata["tessera.model"]), tensors, tokenizer, vocabulary).to(device)


def name_of(choice):
    return choice if isinstance(choice, str) else (choice or {}).get("name", "none")


class Tower:
    def __init__(self, weights, prefix, settings, where, encoders):
        def part(kind, known):
            choice = settings.get(kind) or "none"
            choice = {"name": choice} if isinstance(choice, str) else dict(choice)
            name = choice.pop("name")
            if name not in known:
                raise ValueError(f"{where}.{kind}: plain PyTorch has {', '.join(known)}, not {name}")
            return known[name], Part(weights, prefix, choice)
        self.names = {kind: name_of(settings.get(kind)) for kind in ("encoder", "readout", "projection")}
        self.encode, self.encoder = part("encoder", encoders)
        self.read, self.readout = part("readout", readouts.READOUTS)
        self.project, self.projection = part("projection", readouts.PROJECTIONS)

    def outputs(self, given, names=()):
        """Returns `embeddings` [B, D] (unless the read-out is `none`) and those of these outputs that `names` has: `tokens` [B, N, W], the
        patches or tokens as losses on tokens compare them; `dense` [B, N, D], each patch or token projected like the embedding; and
        `slots` [B, L, E]. Nothing is normalized, and padding is 0. `given` are the encoder's inputs."""
        encoded = self.encode(self.encoder, *given)
        x, out = self.read(self.readout, encoded), {}
        if x is not None:
            out["embeddings"] = self.project(self.projection, self.normed(x))
        if "tokens" in names:
            tokens = readouts.project_tokens(self.names["projection"], self.projection, encoded.tokens)
            out["tokens"] = zero_padding(tokens, encoded.mask)
        if "dense" in names:
            out["dense"] = zero_padding(self.project(self.projection, encoded.tokens), encoded.mask)
        if "slots" in names:
            out["slots"] = readouts.SLOTS[self.names["readout"]](self.readout, encoded)
        return out

    def normed(self, x):
        """Applies the encoder's final norm to the read-out's vector, if this norm follows the read-out."""
        part, convnext = self.encoder, self.names["encoder"] == "convnext"
        if part.setting("norm_first", False) if convnext else part.setting("final_norm", "tokens") != "pooled":
            return x
        name = "head.norm" if convnext else "ln_post" if part.has("ln_post.weight") else "ln_final"
        return part.norm(name, x, part.setting("norm_eps", 1e-6 if convnext else 1e-5))


class Model(torch.nn.Module):
    """Both towers in evaluation mode. `text` is None if the model has only an image tower."""

    def __init__(self, settings, tensors, tokenizer, vocabulary):
        super().__init__()
        weights = Weights(self, {name: tensor for name, tensor in tensors.items() if not name.startswith("published.")})
        self.settings, self.weights, self.tokenizer, self.vocabulary = settings, weights, tokenizer, vocabulary
        self.image = Tower(weights, "visual.", settings["image"], "model.image", image_encoders.ENCODERS)
        self.text = Tower(weights, "", settings["text"], "model.text", text_encoders.ENCODERS) if settings.get("text") else None
        if self.text and self.image.readout.settings.get("special_token_ids") is None:  # STAIR's image read-out then has the ids of texts
            self.image.readout.settings["special_token_ids"] = self.text.readout.settings.get("special_token_ids")

    def forward(self, pixels=None, ids=None, mask=None):
        """Returns the embeddings of images, of texts, or of both as a pair, as encode_image() and encode_text() do."""
        out = [] if pixels is None else [self.encode_image(pixels)]
        if ids is not None:
            out.append(self.encode_text(ids, mask))
        return out[0] if len(out) == 1 else tuple(out)

    def encode_image(self, pixels, mask=None, grids=None):
        """Maps pixels [B, 3, H, W], normalized as by preprocess(), or what patches() returns, to embeddings [B, D], which are not
        normalized, unless the model's setting unit_length says so."""
        return self.image_outputs(pixels, (), mask, grids)["embeddings"]

    def encode_text(self, ids, mask=None):
        """Maps ids [B, L] int64 and mask [B, L] bool, with real tokens first, to embeddings [B, D], as encode_image() does."""
        return self.text_outputs(ids, mask)["embeddings"]

    def image_outputs(self, pixels, names=(), mask=None, grids=None):
        """Returns encode_image(pixels, mask, grids) as `embeddings`, and the outputs of Tower.outputs() that `names` has."""
        own_shapes = () if grids is None else (mask, grids)
        return self.scaled(self.image.outputs((pixels, *own_shapes), names))

    def text_outputs(self, ids, mask=None, names=()):
        """Returns encode_text(ids, mask) as `embeddings`, and the outputs of Tower.outputs() that `names` has."""
        if self.text is None:
            raise ValueError("this model has no text tower")
        return self.scaled(self.text.outputs((ids, mask), names))

    def scaled(self, outputs):
        if self.settings.get("unit_length") and "embeddings" in outputs:
            outputs["embeddings"] = F.normalize(outputs["embeddings"], dim=-1)
        return outputs

    def preprocess(self, picture):
        """Turns a path or a PIL image into pixels [3, H, W]. Pillow's resampling equals Tessera's; JPEG decoders may differ by one or two
        levels of 255."""
        return torch.from_numpy(inputs.pixels_of(picture, self.settings.get("preprocessing", {})).copy())

    def patches(self, images):
        """Returns what encode_image() takes for images from preprocess(), if the model's images keep their own shapes (resize_mode: naflex):
        patches, mask and grids."""
        return tuple(map(torch.from_numpy, inputs.patches_of([image.numpy() for image in images], self.settings["preprocessing"])))


# ---- self-check

@torch.no_grad()
def differences(model, tensors, metadata):
    """Returns the largest difference from the embeddings in a file, for each kind. The inputs are the images that tessera-embed read, or
    the file's own `pixels`, `ids` and `mask`."""
    out = {}
    def compare(name, ours):
        theirs = tensors[name].float()
        if metadata.get("normalized") == "true":
            ours = F.normalize(ours, dim=-1)
        out[name] = (ours - theirs).abs().max().item()
    if "image_embeddings" in tensors:
        pixels = [tensors[name] for name in ("pixels", "patches_mask", "grids") if name in tensors]
        if not pixels:
            images = [model.preprocess(path) for path in json.loads(metadata["images"])]
            own_shapes = model.settings.get("preprocessing", {}).get("resize_mode") == "naflex"
            pixels = model.patches(images) if own_shapes else [torch.stack(images)]
        compare("image_embeddings", model.encode_image(*pixels))
    if "text_embeddings" in tensors and "ids" in tensors:
        compare("text_embeddings", model.encode_text(tensors["ids"], tensors.get("mask")))
    return out


def main():
    parser = argparse.ArgumentParser(description="Compares this file's embeddings with Tessera's.")
    parser.add_argument("--check", nargs="+", required=True, metavar="FILE", help="MODEL EMBEDDINGS [MODEL EMBEDDINGS ...]")
    parser.add_argument("--tolerance", type=float, default=1e-2,
                        help="largest accepted difference (use 1e-5 if the pixels are in the file)")
    arguments = parser.parse_args()
    far = False
    for path, embeddings in zip(arguments.check[::2], arguments.check[1::2]):
        for name, difference in differences(load(path), *read_safetensors(embeddings)).items():
            print(f"{path}: {name} differ by {difference:.2g} at most")
            far |= not difference <= arguments.tolerance
    return 1 if far else 0


if __name__ == "__main__":
    sys.exit(main())
