#!/usr/bin/env python3
"""Compares `evaluate` with LAION's CLIP_benchmark on photographs and an OpenCLIP model with random weights.

The model is saved in OpenCLIP's published format: open_clip_model.safetensors and open_clip_config.json in one folder, which
`evaluate` and `tessera-embed` read directly. Images come from WebDataset shards with members KEY.jpg and KEY.cls (CIFAR-10's); every
image gets unique captions. OpenCLIP embeds the same images and texts, and this script computes accuracies and recalls from its embeddings
with its own implementation of CLIP_benchmark's formulas: zero-shot classification with CLIP's 18 prompts
(`acc1`, `acc5`, `mean_per_class_recall`) and retrieval (`image_retrieval_recall@k`, `text_retrieval_recall@k`).

    python3 -m pip install open_clip_torch safetensors     # into an environment with torch
    python3 scripts/compare/clip_benchmark_scores.py --shards cifar10/test-00000.tar --classes cifar10/classes.txt

Exit code: 0 if all numbers are equal and all cosines at least 0.99999, 77 if a Python package is missing, 1 otherwise.
"""

import argparse
import collections
import io
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile

try:
    import open_clip
    import torch
    import torch.nn.functional as F
    from PIL import Image
    from safetensors.torch import load_file, save_file
except ImportError as error:
    print(f"compare/clip_benchmark_scores.py: skipped, {error}")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
THRESHOLD = 0.99999
TEMPLATES = ROOT / "configs/templates/cifar10.txt"
TOP = (1, 5, 10)
PICTURES_AT_A_TIME = 50

Picture = collections.namedtuple("Picture", "path label captions")


def random_model(name: str) -> torch.nn.Module:
    """Returns a model in which parameters that start at 0 or 1 also have random values, to check every bias, norm and statistic."""
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


def publish(model: torch.nn.Module, name: str, folder: pathlib.Path) -> None:
    folder.mkdir()
    save_file({key: value.contiguous() for key, value in model.state_dict().items()}, folder / "open_clip_model.safetensors")
    preprocess = {"mean": open_clip.OPENAI_DATASET_MEAN, "std": open_clip.OPENAI_DATASET_STD}
    config = {"model_cfg": open_clip.get_model_config(name), "preprocess_cfg": preprocess}
    (folder / "open_clip_config.json").write_text(json.dumps(config, indent=2))


def unpack(shards: list[pathlib.Path], classes: list[str], count: int, folder: pathlib.Path) -> list[Picture]:
    """Writes CLASS/KEY.jpg for each image, and next to it KEY.txt with two captions, one per line."""
    pictures = []
    for shard in shards:
        samples = collections.defaultdict(dict)
        with tarfile.open(shard) as tar:
            for member in tar:
                key, _, kind = member.name.partition(".")
                if kind in ("jpg", "cls"):
                    samples[key][kind] = tar.extractfile(member).read()
        for key, sample in samples.items():
            if len(pictures) == count:
                return pictures
            label = int(sample["cls"])
            path = folder / classes[label] / f"{key}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(sample["jpg"])
            number = len(pictures)
            captions = [f"picture number {number}: {classes[label]}", f"a photo of the {classes[label]} that we call {number}"]
            path.with_suffix(".txt").write_text("".join(caption + "\n" for caption in captions))
            pictures.append(Picture(path, label, captions))
    return pictures


@torch.no_grad()
def embed_pictures(model: torch.nn.Module, pictures: list[Picture]) -> torch.Tensor:
    transform = open_clip.image_transform(model.visual.image_size, is_train=False)
    rows = []
    for begin in range(0, len(pictures), PICTURES_AT_A_TIME):
        some = [Image.open(io.BytesIO(picture.path.read_bytes())) for picture in pictures[begin : begin + PICTURES_AT_A_TIME]]
        rows.append(model.encode_image(torch.stack([transform(image) for image in some]), normalize=True))
    return torch.cat(rows)


@torch.no_grad()
def embed_texts(model: torch.nn.Module, name: str, texts: list[str]) -> torch.Tensor:
    tokenizer = open_clip.get_tokenizer(name)
    rows = [model.encode_text(tokenizer(texts[i : i + 100]), normalize=True) for i in range(0, len(texts), 100)]
    return torch.cat(rows)


def zero_shot_scores(images: torch.Tensor, prompts: torch.Tensor, labels: torch.Tensor, classes: int) -> dict[str, float]:
    """Computes CLIP_benchmark's zeroshot_classification. A class embedding is the normalized mean of its normalized prompts. prompts:
    [classes * forms, D]."""
    classifier = F.normalize(F.normalize(prompts, dim=-1).unflatten(0, (classes, -1)).mean(1), dim=-1)
    logits = 100.0 * F.normalize(images, dim=-1) @ classifier.T
    guesses = logits.topk(max(k for k in TOP if k <= classes), dim=1).indices
    right = guesses.eq(labels[:, None])
    recalls = [right[labels == label, 0].double().mean() for label in labels.unique()]
    scores = {f"top{k}": right[:, :k].any(1).double().mean().item() for k in TOP[:2]}
    scores["mean_per_class"] = torch.stack(recalls).mean().item()
    return scores


def retrieval_scores(images: torch.Tensor, texts: torch.Tensor, owner: torch.Tensor) -> dict[str, float]:
    """Computes CLIP_benchmark's zeroshot_retrieval: the share of queries that have a correct answer among the first k results."""
    scores = F.normalize(texts, dim=-1) @ F.normalize(images, dim=-1).T  # [M, N]
    positive = F.one_hot(owner, len(images)).bool()

    def recall(matrix: torch.Tensor, pairs: torch.Tensor, k: int) -> float:
        found = pairs.gather(1, matrix.topk(k, dim=1).indices)
        return (found.sum(1) > 0).double().mean().item()

    return {f"image_to_text_recall@{k}": recall(scores.T, positive.T, k) for k in TOP} | {
        f"text_to_image_recall@{k}": recall(scores, positive, k) for k in TOP
    }


def run(*command: object) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"compare/clip_benchmark_scores.py: {' '.join(map(str, command))}\nexit code {done.returncode}\n{done.stdout}{done.stderr}")


def measured(programs: pathlib.Path, model: pathlib.Path, data: pathlib.Path, folder: pathlib.Path) -> dict[str, float]:
    """Returns the metrics that `evaluate` computes on the same images."""
    suite = folder / "suite.yaml"
    suite.write_text(f"source: {{name: image_folder, path: {data}}}\ntasks: [{{name: zero_shot, templates: {TEMPLATES}}}, retrieval]\n")
    run(programs / "evaluate", "--checkpoint", model, "--suite", suite, "--out", folder / "out", "--no-pictures")
    tasks = json.loads((folder / "out/results.json").read_text())["tasks"]
    return {name: value for task in tasks for name, value in task["metrics"].items()}


def embedded(programs: pathlib.Path, model: pathlib.Path, pictures: list[Picture], texts: list[str], folder: pathlib.Path) -> dict:
    captions, out = folder / "texts.txt", folder / "embeddings.safetensors"
    captions.write_text("".join(text + "\n" for text in texts))
    run(programs / "tessera-embed", "--checkpoint", model, "--images", *(picture.path for picture in pictures), "--texts", captions, "--out", out)
    return load_file(out)


def compare(arguments: argparse.Namespace, folder: pathlib.Path) -> bool:
    programs, name = arguments.build / "bin", arguments.model
    classes = arguments.classes.read_text().split("\n")
    classes = [line for line in classes if line]
    model = random_model(name)
    publish(model, name, folder / "model")
    pictures = unpack(arguments.shards, classes, arguments.samples, folder / "data")
    forms = [line for line in TEMPLATES.read_text().splitlines() if line and not line.startswith("#")]
    prompts = [form.replace("{}", label) for label in classes for form in forms]
    captions = [caption for picture in pictures for caption in picture.captions]
    owner = torch.arange(len(pictures)).repeat_interleave(2)

    images, texts = embed_pictures(model, pictures), embed_texts(model, name, prompts + captions)
    expected = zero_shot_scores(images, texts[: len(prompts)], torch.tensor([p.label for p in pictures]), len(classes))
    expected |= retrieval_scores(images, texts[len(prompts) :], owner)
    found = measured(programs, folder / "model", folder / "data", folder)
    ours = embedded(programs, folder / "model", pictures, prompts + captions, folder)

    good = True
    print(f"{name}, random weights: {len(pictures)} images, {len(captions)} captions, {len(classes)} classes with {len(forms)} prompts each")
    for kind, theirs in (("image", images), ("text", texts)):
        cosines = F.cosine_similarity(ours[f"{kind}_embeddings"].double(), theirs.double())
        centered = F.cosine_similarity(ours[f"{kind}_embeddings"].double() - theirs.double().mean(0), theirs.double() - theirs.double().mean(0))
        least = min(cosines.min().item(), centered.min().item())
        print(f"{kind + ' embeddings, min. cosine':32}{cosines.min().item():.8f} (centered {centered.min().item():.8f})")
        good = good and least >= THRESHOLD
    print(f"{'':32}{'CLIP_benchmark':>16}{'evaluate':>12}")
    for metric, value in expected.items():
        equal = abs(found[metric] - value) < 1e-9
        print(f"{metric:32}{value:16.6f}{found[metric]:12.6f}{'' if equal else '  DIFFERS'}")
        good = good and equal
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--model", default="ViT-B-32", help="one of OpenCLIP's architectures")
    parser.add_argument("--shards", type=pathlib.Path, nargs="+", required=True, help="WebDataset shards with KEY.jpg and KEY.cls")
    parser.add_argument("--classes", type=pathlib.Path, required=True, help="class names, one per line, sorted")
    parser.add_argument("--samples", type=int, default=500)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return 0 if compare(arguments, pathlib.Path(folder)) else 1


if __name__ == "__main__":
    sys.exit(main())
