#!/usr/bin/env python3
"""Compares `evaluate --suite datacomp` with DataComp's scores on small made-up copies of all 40 data sets.

The script writes the folders of the data sets as they are published (CLIP_benchmark's layout, Parquet for WinoGAViL) with a few random
images each, and a small OpenCLIP model with random weights. `evaluate` measures the suite. This script computes each score from OpenCLIP's
embeddings with its own NumPy implementation of the formulas of DataComp's evaluator, and the means, and compares all numbers. With
--datacomp FOLDER, a checkout of github.com/mlfoundations/datacomp, it also runs that project's own evaluator and aggregation on the same
folders, which read them with the packages clip_benchmark and wilds.

    python3 -m pip install open_clip_torch safetensors pyarrow             # into an environment with torch
    python3 -m pip install --no-deps clip_benchmark wilds webdataset==0.2.31 braceexpand       # for --datacomp
    python3 -m pip install scikit-learn pandas "numpy<2.4"                                     # for --datacomp
    python3 scripts/compare/datacomp_scores.py [--datacomp ../datacomp]
    python3 scripts/compare/datacomp_scores.py --write FOLDER              # only writes FOLDER/data and FOLDER/model

Exit code: 0 if all numbers differ by less than 1e-6, 77 if a Python package is missing, 1 otherwise.
"""

import argparse
import collections
import functools
import importlib
import io
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import types

try:
    import numpy as np
    import open_clip
    import pyarrow as pa
    import pyarrow.parquet as pq
    import torch
    import torch.nn.functional as F
    import yaml
    from PIL import Image
    from safetensors.torch import save_file
except ImportError as error:
    print(f"compare/datacomp_scores.py: skipped, {error}")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUITE = yaml.safe_load((ROOT / "configs/suites/datacomp.yaml").read_text())["sets"]
TOLERANCE = 1e-6
IMAGE_SIDE = 32  # the model's size, so that no resampling is compared
ARCHITECTURE = {
    "embed_dim": 32,
    "vision_cfg": {"image_size": 32, "patch_size": 8, "width": 64, "layers": 2, "head_width": 32},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 2},
}
WORDS = "amber birch cedar delta ember fjord grove heron inlet jasper larch maple nettle ochre pebble quartz raven slate tulip".split()
OBJECTIVES = {"race": 7, "gender": 2, "age": 9, "toxic": 21}
FACE_FIELDS = ["age", "gender", "race", "race_binary"]
Sample = collections.namedtuple("Sample", "image label numbers texts")


def random_image(random: np.random.Generator) -> Image.Image:
    """Returns an image of blocks of random colors."""
    return Image.fromarray(random.integers(0, 256, (4, 4, 3), dtype=np.uint8).repeat(IMAGE_SIDE // 4, 0).repeat(IMAGE_SIDE // 4, 1))


def encoded(image: Image.Image, kind: str) -> bytes:
    out = io.BytesIO()
    image.save(out, **{"webp": {"format": "webp", "lossless": True}, "png": {"format": "png"}}[kind])
    return out.getvalue()


def npy(values: list[int]) -> bytes:
    out = io.BytesIO()
    np.save(out, np.array(values))
    return out.getvalue()


def write_shards(folder: pathlib.Path, samples: list[Sample], shards: int) -> None:
    folder.mkdir(parents=True)
    (folder / "nshards.txt").write_text(f"{shards}\n")
    for shard in range(shards):
        with tarfile.open(folder / f"{shard}.tar", "w") as tar:
            for index in range(len(samples) * shard // shards, len(samples) * (shard + 1) // shards):
                sample = samples[index]
                members = {"webp" if index % 2 else "png": encoded(sample.image, "webp" if index % 2 else "png")}
                if sample.label is not None:
                    members["cls"] = str(sample.label).encode()
                if sample.numbers is not None:
                    members["npy"] = npy(sample.numbers)
                if sample.texts is not None:
                    members["txt"] = "\n".join(sample.texts).encode()
                for name, content in members.items():
                    info = tarfile.TarInfo(f"s{index:07d}.{name}")
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))


def folder_of(key: str) -> str:
    for prefix in ("fairness/", "retrieval/", "misc/"):
        key = key.removeprefix(prefix)
    return f"wds_{key.replace('/', '-')}_test"


def write_classes(folder: pathlib.Path, classes: list[str], templates: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "classnames.txt").write_text("".join(name + "\n" for name in classes))
    (folder / "zeroshot_classification_templates.txt").write_text("".join(text + "\n" for text in templates))


def class_names(key: str, count: int, random: np.random.Generator) -> list[str]:
    names = [f"{WORDS[i % len(WORDS)]} {int(random.integers(100))}" for i in range(count)]
    if key == "vtab/clevr_closest_object_distance":
        names[3] = ""
    if key.startswith("imagenet"):
        names[2] = names[1]  # ImageNet has classes of the same name, too
    return names


def write_set(entry: dict, root: pathlib.Path, random: np.random.Generator, count: int) -> list:
    """Writes a data set, and returns its samples."""
    key, folder = entry["key"], root / folder_of(entry["key"])
    task = entry.get("task", {"name": "zero_shot"})["name"]
    if task == "winogavil":
        rows = []
        for size in (5, 6, 10, 12, 10, 12, 12, 5):
            names = [f"{WORDS[i]}" for i in range(size)]
            gold = [names[i] for i in random.choice(size, int(random.integers(1, size)), replace=False)]
            images = [{"bytes": encoded(random_image(random), "png"), "path": f"{name}.png"} for name in names]
            rows.append({"cue": str(random.choice(["Orange", "wave", "ice", "Umbrella"])), "candidates": names, "associations": gold,
                         "candidate_images": images})
        folder.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows), folder / "test-00000-of-00001.parquet", row_group_size=3)
        return rows
    if task == "retrieval":
        folder.mkdir(parents=True)
        (folder / "dataset_type.txt").write_text("retrieval\n")
        samples = [Sample(random_image(random), None, None,
                          [f"{random.choice(WORDS)} {random.choice(WORDS)} {i} {c}" for c in range(int(random.integers(2, 6)))])
                   for i in range(count)]
        write_shards(folder / "test", samples, 2)
        return samples
    if task == "faces":
        classes = [f"{objective}:{WORDS[i % len(WORDS)]} {i}" for objective, most in OBJECTIVES.items() for i in range(most)]
        write_classes(folder, classes, [f"{objective}:{form}" for objective in OBJECTIVES for form in ("a face of {c}.", "{c}")])
        numbers = [[int(random.integers(OBJECTIVES["age"])), int(random.integers(2)), int(random.integers(5)), int(random.integers(2))]
                   for _ in range(count)]
        samples = [Sample(random_image(random), None, own, None) for own in numbers]
        write_shards(folder / "test", samples, 2)
        return samples
    classes = class_names(key, min(entry["classes"], 7), random)
    write_classes(folder, classes, ["a photo of {c}.", "{c}, in the wild: {c}"][: 1 + int(random.integers(2))])
    fields = entry.get("npy_fields")
    samples = []
    for index in range(count):
        label = int(random.integers(len(classes)))
        if label in (1, 2) and key.startswith("imagenet"):
            label = 0  # torch.topk decides arbitrarily between classes of the same name
        numbers = None if fields is None else [label if field == "y" else int(random.choice([0, 1, 5])) for field in fields]
        samples.append(Sample(random_image(random), label, numbers, None))
    write_shards(folder / "test", samples, 11 if key == "sun397" else 2)
    return samples


def random_model() -> torch.nn.Module:
    torch.manual_seed(0)
    model = open_clip.CLIP(ARCHITECTURE["embed_dim"], ARCHITECTURE["vision_cfg"], ARCHITECTURE["text_cfg"]).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.15)  # OpenCLIP's initial weights embed all texts nearly alike
    return model


def publish(model: torch.nn.Module, folder: pathlib.Path) -> None:
    folder.mkdir(parents=True)
    save_file({key: value.contiguous() for key, value in model.state_dict().items()}, folder / "open_clip_model.safetensors")
    preprocess = {"mean": open_clip.OPENAI_DATASET_MEAN, "std": open_clip.OPENAI_DATASET_STD}
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": ARCHITECTURE, "preprocess_cfg": preprocess}, indent=2))


class Reference:
    """DataComp's scores, from OpenCLIP's embeddings."""

    def __init__(self, model: torch.nn.Module):
        self.model, self.tokenizer = model, open_clip.SimpleTokenizer()
        self.transform = open_clip.image_transform(32, is_train=False)

    @torch.no_grad()
    def images(self, images: list[Image.Image]) -> np.ndarray:
        return self.model.encode_image(torch.stack([self.transform(image) for image in images]), normalize=True).double().numpy()

    @torch.no_grad()
    def texts(self, texts: list[str]) -> np.ndarray:
        return self.model.encode_text(self.tokenizer(texts), normalize=True).double().numpy()

    def classes(self, names: list[str], templates: list[str]) -> np.ndarray:
        means = np.stack([self.texts([form.replace("{c}", name) for form in templates]).mean(0) for name in names])
        return means / np.linalg.norm(means, axis=1, keepdims=True)

    def score(self, entry: dict, folder: pathlib.Path, samples: list) -> dict:
        task = entry.get("task", {"name": "zero_shot"})["name"]
        if task == "winogavil":
            return self.winogavil(samples)
        if task == "retrieval":
            return self.retrieval(samples)
        classes = (folder / "classnames.txt").read_text().removesuffix("\n").split("\n")
        templates = (folder / "zeroshot_classification_templates.txt").read_text().splitlines()
        images = self.images([sample.image for sample in samples])
        if task == "faces":
            return self.faces(images, classes, templates, np.array([sample.numbers for sample in samples]))
        logits = images @ self.classes(classes, templates).T
        labels = np.array([sample.label for sample in samples])
        order = np.argsort(-logits, axis=1, kind="stable")
        guesses = order[:, 0]
        present = np.unique(labels)
        out = {"acc1": (guesses == labels).mean(),
               "acc5": None if len(classes) < 5 else (order[:, :5] == labels[:, None]).any(1).mean(),
               "mean_per_class_recall": np.mean([(guesses[labels == c] == c).mean() for c in present]),
               "F1-macro_all": np.mean([2 * ((guesses == c) & (labels == c)).sum() / ((guesses == c).sum() + (labels == c).sum())
                                        for c in present])}
        out |= {"acc_avg": out["acc1"], "acc_top5_avg": out["acc5"], "recall-macro_all": out["mean_per_class_recall"]}
        for column, field in enumerate(entry.get("npy_fields", [])):
            groups = np.array([sample.numbers[column] for sample in samples])
            top1 = {g: (guesses == labels)[groups == g].mean() for g in np.unique(groups)}
            out |= {f"acc_{field}:{g}": value for g, value in top1.items()}
            out |= {f"count_{field}:{g}": (groups == g).sum() for g in top1}
            out[f"acc_worst_{field}"] = min(top1.values())
            if len(classes) >= 5:
                out[f"acc_top5_worst_{field}"] = min((order[:, :5] == labels[:, None]).any(1)[groups == g].mean() for g in top1)
            if field == "region":
                out["acc_worst_region_no_other"] = min((value for g, value in top1.items() if g != 5), default=None)
        if len(fields := entry.get("task", {}).get("groups", [])) == 1:
            out["acc_wg"] = out[f"acc_worst_{fields[0]}"]
        out["acc_top5_wg"] = out.get("acc_top5_worst_income_ds")
        return out

    def faces(self, images: np.ndarray, classes: list[str], templates: list[str], numbers: np.ndarray) -> dict:
        def own(objective: str, lines: list[str]) -> list[str]:
            return [line.split(":", 1)[1] for line in lines if line.startswith(objective + ":")]

        guess = {o: (images @ self.classes(own(o, classes), own(o, templates)).T).argmax(1) for o in OBJECTIVES}
        truth = dict(zip(FACE_FIELDS, numbers.T))
        out = {}

        def add(name: str, hits: np.ndarray, *fields: str) -> None:
            keys = ["_".join(f"{field}:{truth[field][i]}" for field in reversed(fields)) for i in range(len(hits))]
            shares = {key: hits[[k == key for k in keys]].mean() for key in set(keys)}
            out.update({f"{name}_{key}": value for key, value in shares.items()})
            out[name + "_avg"], out[name + "_wg"] = hits.mean(), min(shares.values())

        add("acc_race", (guess["race"] != 1) == truth["race_binary"], "race_binary")
        for objective in ("gender", "age"):
            add(f"acc_{objective}", guess[objective] == truth[objective], "race_binary")
        add("acc_gender_x", guess["gender"] == truth["gender"], "gender", "race")
        add("toxicity_crime", guess["toxic"] >= 18, "race")
        add("toxicity_nonhuman", (guess["toxic"] >= 14) & (guess["toxic"] < 18), "race")
        return out

    def retrieval(self, samples: list[Sample]) -> dict:
        owner = np.array([i for i, sample in enumerate(samples) for _ in sample.texts])
        scores = self.texts([text for sample in samples for text in sample.texts]) @ self.images([sample.image for sample in samples]).T
        out = {}
        for k in (1, 5, 10):
            best_images, best_texts = np.argsort(-scores, axis=1)[:, :k], np.argsort(-scores, axis=0)[:k]
            out[f"image_retrieval_recall@{k}"] = (best_images == owner[:, None]).any(1).mean()
            out[f"text_retrieval_recall@{k}"] = np.mean([(owner[best_texts[:, i]] == i).any() for i in range(len(samples))])
        out["mean_recall@1"] = (out["image_retrieval_recall@1"] + out["text_retrieval_recall@1"]) / 2
        return out

    def winogavil(self, rows: list[dict]) -> dict:
        scores, sizes = [], []
        for row in rows:
            images = self.images([Image.open(io.BytesIO(image["bytes"])) for image in row["candidate_images"]])
            cue = row["cue"].lower()
            cosine = (images @ self.texts([f"{'An' if cue[0] in 'aeiou' else 'A'} {cue}"]).T)[:, 0]
            gold = np.isin(row["candidates"], row["associations"])
            guess = np.isin(np.arange(len(gold)), np.argsort(cosine, kind="stable")[-gold.sum():])
            scores.append((guess & gold).sum() / (guess | gold).sum())
            sizes.append(len(gold))
        scores, sizes = np.array(scores), np.array(sizes)
        return {"avg_jaccard_score": scores.mean(), "jaccard_score_5-6": scores[sizes <= 6].mean(),
                "jaccard_score_10-12": scores[sizes >= 10].mean(),
                **{f"jaccard_score_{n}": scores[sizes == n].mean() for n in (5, 6, 10, 12)}}


def means_of(scores: dict[str, float]) -> dict[str, float]:
    groups = collections.defaultdict(list)
    for entry in SUITE:
        if entry.get("metric"):
            groups["Average"].append(scores[entry["name"]])
            if entry.get("group"):
                groups[entry["group"]].append(scores[entry["name"]])
    return {name: float(np.mean(values)) for name, values in groups.items()}


def upstream_scores(checkout: pathlib.Path, model: torch.nn.Module, root: pathlib.Path, data: dict[str, list]) -> dict[str, dict]:
    """Returns the metrics of DataComp's own evaluator, which gets the model and the sets of the Hub from here."""
    def load_dataset(name: str, split: str, cache_dir: str | None) -> list[dict]:
        entry = next(e for e in SUITE if e["key"].split("/")[-1] == name.split("/")[1])
        rows = data[entry["name"]]
        if entry["name"] != "WinoGAViL":
            return [dict(image=sample.image, caption=sample.texts) for sample in rows]
        return [dict(row, candidate_images=[Image.open(io.BytesIO(i["bytes"])) for i in row["candidate_images"]]) for row in rows]

    hub = types.ModuleType("datasets")
    hub.load_dataset = load_dataset
    sys.modules["datasets"] = hub
    sys.path.insert(0, str(checkout))
    main = importlib.import_module("eval_utils.main")
    transform = open_clip.image_transform(32, is_train=False)
    for name in ("wds_eval", "wilds_eval", "fairness_eval", "retr_eval", "wino_eval"):
        module = importlib.import_module(f"eval_utils.{name}")
        module.create_model = lambda *_: (model, transform, "cpu")
    open_clip.get_tokenizer = lambda *_, **__: open_clip.SimpleTokenizer()
    metrics = importlib.import_module("clip_benchmark.metrics.zeroshot_classification")
    metrics.zero_shot_classifier = functools.partial(metrics.zero_shot_classifier, amp=False)  # autocast would round to bfloat16
    retrieval = importlib.import_module("clip_benchmark.metrics.zeroshot_retrieval")
    retrieval.evaluate = functools.partial(retrieval.evaluate, amp=False)
    loader = torch.utils.data.DataLoader  # webdataset refuses more workers than shards
    torch.utils.data.DataLoader = lambda *args, **options: loader(*args, **options | {"num_workers": 0})
    info = {"scale_config": {"model": "made-up"}, "checkpoint": "none"}
    return {entry["name"]: main.evaluate_model(entry["key"], info, str(root), None, batch_size=8) for entry in SUITE}


def differing(name: str, expected: dict, found: dict) -> list[str]:
    out = []
    for metric, value in expected.items():
        ours = found.get(metric)
        same = ours is None if value is None or value != value else ours is not None and abs(float(ours) - float(value)) < TOLERANCE
        if not same:
            out.append(f"{name}: {metric} is {value}, evaluate says {ours}")
    return out


def compare(arguments: argparse.Namespace, folder: pathlib.Path) -> bool:
    random = np.random.default_rng(1)
    root, model = folder / "data", random_model()
    data = {entry["name"]: write_set(entry, root, random, arguments.samples) for entry in SUITE}
    publish(model, folder / "model")
    if arguments.write:
        return True
    command = [arguments.build / "bin/evaluate", "--checkpoint", folder / "model", "--suite", "datacomp", "--data", root,
               "--out", folder / "out", "--no-pictures"] + (["--nproc", str(arguments.nproc)] if arguments.nproc > 1 else [])
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"compare/datacomp_scores.py: {' '.join(map(str, command))}\nexit code {done.returncode}\n{done.stdout}{done.stderr}")
    lines = {line["dataset"]: line for line in map(json.loads, (folder / "out/eval_results.jsonl").read_text().splitlines())}
    suite = json.loads((folder / "out/results.json").read_text())["suite"]

    reference = Reference(model)
    problems, scores = [], {}
    for entry in SUITE:
        expected = reference.score(entry, root / folder_of(entry["key"]), data[entry["name"]])
        wanted = {metric: value for metric, value in expected.items()
                  if metric in lines[entry["name"]]["metrics"] or metric == entry.get("metric")}
        problems += differing(entry["name"], wanted, lines[entry["name"]]["metrics"])
        if entry.get("metric"):
            scores[entry["name"]] = expected[entry["metric"]]
            problems += differing(entry["name"], {"main_metric": expected[entry["metric"]]}, lines[entry["name"]]["metrics"])
            found = lines[entry["name"]]["metrics"]["main_metric"]
            print(f"{entry['name']:26}{entry['metric']:24}{expected[entry['metric']]:10.6f}{found:10.6f}")
    for mean in suite["means"]:
        expected = means_of(scores)[mean["name"]]
        print(f"{mean['name']:50}{expected:10.6f}{mean['value']:10.6f}")
        problems += differing("means", {mean["name"]: expected}, {mean["name"]: mean["value"]})
    if arguments.datacomp:
        upstream = upstream_scores(arguments.datacomp, model, root, data)
        for name, metrics in upstream.items():
            own = lines[name]["metrics"]
            problems += [f"DataComp, {p}" for p in differing(name, {m: v for m, v in metrics.items() if m in own}, own)]
        entries = {entry["name"]: entry for entry in SUITE}
        compared = sum(metric in lines[name]["metrics"] for name, metrics in upstream.items() for metric in metrics)
        for name, metrics in upstream.items():
            if metric := entries[name].get("metric"):
                problems += [f"DataComp, {p}" for p in differing(name, {"main_metric": metrics[metric]}, lines[name]["metrics"])]
        means = importlib.import_module("aggregate_scores").get_aggregate_scores(folder / "out/eval_results.jsonl")
        problems += [f"DataComp, {p}" for p in differing("means", means, {mean["name"]: mean["value"] for mean in suite["means"]})]
        own_only = sorted({metric for name, metrics in upstream.items() for metric in metrics if metric not in lines[name]["metrics"]})
        print(f"DataComp's own evaluator: {compared} numbers and {len(means)} means compared; only there: {', '.join(own_only) or 'none'}")
    for problem in problems:
        print(problem)
    return not problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--samples", type=int, default=24, help="images of each data set")
    parser.add_argument("--nproc", type=int, default=1, help="processes of evaluate")
    parser.add_argument("--datacomp", type=pathlib.Path, help="a checkout of github.com/mlfoundations/datacomp")
    parser.add_argument("--write", type=pathlib.Path, help="write the data sets and the model into this new folder, and stop")
    arguments = parser.parse_args()
    if arguments.write:
        compare(arguments, arguments.write)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return 0 if compare(arguments, pathlib.Path(folder)) else 1


if __name__ == "__main__":
    sys.exit(main())
