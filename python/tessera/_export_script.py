"""Writes use.py, a script of ten lines that runs an exported folder's files without Tessera."""
from __future__ import annotations

HEAD = '''"""Compares images with texts: python use.py cat.jpg dog.png "a cat" "a dog"   (needs {packages})"""
import pathlib, sys
from inputs import {functions}  # inputs.py, beside this file

files = [word for word in sys.argv[1:] if pathlib.Path(word).is_file()]
images = run("image.{to}", pixels(files))
'''
TEXTS = '''ids = tokens([word for word in sys.argv[1:] if word not in files])
texts = run("text.{to}", ids)
'''
COSINES = 'print(images["image_embeds"] @ texts["text_embeds"].T)  # cosines, a row per image\n'
IMAGES = 'print(images["image_embeds"] @ images["image_embeds"].T)  # cosines of the images\n'
HEAD_RUN = 'head = run("head.{to}", {{name: {{**images, **texts, **ids}}[name] for name in {names}}})\n'
SHAPES = 'print({name: values.shape for name, values in {**images, **texts}.items()})\n'
STRONGEST = 'print([spelled(row.argsort()[:-6:-1]) for row in images["image_embeds"]])  # the most active words of each image\n'

# What a script shows of a head.
OF_HEAD = {
    "sparc": 'head["word_weights"][0, 0].argmax(-1))  # the patch of the first image that each token of the first text looks at most',
    "filip": 'head["similarity_i2t"])  # a row per image',
    "gloria": 'head["similarity"])  # a row per image',
    "pacl": 'head["similarity"])  # a row per image',
    "flair": 'head["similarity"])  # a row per image',
}


def script(to: str, tokenizer: str, objective: str, head_inputs: tuple[str, ...], embeds: bool, sparse: bool) -> str:
    """Returns the text of use.py.

    to           onnx or pt2
    tokenizer    the package that reads the tokenizer; empty: the model has no text tower
    objective    the objective whose head there is, with the inputs `head_inputs`; empty: none
    embeds       whether the towers output embeddings (not with the read-out `none`)
    sparse       whether embeddings have one number per token of the vocabulary (STAIR)
    """
    packages = [{"onnx": "onnxruntime", "pt2": "torch"}[to], "numpy", "pillow", *([tokenizer] if tokenizer else [])]
    functions = ["pixels", "run", *(["spelled"] if tokenizer and sparse else []), *(["tokens"] if tokenizer else [])]
    text = HEAD.format(packages=", ".join(packages[:-1]) + " and " + packages[-1], functions=", ".join(functions), to=to)
    if not tokenizer:
        return text + IMAGES
    text += TEXTS.format(to=to) + (COSINES if embeds else "" if objective else SHAPES)
    if objective:
        text += HEAD_RUN.format(to=to, names=head_inputs) + f"print({OF_HEAD[objective]}\n"
    return text + (STRONGEST if sparse else "")
