#!/usr/bin/env python3
"""Compares embeddings with OpenCLIP's, and checks that files can be converted in both directions.

For each architecture, the Python package open_clip_torch makes a model with random weights, which is saved as safetensors.
tessera-convert converts it to a model file, tessera-embed embeds generated images and captions, and the script prints the smallest cosine
with OpenCLIP's embeddings of the same files. Then the model file is converted back and loaded strictly in OpenCLIP.

    python3 -m pip install open_clip_torch safetensors     # into an environment with torch
    python3 scripts/compare/openclip.py [--build build] [--models ViT-B-32 RN50]

Exit code: 0 if all cosines are at least 0.99999, 77 if a Python package is missing (a skipped test), 1 otherwise.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy
    import open_clip
    import torch
    from PIL import Image
    from safetensors.torch import load_file, save_file
except ImportError as error:
    print(f"compare/openclip.py: skipped, {error}")
    sys.exit(77)

THRESHOLD = 0.99999
MODELS = ["ViT-B-32", "ViT-B-16-quickgelu", "RN50"]
CAPTIONS = [
    "a photo of a cat",
    "a small red circle left of a striped blue square",
    "",
    "Don't panic! It's 42% off (today only): caf\u00e9 & cr\u00e8me",
    "\u732b\u304c\u3044\u308b",
    "caf\u00c3\u00a9 on the corner",  # "café" in UTF-8, read as Latin-1: ftfy repairs it
    "It\u00e2\u20ac\u2122s a dog \u00e2\u20ac\u201c not a cat &amp; not a bird",  # apostrophe and dash, read as Windows-1252
    "\uff21 full-width \ufb01sh\u00a0\u2019quoted\u2019",
    "UPPER lower MiXeD  with   spaces",
    "a very long caption " * 40,
    "x",
]


def random_model(name: str) -> torch.nn.Module:
    """A model with random values also for parameters that start at 0 or 1, so that no bias, norm or running statistic goes unchecked."""
    torch.manual_seed(0)
    model = open_clip.create_model(name, pretrained=None).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.ndim == 1 and key.endswith("weight"):
                parameter.uniform_(0.5, 1.5)
            elif parameter.ndim == 1 and "embedding" not in key:
                parameter.normal_(0, 0.1)
        for key, buffer in model.named_buffers():
            if key.endswith("running_mean"):
                buffer.normal_(0, 0.1)
            elif key.endswith("running_var"):
                buffer.uniform_(0.5, 1.5)
    return model


def make_pictures(folder: pathlib.Path, count: int) -> list[pathlib.Path]:
    """Writes images of various shapes: smooth color gradients with blocks on them."""
    random = numpy.random.default_rng(0)
    paths = []
    for index in range(count):
        height, width = (int(side) for side in random.integers(64, 640, 2))
        small = Image.fromarray(random.integers(0, 256, (5, 7, 3), dtype=numpy.uint8)).resize((width, height), Image.BICUBIC)
        pixels = numpy.array(small)
        for _ in range(6):
            top, left = int(random.integers(0, height)), int(random.integers(0, width))
            pixels[top : top + height // 4, left : left + width // 5] = random.integers(0, 256, 3)
        path = folder / f"picture_{index}.png"
        Image.fromarray(pixels).save(path)
        paths.append(path)
    return paths


@torch.no_grad()
def reference(model: torch.nn.Module, name: str, pictures: list[pathlib.Path]) -> tuple[torch.Tensor, torch.Tensor]:
    size = model.visual.image_size
    transform = open_clip.image_transform(size, is_train=False)
    images = torch.stack([transform(Image.open(path).convert("RGB")) for path in pictures])
    texts = open_clip.get_tokenizer(name)(CAPTIONS)
    return model.encode_image(images, normalize=True), model.encode_text(texts, normalize=True)


def run(*command: object) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"compare/openclip.py: {' '.join(map(str, command))}\nexit code {done.returncode}\n{done.stdout}{done.stderr}")


def smallest_cosine(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return torch.nn.functional.cosine_similarity(ours.double(), theirs.double(), dim=-1).min().item()


def centred_cosine(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """The smallest cosine after subtracting the mean of OpenCLIP's embeddings from both. Random models give different images almost the
    same embedding (RN50: cosine 1.000 between any two), so the plain cosine would not notice a mix-up."""
    mean = theirs.double().mean(0)
    return smallest_cosine(ours.double() - mean, theirs.double() - mean)


def compare(name: str, programs: pathlib.Path, folder: pathlib.Path) -> bool:
    model = random_model(name)
    theirs, ours, back = folder / "open_clip.safetensors", folder / "model.safetensors", folder / "back.safetensors"
    save_file({key: value.contiguous() for key, value in model.state_dict().items()}, theirs)
    merges = pathlib.Path(open_clip.__file__).parent / "bpe_simple_vocab_16e6.txt.gz"
    run(programs / "tessera-convert", "--from", "open_clip", "--architecture", name, "--merges", merges, theirs, ours)

    pictures = make_pictures(folder, 8)
    captions = folder / "captions.txt"
    captions.write_text("".join(caption + "\n" for caption in CAPTIONS), encoding="utf-8")
    embeddings = folder / "embeddings.safetensors"
    run(programs / "tessera-embed", "--checkpoint", ours, "--images", *pictures, "--texts", captions, "--out", embeddings)
    found = load_file(embeddings)
    images, texts = reference(model, name, pictures)
    cosines = {}
    for kind, theirs_of in (("image", images), ("text", texts)):
        ours_of = found[f"{kind}_embeddings"]
        cosines[kind] = (smallest_cosine(ours_of, theirs_of), centred_cosine(ours_of, theirs_of))

    run(programs / "tessera-convert", "--to", "open_clip", ours, back)
    other = open_clip.create_model(name, pretrained=None)
    other.load_state_dict(load_file(back), strict=True)
    equal = all(torch.equal(value, other.state_dict()[key]) for key, value in model.state_dict().items())
    shown = "  ".join(f"{kind}s {plain:.8f} (centered {centered:.8f})" for kind, (plain, centered) in cosines.items())
    print(f"{name:22} {shown}  converted back: {'equal' if equal else 'DIFFERS'}", flush=True)
    return min(min(pair) for pair in cosines.values()) >= THRESHOLD and equal


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2] / "build")
    parser.add_argument("--models", nargs="+", default=MODELS)
    arguments = parser.parse_args()
    good = True
    for name in arguments.models:
        with tempfile.TemporaryDirectory() as folder:
            good = compare(name, arguments.build / "bin", pathlib.Path(folder)) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
