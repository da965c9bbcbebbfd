"""Models in the package mteb, which has the benchmarks MTEB (texts) and MIEB (images), and python -m tessera mteb RUN --tasks ...

    import mteb, tessera.mteb
    results = mteb.evaluate(tessera.mteb.Encoder("runs/mine"), mteb.get_tasks(["CIFAR10ZeroShot", "Flickr30kT2IRetrieval"]))

This module needs mteb 2 only when it is used: python -m pip install 'mteb[image]'.
"""
from __future__ import annotations

import argparse
import datetime
import functools
import hashlib
import json
import logging
import os
import pathlib
import re
import sys
from typing import Any, Iterable, Sequence, Union

import torch
import torch.nn.functional as F
from torch import Tensor

from . import models
from ._command import Refused, add_model_arguments, load_model, run_command

__all__ = ["Encoder", "main"]


class Encoder:
    """A model as mteb.evaluate takes it (mteb's EncoderProtocol): of images, of texts, and of pairs of an image and a text.

    Embeddings are the model's outputs, not normalized, an image with a text has the sum of their embeddings, and similarities are cosines,
    as in mteb's own wrapper of OpenCLIP. A model without text tower takes images alone.

    model  a Model, or what tessera.load takes; the model is put into evaluation mode
    name   "ORGANIZATION/NAME" for mteb's results; default: tessera/ and the name of the run's folder or of the file
    """

    def __init__(self, model: Union[models.Model, str, os.PathLike], name: str = "", device: Union[str, torch.device] = "auto"):
        self.model: models.Model = model if isinstance(model, models.Model) else models.load(model, device)
        self.model.eval()
        self._name = name or f"tessera/{_name_of(self.model.path)}"
        if self._name.count("/") != 1:
            raise ValueError(f"name {name!r}: mteb's names have the form ORGANIZATION/NAME")

    @functools.cached_property
    def mteb_model_meta(self) -> Any:
        """mteb's description of the model. Its revision is a hash of weights and settings, so results of other weights are never reused."""
        _mteb()
        from mteb.models.model_meta import ModelMeta, ScoringFunction
        parameters = list(self.model.parameters())
        texts = self.model.takes_texts
        return ModelMeta.create_empty(overwrites={
            "name": self._name,
            "revision": _fingerprint(self.model),
            "modalities": ["image", "text"] if texts else ["image"],
            "n_parameters": sum(tensor.numel() for tensor in parameters),
            "memory_usage_mb": round(sum(tensor.numel() * tensor.element_size() for tensor in parameters) / 2**20),
            "max_tokens": self.model.tokenizer.context_length if texts else None,
            "embed_dim": self.model.embed_dim,
            "framework": ["PyTorch"],
            "similarity_fn_name": ScoringFunction.COSINE,
            "use_instructions": False,
        })

    def encode(self, inputs: Iterable[dict[str, Any]], *, task_metadata: Any = None, hf_split: str = "", hf_subset: str = "",
               prompt_type: Any = None, **kwargs: Any) -> Tensor:
        """Returns the embeddings [N, D] of N inputs, float32, on the CPU.

        inputs  batches with the lists "image" (PIL images), "text" or both; a torch DataLoader in mteb
        """
        from tqdm.auto import tqdm
        name = getattr(task_metadata, "name", "inputs")
        rows = []
        with torch.no_grad():
            for batch in tqdm(inputs, desc=f"{name}: embedding", disable=not kwargs.get("show_progress_bar", True), leave=False):
                parts = [encode(list(batch[kind]), normalize=False).float().cpu()
                         for kind, encode in (("text", self.model.encode_text), ("image", self.model.encode_image)) if kind in batch]
                if not parts:
                    raise ValueError(f"{name}: a batch has neither image nor text, but {', '.join(batch)}")
                rows.append(torch.stack(parts).sum(0))
        return torch.cat(rows) if rows else torch.empty(0, self.model.embed_dim)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Returns the cosines [N, M] of all pairs of [N, D] and [M, D]; [D] counts as one row."""
        return _unit(embeddings1) @ _unit(embeddings2).T

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Returns the cosines [N] of the rows of [N, D] and [N, D]."""
        return (_unit(embeddings1) * _unit(embeddings2)).sum(-1)


def _unit(embeddings: Any) -> Tensor:
    return F.normalize(torch.atleast_2d(torch.as_tensor(embeddings).float()), dim=-1)


def _name_of(path: pathlib.Path) -> str:
    """Returns the run's name for runs/NAME/checkpoints/step_N/model.safetensors, and the folder's or the file's for other models."""
    path = path.resolve()
    if path.parent.parent.name == "checkpoints":
        return path.parents[2].name
    return path.parent.name if path.stem in ("model", "open_clip_model") else path.stem


def _fingerprint(model: models.Model) -> str:
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    settings = model.config
    digest.update(json.dumps([settings["model"], settings.get("tokenizer")], sort_keys=True).encode())
    return digest.hexdigest()[:16]


def _mteb() -> Any:
    """Returns the package mteb."""
    try:
        import mteb
        import torchvision  # noqa: F401, mteb needs it for images
        from mteb.models.models_protocols import EncoderProtocol  # noqa: F401, since mteb 2
    except ImportError as error:
        # Without its version, pip could replace PyTorch by another series than Tessera's.
        torch_version = torch.__version__.partition("+")[0]
        raise Refused(f"the package mteb, version 2 or newer, is not installed in {sys.prefix} ({error}): "
                      f"{sys.executable} -m pip install 'mteb[image]' torch=={torch_version}") from None
    return mteb


def main(arguments: Sequence[str]) -> int:
    """Runs the command line, and returns the exit code: 2 after a mistake, 1 if tasks failed."""
    parser = argparse.ArgumentParser(
        prog="python -m tessera mteb", description="Evaluates a model on tasks of the package mteb (MTEB and MIEB). Finished tasks are not "
        "repeated unless the weights have changed.")
    parser.add_argument("run", metavar="RUN", nargs="?", help="a run, a checkpoint, a model file, or an OpenCLIP checkpoint")
    parser.add_argument("--tasks", nargs="+", default=[], metavar="NAME", help="mteb's names of tasks: CIFAR10ZeroShot")
    parser.add_argument("--benchmark", metavar="NAME", help="all tasks of one of mteb's benchmarks: 'MIEB(lite)'")
    parser.add_argument("--languages", nargs="+", metavar="CODE", help="only these languages of tasks in several: eng deu (default: all)")
    parser.add_argument("--list", nargs="?", const="", metavar="TEXT", help="list the tasks and benchmarks with images whose names contain "
                        "TEXT, and exit")
    parser.add_argument("--output", metavar="FOLDER",
                        help="results.json for tessera-report, and mteb's own files (default: RUN/mteb if RUN is a folder)")
    parser.add_argument("--name", default="", help="ORGANIZATION/NAME in mteb's files (default: tessera/ and the run's name)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N (default: auto)")
    parser.add_argument("--batch-size", type=int, default=64, help="inputs embedded at a time (default: 64)")
    parser.add_argument("--overwrite", action="store_true", help="repeat finished tasks")
    add_model_arguments(parser)
    given = parser.parse_args(arguments)
    return run_command("tessera mteb", print_list if given.list is not None else evaluate, given)


def print_list(given: argparse.Namespace) -> int:
    mteb = _mteb()
    wanted = given.list.lower()
    for task in sorted(mteb.get_tasks(modalities=["image"]), key=lambda task: task.metadata.name):
        if wanted in task.metadata.name.lower():
            facts = task.metadata
            print(f"{facts.name:<44}{facts.type:<34}{'+'.join(sorted(facts.modalities)):<12}{facts.main_score}")
    for benchmark in mteb.get_benchmarks():
        if wanted in benchmark.name.lower() and any("image" in task.metadata.modalities for task in benchmark.tasks):
            print(f"--benchmark {benchmark.name!r}: {len(benchmark.tasks)} tasks")
    return 0


def chosen_tasks(given: argparse.Namespace) -> list[Any]:
    mteb = _mteb()
    if bool(given.tasks) == bool(given.benchmark):
        raise Refused("give either --tasks NAME ... or --benchmark NAME (--list shows them)")
    try:
        if given.tasks:
            return list(mteb.get_tasks(given.tasks, languages=given.languages))
        return [task.filter_languages(given.languages) for task in mteb.get_benchmark(given.benchmark).tasks]
    except KeyError as error:  # its text names similar tasks
        raise Refused(f"{error.args[0]} (--list shows the names)".removeprefix("KeyError: ").replace("\n", " ")) from None


def evaluate(given: argparse.Namespace) -> int:
    """Evaluates the tasks one by one. See main() for `given`."""
    if not given.run:
        raise Refused("give a RUN: a run, a checkpoint, a model file, or an OpenCLIP checkpoint")
    if not given.output and not pathlib.Path(given.run).is_dir():
        raise Refused(f"{given.run} is no folder, so give the results a place: --output FOLDER")
    mteb = _mteb()
    tasks = chosen_tasks(given)
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it prints a line for each try to reach the Hub
    output = pathlib.Path(given.output or pathlib.Path(given.run) / "mteb")
    encoder = Encoder(load_model(given, given.device), given.name)
    cache = mteb.ResultCache(output)
    failed = 0
    for task in tasks:
        reason = _not_for(encoder, task)
        if not reason:
            try:
                done, = mteb.evaluate(encoder, task, cache=cache, encode_kwargs={"batch_size": given.batch_size}, co2_tracker=False,
                                     overwrite_strategy="always" if given.overwrite else "only-missing",
                                     public_only=False, show_progress_bar=False).task_results
                write_results(output, encoder, given.run, task, done)
                print(f"{task.metadata.name}: {task.metadata.main_score} {done.get_score():.4f}", flush=True)
            except (OSError, RuntimeError, ValueError) as error:
                reason = _why(error, task)
        if reason:
            failed += 1
            print(f"tessera mteb: {task.metadata.name}: {reason}", file=sys.stderr, flush=True)
    print(f"{len(tasks) - failed} of {len(tasks)} tasks measured, results: {output}")
    return 1 if failed else 0


def _not_for(encoder: Encoder, task: Any) -> str:
    """Returns why the model cannot be measured on a task; nothing if it can."""
    missing = sorted(set(task.metadata.modalities) - set(encoder.mteb_model_meta.modalities))
    return f"the model does not embed {' and '.join(missing)}" if missing else ""


def _why(error: Exception, task: Any) -> str:
    text = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if not isinstance(error, (ConnectionError, FileNotFoundError)):
        return text
    return (f"its data set {task.metadata.dataset['path']} is neither in the cache nor reachable ({text}): run this once where there is a "
            "network, and set HF_HOME to that cache")


def write_results(output: pathlib.Path, encoder: Encoder, run: str, task: Any, result: Any) -> None:
    """Adds the main score of a task to results.json, which has the form of evaluate's, for tessera-report. Scores of other weights are
    dropped."""
    path, weights = output / "results.json", encoder.mteb_model_meta.revision
    old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    tasks = [each for each in old.get("tasks", []) if each["task"] != result.task_name] if old.get("weights") == weights else []
    metric = task.metadata.main_score
    tasks.append({"task": result.task_name, "data": "mteb " + ", ".join(result.scores), "metrics": {metric: result.get_score()},
                  "rules": {metric: {"better": "higher", "percent": True}}, "seconds": result.evaluation_time,
                  "settings": {"name": result.task_name, "revision": result.dataset_revision, "mteb": result.mteb_version}})
    content = {"checkpoint": run, "model_file": str(encoder.model.path), "weights": weights,
               "device": str(next(encoder.model.parameters()).device),
               "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC"),
               "tasks": sorted(tasks, key=lambda each: each["task"])}
    if step := re.fullmatch(r"step_(\d+)", encoder.model.path.parent.name):
        content["step"] = int(step[1])
    partial = path.with_suffix(".json.partial")
    with partial.open("w", encoding="utf-8") as file:
        json.dump(content, file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
