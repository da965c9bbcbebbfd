"""From pictures and texts to the inputs of a model, with numpy: pictures by Pillow, whose resampling equals Tessera's, and texts by the
packages tokenizers or sentencepiece. Folders that `python -m tessera export` writes contain this file, which also runs their models."""
import html
import json
import math
import pathlib
import re

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
DEFAULTS = {"image_size": 224, "resize_mode": "shortest", "interpolation": "bicubic", "fill_color": 0, "exif_rotation": False,
            "gray_range": 65535, "crop_pct": 1.0, "crop_rounding": "half_even", "max_patches": 256,
            "mean": [0.48145466, 0.4578275, 0.40821073], "std": [0.26862954, 0.26130258, 0.27577711]}


def pixels(files, folder=HERE):
    """Returns the inputs of an exported image tower, by name, for pictures (paths or PIL images)."""
    settings = json.loads((folder / "preprocessor_config.json").read_text(encoding="utf-8"))["tessera"]
    images = [pixels_of(file, settings) for file in files]
    if settings["resize_mode"] != "naflex":
        return {"pixel_values": np.stack(images)}
    return dict(zip(("pixel_values", "pixel_attention_mask", "spatial_shapes"), patches_of(images, settings)))


def tokens(texts, folder=HERE):
    """Returns the inputs of an exported text tower, by name."""
    settings = json.loads((folder / "export.json").read_text(encoding="utf-8"))["tokenizer"]
    texts = [cleaned(text, settings.get("cleanup", "none")) for text in texts]
    if (folder / "tokenizer.json").exists():
        import tokenizers
        encoded = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).encode_batch(texts)
        ids, mask = (np.array([getattr(each, name) for each in encoded], np.int64) for name in ("ids", "attention_mask"))
        ids[ids == settings.get("zero_id", -1)] = 0
    else:
        import sentencepiece
        processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spiece.model"))
        begin, end = ([processor.bos_id()] if settings["add_bos"] else []), ([processor.eos_id()] if settings["add_eos"] else [])
        longest = settings["context_length"]
        rows = [(begin + processor.encode(text))[:longest - len(end)] + end for text in texts]
        longest = longest if settings.get("pad_is_text") else max(map(len, rows))
        ids = np.array([row + [settings["pad_id"]] * (longest - len(row)) for row in rows], np.int64)
        mask = np.array([[1] * len(row) + [0] * (longest - len(row)) for row in rows], np.int64)
    return {"input_ids": ids} if settings.get("pad_is_text") else {"input_ids": ids, "attention_mask": mask}


def spelled(ids, folder=HERE):
    """Returns the tokens that ids of an exported tokenizer stand for."""
    if (folder / "tokenizer.json").exists():
        import tokenizers
        spell = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).id_to_token
    else:
        import sentencepiece
        spell = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spiece.model")).id_to_piece
    return [spell(int(i)) for i in ids]


def run(name, inputs, folder=HERE):
    """Runs an exported file (.onnx or .pt2) on inputs by name, and returns its outputs by name."""
    if name.endswith(".onnx"):
        import onnxruntime
        session = onnxruntime.InferenceSession(folder / name)
        return dict(zip([output.name for output in session.get_outputs()], session.run(None, inputs)))
    import torch
    outputs = torch.export.load(folder / name).module()(**{key: torch.from_numpy(value) for key, value in inputs.items()})
    return {key: value.numpy() for key, value in outputs.items()}


def cleaned(text, cleanup):
    """Cleans a text as the tokenizer's setting `cleanup` says, without ftfy's repairs of wrongly decoded text."""
    if cleanup in ("whitespace", "lower", "canonicalize"):
        text = html.unescape(html.unescape(text))
    if cleanup in ("lower", "canonicalize", "siglip"):
        text = text.lower()
    if cleanup == "canonicalize":
        text = re.sub(r"[!-/:-@\[-^`{-~]", "", text.replace("_", " "))
    if cleanup in ("siglip", "siglip_cased"):
        text = re.sub(r"[!-/:-@\[-`{-~]", "", text)
    return text if cleanup == "none" else " ".join(text.split())


def sides(size):
    """Returns height and width of a size, which may be one number."""
    return [size] * 2 if isinstance(size, int) else list(size)


def pixels_of(picture, settings):
    """Turns a path or a PIL image into normalized pixels [3, H, W], float32."""
    from PIL import Image
    s = {**DEFAULTS, **settings}
    image = fitted(rgb_of(picture if isinstance(picture, Image.Image) else Image.open(picture), s), *sides(s["image_size"]), s)
    return ((np.asarray(image, np.float32) / 255 - np.float32(s["mean"])) / np.float32(s["std"])).transpose(2, 0, 1)


def rgb_of(image, settings):
    from PIL import ImageOps
    if settings["exif_rotation"]:
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):  # 16-bit gray levels, which convert("RGB") would clip at 255
        scale = 256 / (settings["gray_range"] + 1)
        image = image.convert("I").point(lambda value: value * scale).convert("L")
    return image.convert("RGB")


def patch_grid(height, width, patch, most):
    """Returns the rows and columns of an image's patches: the largest scale with at most `most` patches, as in transformers (SigLIP 2)."""
    low, high = 1e-6, 100.0
    grid = lambda scale: [max(1, math.ceil(side * scale / of_patch)) for side, of_patch in zip((height, width), patch)]
    while high - low >= 1e-5:
        middle = (low + high) / 2
        low, high = (middle, high) if math.prod(grid(middle)) <= most else (low, middle)
    return grid(low)


def patches_of(images, settings):
    """Cuts images [3, h, w] of their own shapes into patches [B, T, height * width * 3], as transformers does, and returns the mask [B, T]
    and the grids [B, 2] of real patches, too."""
    (height, width), most = sides(settings["patch_size"]), {**DEFAULTS, **settings}["max_patches"]
    grids = np.array([[image.shape[1] // height, image.shape[2] // width] for image in images], np.int64)
    patches = np.zeros((len(images), most, height * width * 3), np.float32)
    for image, row, (rows, columns) in zip(images, patches, grids):
        cut = image.reshape(3, rows, height, columns, width).transpose(1, 3, 2, 4, 0)
        row[:rows * columns] = cut.reshape(rows * columns, -1)
    return patches, (np.arange(most) < grids.prod(1, keepdims=True)).astype(np.int64), grids


def fitted(image, height, width, settings):
    """Brings an image to height x width, or to a size of whole patches."""
    from PIL import Image
    how = Image.BICUBIC if settings["interpolation"] == "bicubic" else Image.BILINEAR
    if settings["resize_mode"] == "naflex":
        patch = sides(settings["patch_size"])
        rows, columns = patch_grid(image.height, image.width, patch, settings["max_patches"])
        return image.resize((columns * patch[1], rows * patch[0]), how)
    if (image.height, image.width) == (height, width):
        return image
    rows, columns = [math.floor(side / settings["crop_pct"]) for side in (height, width)]
    if settings["resize_mode"] == "squash":
        sizes = (columns, rows)
    elif settings["resize_mode"] == "shortest" and rows == columns:  # as in torchvision, the longer side is rounded down
        short = min(image.width, image.height)
        sizes = (rows * image.width // short, rows * image.height // short)
    else:
        pick = max if settings["resize_mode"] == "longest" else min
        ratio = pick(image.height / rows, image.width / columns)
        sizes = (max(1, round(image.width / ratio)), max(1, round(image.height / ratio)))
        how = Image.BICUBIC if settings["resize_mode"] == "shortest" else how
    middle = (lambda missing: missing // 2) if settings["crop_rounding"] == "down" else (lambda missing: round(missing / 2))
    offset = lambda side, target: -middle(side - target) if side >= target else (target - side) // 2
    out = Image.new("RGB", (width, height), (settings["fill_color"],) * 3)
    out.paste(image.resize(sizes, how), (offset(sizes[0], width), offset(sizes[1], height)))
    return out
