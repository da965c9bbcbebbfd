"""Writes use.py, a short script that reads an exported folder's files without Tessera."""
from __future__ import annotations

import math
import re
from typing import Any, Mapping

HEAD = '''"""Compares images with texts by the files of this folder: python use.py cat.jpg dog.png "a cat" "a dog"

Needs {packages} (pip install {pip})."""
{imports}

here, words = pathlib.Path(__file__).resolve().parent, sys.argv[1:]
files, texts = [w for w in words if pathlib.Path(w).is_file()], [w for w in words if not pathlib.Path(w).is_file()]

'''

RUN = {
    "onnx": '''
def run(name, **inputs):
    session = onnxruntime.InferenceSession(str(here / name))
    return dict(zip([output.name for output in session.get_outputs()], session.run(None, inputs)))
''',
    "pt2": '''
def run(name, **inputs):
    outputs = torch.export.load(here / name).module()(**{key: torch.from_numpy(value) for key, value in inputs.items()})
    return {key: value.numpy() for key, value in outputs.items()}
''',
}

PIXELS = '''

def pixels(file):
    image = {opened}.convert("RGB")
    if image.size != ({width}, {height}):
{fitted}
    return ((np.asarray(image, np.float32) / 255 - np.float32(s["image_mean"])) / np.float32(s["image_std"])).transpose(2, 0, 1)


s = json.loads((here / "preprocessor_config.json").read_text())
images = run("image.{to}", pixel_values=np.stack([pixels(file) for file in files]))
'''

# The end of a script whose model has a text tower.
SHOW = {
    "words": 'print(images["image_embeds"] @ texts["text_embeds"].T)  # cosines, a row per image\n'
             'print([[{spell}(int(i)) for i in row.argsort()[:-6:-1]] for row in images["image_embeds"]])  # the most active words\n',
    "cosine": 'print(images["image_embeds"] @ texts["text_embeds"].T)  # cosines, a row per image\n',
    "tokens": 'print(images["image_embeds"] @ texts["text_embeds"].T)  # cosines, a row per image\n'
              '''head = run("head.{to}", image_tokens=images["image_tokens"], text_tokens=texts["text_tokens"], attention_mask=mask)
print(head["{shown}"]{at})  # {said}
''',
    "features": '''head = run("head.{to}", image_tokens=images["image_tokens"], text_features=texts["text_features"])
print(head["similarity"])  # a row per image
''',
}

SPELL = {"tokenizers": "tokenizer.id_to_token", "sentencepiece": "processor.id_to_piece"}

# What a script shows of a head on words: an output, a part of it, and what it is.
TOKEN_HEADS = {
    "sparc": ("word_weights", "[0, 0].argmax(-1)", "the patch of the first image that each token of the first text looks at most"),
    "filip": ("similarity_i2t", "", "a row per image"),
    "gloria": ("similarity", "", "a row per image"),
}


def script(to: str, preprocessing: Mapping[str, Any], tokenizer: Mapping[str, Any], objective: str, sparse: bool) -> str:
    """Returns the text of use.py.

    to             onnx or pt2
    preprocessing  the model's settings, with image_size as (height, width)
    tokenizer      the tokenizer's settings; empty: the model has no text tower
    objective      the objective whose head there is; empty: none
    sparse         whether embeddings have one number per token of the vocabulary (STAIR)
    """
    library = {"onnx": "onnxruntime", "pt2": "torch"}[to]
    tokens = "" if not tokenizer else "sentencepiece" if tokenizer["name"] == "sentencepiece" else "tokenizers"
    body = PIXELS.format(opened="ImageOps.exif_transpose(Image.open(file))" if preprocessing["exif_rotation"] else "Image.open(file)",
                         height=preprocessing["image_size"][0], width=preprocessing["image_size"][1], to=to,
                         fitted="\n".join("        " + line for line in _fitted(preprocessing)))
    if tokenizer:
        body += (_sentencepiece if tokens == "sentencepiece" else _tokenizers)(tokenizer, to)
        kind = ("words" if sparse else "cosine") if not objective else "tokens" if objective in TOKEN_HEADS else "features"
        shown, at, said = TOKEN_HEADS.get(objective, ("", "", ""))
        body += "\n" + SHOW[kind].format(to=to, shown=shown, at=at, said=said, spell=SPELL[tokens])
    else:
        body += 'print(images["image_embeds"] @ images["image_embeds"].T)  # cosines of the images with each other\n'
    own = sorted({"json", "pathlib", "sys", *(name for name in ("html", "re") if re.search(rf"\b{name}\.", body))})
    imports = [*(f"import {name}" for name in own), "", "import numpy as np",
               *(f"import {name}" for name in sorted({library, tokens} - {""})),
               "from PIL import Image" + (", ImageOps" if preprocessing["exif_rotation"] else "")]
    packages = [library, "numpy", "pillow", *([tokens] if tokens else [])]
    return HEAD.format(packages=", ".join(packages[:-1]) + " and " + packages[-1], pip=" ".join(packages), imports="\n".join(imports)) + \
        RUN[to] + body


def _fitted(s: Mapping[str, Any]) -> list[str]:
    """Returns the lines that bring an image to the model's size, as plain_model.fitted does."""
    height, width = s["image_size"]
    rows, columns = (math.floor(side / s["crop_pct"]) for side in (height, width))
    how = "Image.BILINEAR" if s["interpolation"] == "bilinear" else "Image.BICUBIC"
    half = (lambda text: f"({text}) // 2") if s["crop_rounding"] == "down" else (lambda text: f"round(({text}) / 2)")
    crop = [f"left, top = {half(f'image.width - {width}')}, {half(f'image.height - {height}')}",
            f"image = image.crop((left, top, left + {width}, top + {height}))"]
    if s["resize_mode"] == "squash":
        lines = [f"image = image.resize(({columns}, {rows}), {how})"]
        return lines + (crop if (rows, columns) != (height, width) else [])
    if s["resize_mode"] == "shortest" and rows == columns:
        return ["w, h = image.size", f"image = image.resize(({rows} * w // min(w, h), {rows} * h // min(w, h)), {how})", *crop]
    pick = "max" if s["resize_mode"] == "longest" else "min"
    how = "Image.BICUBIC" if s["resize_mode"] == "shortest" else how
    lines = [f"ratio = {pick}(image.height / {rows}, image.width / {columns})",
             f"image = image.resize((max(1, round(image.width / ratio)), max(1, round(image.height / ratio))), {how})"]
    if pick == "min":
        return lines + crop
    return lines + [f"place = lambda side, room: -({half('side - room')}) if side >= room else (room - side) // 2",
                    f'whole = Image.new("RGB", ({width}, {height}), ({s["fill_color"]},) * 3)',
                    f"whole.paste(image, (place(image.width, {width}), place(image.height, {height})))", "image = whole"]


# For each cleanup of a caption, an expression on `text`. ftfy's repairs, which come first in Tessera, are left out.
CLEANUPS = {
    "none": "text",
    "whitespace": '" ".join(html.unescape(html.unescape(text)).split())',
    "lower": '" ".join(html.unescape(html.unescape(text)).lower().split())',
    "canonicalize": '" ".join(re.sub(r"[!-/:-@\\[-^`{-~]", "", html.unescape(html.unescape(text)).replace("_", " ")).lower().split())',
    "siglip": '" ".join(re.sub(r"[!-/:-@\\[-`{-~]", "", text.lower()).split())',
    "siglip_cased": '" ".join(re.sub(r"[!-/:-@\\[-`{-~]", "", text).split())',
}


def _clean(tokenizer: Mapping[str, Any]) -> str:
    expression = CLEANUPS.get(tokenizer.get("cleanup", "none"), "text")
    return "" if expression == "text" else f"texts = [{expression} for text in texts]\n"


def _end(tokenizer: Mapping[str, Any], to: str) -> str:
    mask = "" if tokenizer.get("pad_is_text") else ", attention_mask=mask"
    return f'texts = run("text.{to}", input_ids=ids{mask})\n'


def _tokenizers(tokenizer: Mapping[str, Any], to: str) -> str:
    zero = tokenizer.get("zero_id", -1)
    return ("\n" + _clean(tokenizer) + 'tokenizer = tokenizers.Tokenizer.from_file(str(here / "tokenizer.json"))\n'
            "encoded = tokenizer.encode_batch(texts)\n"
            "ids, mask = np.array([e.ids for e in encoded], np.int64), np.array([e.attention_mask for e in encoded], np.int64)\n" +
            (f"ids[ids == {zero}] = 0\n" if zero >= 0 else "") + _end(tokenizer, to))


def _sentencepiece(tokenizer: Mapping[str, Any], to: str) -> str:
    length, end = tokenizer["context_length"], int(tokenizer["add_eos"])
    begin = "[processor.bos_id()] + " if tokenizer["add_bos"] else ""
    longest = str(length) if tokenizer.get("pad_is_text") else "max(map(len, rows))"
    return (f'\nprocessor = sentencepiece.SentencePieceProcessor(model_file=str(here / "spiece.model"))\n{_clean(tokenizer)}'
            f"rows = [({begin}processor.encode(text))[:{length - end}]{' + [processor.eos_id()]' if end else ''} for text in texts]\n"
            f"ids = np.full((len(rows), {longest}), {tokenizer['pad_id']}, np.int64)\n"
            "mask = np.zeros_like(ids)\n"
            "for row, ids_of_text in enumerate(rows):\n"
            "    ids[row, :len(ids_of_text)], mask[row, :len(ids_of_text)] = ids_of_text, 1\n" + _end(tokenizer, to))
