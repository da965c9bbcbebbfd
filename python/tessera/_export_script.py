"""Writes use.py, a short script that runs an exported folder's files without Tessera."""
from __future__ import annotations

HEAD = '''"""Compares images with texts: python use.py cat.jpg dog.png "a cat" "a dog"   (needs {packages})"""
import pathlib, sys
import {library}
from inputs import HERE, pixels, tokens  # inputs.py, beside this file


def run(name, inputs):
{run}

files = [word for word in sys.argv[1:] if pathlib.Path(word).is_file()]
images = run("image.{to}", pixels(files))
'''

RUN = {
    "onnx": '''    session = onnxruntime.InferenceSession(HERE / name)
    return dict(zip([output.name for output in session.get_outputs()], session.run(None, inputs)))
''',
    "pt2": '''    outputs = torch.export.load(HERE / name).module()(**{key: torch.from_numpy(value) for key, value in inputs.items()})
    return {key: value.numpy() for key, value in outputs.items()}
''',
}

TEXTS = '''ids = tokens([word for word in sys.argv[1:] if word not in files])
texts = run("text.{to}", ids)
'''
COSINES = 'print(images["image_embeds"] @ texts["text_embeds"].T)  # cosines, a row per image\n'
HEAD_RUN = 'head = run("head.{to}", {{name: {{**images, **texts, **ids}}[name] for name in {names}}})\n'
SHAPES = 'print({name: values.shape for name, values in {**images, **texts}.items()})\n'
WORDS = {
    "tokenizers": '''import tokenizers
spell = tokenizers.Tokenizer.from_file(str(HERE / "tokenizer.json")).id_to_token
''',
    "sentencepiece": '''import sentencepiece
spell = sentencepiece.SentencePieceProcessor(model_file=str(HERE / "spiece.model")).id_to_piece
''',
}
STRONGEST = 'print([[spell(int(i)) for i in row.argsort()[:-6:-1]] for row in images["image_embeds"]])  # the most active words\n'

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
    library = {"onnx": "onnxruntime", "pt2": "torch"}[to]
    packages = [library, "numpy", "pillow", *([tokenizer] if tokenizer else [])]
    text = HEAD.format(packages=", ".join(packages[:-1]) + " and " + packages[-1], library=library, run=RUN[to], to=to)
    if not tokenizer:
        return text.replace(", tokens", "") + 'print(images["image_embeds"] @ images["image_embeds"].T)  # cosines of the images\n'
    text += TEXTS.format(to=to) + (COSINES if embeds else "" if objective else SHAPES)
    if objective:
        text += HEAD_RUN.format(to=to, names=head_inputs) + f"print({OF_HEAD[objective]}\n"
    return text + (WORDS[tokenizer] + STRONGEST if sparse else "")
