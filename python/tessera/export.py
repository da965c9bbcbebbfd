"""python -m tessera export RUN --to onnx|pt2 --out FOLDER: writes a model for ONNX Runtime or torch.export.load, and checks it.

The folder then has image.onnx and text.onnx (or .pt2), head.onnx for models that compare patches with words or texts (SPARC, FILIP, PACL,
GLoRIA, FLAIR), preprocessor_config.json, tokenizer.json or spiece.model, export.json, which says what the inputs and outputs are,
inputs.py, which makes the inputs, and use.py, which uses all of these. docs/serving.md describes them.
"""
from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import logging
import math
import os
import pathlib
import shutil
import sys
import warnings
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Optional, Sequence

from ._command import Refused, add_model_arguments, load_model, run_command
from ._export_script import script
from .plain_parts.inputs import patches_of, sides

PRECISIONS = ("float32", "float16", "int8")
ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
IMAGE_ENDINGS = {".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"}
TOLERANCE = 1e-4   # largest accepted error in float32, as a share of the largest number, if that is above 1
LEAST_COSINE = 0.999  # of float16 and int8
IMAGE_INPUTS = ("pixel_values", "pixel_attention_mask", "spatial_shapes")  # of images with their own shapes; of others only the first one
GATHERED = "patches gathered with word_weights"  # by which SPARC's head is compared
CAPTIONS = ("a", "a dog", "a photo of a cat.", "two red circles above a blue square", "A woman in a green coat rides a bicycle",
            "the small yellow boat is to the left of the big white ship, and a bird sits on its mast", "Sunset over mountains; snow, pines",
            "an aerial photograph of a harbour with about twenty sailing boats, a crane, three warehouses and a road along the shore",
            "3 apples, 2 pears & 1 lemon", "a large purple triangle", "graffiti on a brick wall", "")


def main(arguments: Sequence[str]) -> int:
    """Runs the command line, and returns the exit code: 2 after a mistake, 1 if the check found too large an error."""
    parser = argparse.ArgumentParser(prog="python -m tessera export", description="Writes a model for ONNX Runtime or torch.export.load.")
    parser.add_argument("run", metavar="RUN", help="a run, a checkpoint, a model file, or an OpenCLIP checkpoint")
    parser.add_argument("--to", required=True, choices=("onnx", "pt2"))
    parser.add_argument("--out", required=True, metavar="FOLDER", help="the folder to write; it must be new or empty")
    parser.add_argument("--precision", default="float32", choices=PRECISIONS,
                        help="type of the weights; int8: ONNX Runtime's quantization of linear maps, in blocks of 32 (default: float32)")
    parser.add_argument("--tokens", action="store_true",
                        help="also output the embeddings of patches and tokens, as model.encode_image(x, tokens=True) does, not normalized "
                        "(models that compare patches with words always output them)")
    parser.add_argument("--images", metavar="FOLDER", help="compare the outputs on the first 100 images of this folder (default: on noise)")
    parser.add_argument("--captions", metavar="FILE", help="compare the outputs on the first 100 lines of this file (default: 12 captions)")
    parser.add_argument("--time", action="store_true", help="also measure the files beside Tessera, with as many threads as PyTorch has")
    add_model_arguments(parser)
    return run_command("tessera export", export, parser.parse_args(arguments))


def export(given: argparse.Namespace) -> int:
    """Writes the folder and checks it. See main() for `given`."""
    out = pathlib.Path(given.out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise Refused(f"--out {out}: exists and is not an empty folder: give a new one")
    if given.precision == "int8" and given.to != "onnx":
        raise Refused("--precision int8 is ONNX Runtime's quantization: use --to onnx")
    need(*(ONNX_PACKAGES if given.to == "onnx" else ()), *(("onnx_ir",) if given.precision == "int8" else ()))
    ours = load_model(given, "cpu")
    samples = Samples(ours, given.images, given.captions)  # a mistake in an option is found before the work
    plan = Plan(ours, given.tokens)
    partial = out.with_name(out.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        write_models(plan, given.to, given.precision, partial)
        write_files(plan, given.to, given.precision, partial)
        good = check(plan, samples, given.to, given.precision, partial)
        if given.time:
            print_times(plan, samples, given.to, partial)
        if out.exists():
            out.rmdir()
        os.replace(partial, out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    print(f"wrote {out}: {', '.join(sorted(file.name for file in out.iterdir()))}")
    return 0 if good else 1


def need(*packages: str) -> None:
    """Raises Refused, with the command that installs them, if packages are missing."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise Refused(f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed in {sys.prefix}: "
                      f"{sys.executable} -m pip install {' '.join(name.replace('_', '-') for name in missing)}")


class File(NamedTuple):
    """A file of the export: a module, the names of its inputs, an example of them, and which of their sizes may vary."""

    name: str
    module: Any
    inputs: tuple[str, ...]
    example: tuple[Any, ...]
    varying: tuple[dict[int, Any], ...]
    outputs: tuple[str, ...]


class Plan:
    """What is exported of a model: the plain model, the outputs of its towers, its head, and the files."""

    def __init__(self, ours: Any, tokens: bool):
        from . import _export_modules as modules
        from . import plain_model
        self.ours, config = ours, ours.config
        tensors = {name: tensor.detach() for name, tensor in ours.state_dict().items()}
        try:
            self.plain = plain_model.Model(config["model"], tensors, config.get("tokenizer") or {}, b"").eval()
        except ValueError as error:
            raise Refused(f"{ours.path}: this model cannot be exported: {error}") from None
        self.settings = config["model"]
        self.own_shapes = self.settings["preprocessing"]["resize_mode"] == "naflex"
        self.tokenizer: dict[str, Any] = {}
        if ours.takes_texts:
            ours.tokenize([""])  # raises if the tokenizer of a published folder cannot be read
            self.tokenizer = {**config["tokenizer"], "context_length": ours.tokenizer.context_length}
        self.pad_is_text = bool(self.tokenizer.get("pad_is_text"))
        self.scale = None if ours.logit_scale is None else math.exp(ours.logit_scale.item())
        self.sparse = plain_model.name_of(self.settings["image"].get("readout")) == "token_projection"
        self.objective = modules.token_objective(config, ours.objective) if ours.takes_texts else None
        self.head = modules.head_of(self.objective, self.scale)
        self.image_outputs, self.text_outputs = self._outputs(modules.Output, tokens)
        self.image = modules.ImageTower(self.plain, self.image_outputs).eval()
        self.text = modules.TextTower(self.plain, self.text_outputs).eval() if ours.takes_texts else None
        self.head_inputs: tuple[str, ...] = ()
        if self.head is not None:
            by_token = self.objective.name in ("sparc", "filip", "gloria")
            self.head_inputs = ("image_tokens", "text_tokens", "attention_mask") if by_token else ("image_tokens", "text_features")

    def _outputs(self, Output: Any, tokens: bool) -> tuple[list[Any], list[Any]]:
        from .plain_model import name_of
        from .plain_parts.readouts import SLOTS
        readouts = {kind: name_of((self.settings.get(kind) or {}).get("readout")) for kind in ("image", "text")}
        image, text = ([Output(f"{kind}_embeds", "embeddings", True)] if readouts[kind] != "none" else [] for kind in ("image", "text"))
        if self.objective is not None:
            image.append(Output("image_tokens", "tokens"))
            by_text = self.objective.name in ("pacl", "flair")
            text.append(Output("text_features", "embeddings") if by_text else Output("text_tokens", "tokens"))
        elif tokens or not image:
            image.append(Output("image_tokens", "dense"))
            text.append(Output("text_tokens", "dense"))
        for outputs, kind in ((image, "image"), (text, "text")):
            if readouts[kind] in SLOTS:
                outputs.append(Output(f"{kind}_slots", "slots"))
        return image, text

    @property
    def size(self) -> tuple[int, int]:
        height, width = sides(self.settings["preprocessing"]["image_size"])
        return height, width

    def inputs_of(self, images: Sequence[Any]) -> dict[str, Any]:
        """Returns the image tower's inputs for images uint8 [3, H, W] from Tessera's preprocessing."""
        import torch
        mean, std = (torch.tensor(self.settings["preprocessing"][key]).view(3, 1, 1) for key in ("mean", "std"))
        pixels = [(image / 255 - mean) / std for image in images]
        if not self.own_shapes:
            return {"pixel_values": torch.stack(pixels)}
        return dict(zip(IMAGE_INPUTS, map(torch.from_numpy, patches_of([x.numpy() for x in pixels], self.settings["preprocessing"]))))

    def files(self) -> list[File]:
        """Returns the files to write. Examples have several rows, because PyTorch treats a batch of one as constant."""
        import torch
        batch = torch.export.Dim("batch", min=1, max=1 << 20)
        images: tuple[Any, ...] = (torch.zeros(2, 3, *self.size),)
        of_images: tuple[dict[int, Any], ...] = ({0: batch},)
        if self.own_shapes:
            most, (height, width) = self.settings["preprocessing"]["max_patches"], sides(self.settings["preprocessing"]["patch_size"])
            images = torch.zeros(2, most, height * width * 3), torch.ones(2, most, dtype=torch.int64), torch.tensor([[1, most], [most, 1]])
            patches = {1: torch.export.Dim("patches", min=1, max=most)} if most > 1 else {}
            of_images = {0: batch, **patches}, {0: batch, **patches}, {0: batch}
        files = [File("image", self.image, IMAGE_INPUTS[:len(images)], images, of_images, tuple(o.name for o in self.image_outputs))]
        if self.text is None:
            return files
        length = self.tokenizer["context_length"]
        sequence = {} if self.pad_is_text or length == 1 else {1: torch.export.Dim("sequence", min=1, max=length)}
        columns = length if not sequence else min(length, 8)
        ids, mask = torch.ones(2, columns, dtype=torch.int64), torch.ones(2, columns, dtype=torch.int64)
        names = ("input_ids",) if self.pad_is_text else ("input_ids", "attention_mask")
        files.append(File("text", self.text, names, (ids, mask)[:len(names)], ({0: batch, **sequence},) * len(names),
                          tuple(o.name for o in self.text_outputs)))
        if self.head is not None:
            with torch.no_grad():
                encoded, texts = self.image(*images), self.text(torch.ones(3, columns, dtype=torch.int64),
                                                               *([] if self.pad_is_text else [torch.ones(3, columns, dtype=torch.int64)]))
            of_texts = {0: torch.export.Dim("texts", min=1, max=1 << 20)}
            example = [encoded["image_tokens"], texts[self.head_inputs[1]]]
            varying: list[dict[int, Any]] = [{0: batch}, of_texts]
            if len(self.head_inputs) == 3:
                example.append(torch.ones(example[1].shape[:2], dtype=torch.int64))
                varying = [{0: batch}, {**of_texts, **sequence}, {**of_texts, **sequence}]
            with torch.no_grad():
                outputs = tuple(self.head(*example))
            files.append(File("head", self.head, self.head_inputs, tuple(example), tuple(varying), outputs))
        return files


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silences PyTorch's notes about its own exporter."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def write_models(plan: Plan, to: str, precision: str, folder: pathlib.Path) -> None:
    import torch
    files = plan.files()
    if precision == "float16":
        plan.plain.half()  # the head stays float32
    for file in files:
        path = folder / f"{file.name}.{to}"
        with torch.no_grad(), quiet():
            if to == "pt2":
                program = torch.export.export(file.module, (), dict(zip(file.inputs, file.example)),
                                              dynamic_shapes=dict(zip(file.inputs, file.varying)))
                torch.export.save(program, path)
                continue
            onnx_program = torch.onnx.export(file.module, file.example, dynamo=True, dynamic_shapes=file.varying,
                                             input_names=list(file.inputs), output_names=list(file.outputs), verbose=False)
        large = sum(p.numel() * p.element_size() for p in file.module.parameters()) > 1_800_000_000  # protobuf ends at 2 GB
        onnx_program.save(path, external_data=large)
        if precision == "int8" and file.name != "head":
            quantize(path)


def quantize(path: pathlib.Path) -> None:
    """Replaces the products with weights in an ONNX file by ONNX Runtime's products with int8 weights. Products before a hard assignment of
    tokens to groups stay as they are, because a rounded score could move a token to another group."""
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer
    with quiet():
        model = onnx.load(path)
        settings = DefaultWeightOnlyQuantConfig(block_size=32, is_symmetric=True, accuracy_level=4, bits=8)
        quantizer = MatMulNBitsQuantizer(model, algo_config=settings, nodes_to_exclude=_before_argmax(model.graph.node))
        quantizer.process()
        quantizer.model.save_model_to_file(str(path), use_external_data_format=False)


def _before_argmax(nodes: Sequence[Any]) -> list[str]:
    """Returns the names of the nodes whose results an ArgMax depends on."""
    maker = {output: node for node in nodes for output in node.output}
    waiting, found = [name for node in nodes if node.op_type == "ArgMax" for name in node.input], {}
    while waiting:
        node = maker.get(waiting.pop())
        if node is not None and node.name not in found:
            found[node.name] = node
            waiting += node.input
    return list(found)


def write_files(plan: Plan, to: str, precision: str, folder: pathlib.Path) -> None:
    def write(name: str, content: Any) -> None:
        (folder / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    write("preprocessor_config.json", preprocessor_config(plan.settings["preprocessing"], plan.size))
    if plan.tokenizer:
        if plan.tokenizer["name"] == "sentencepiece":
            (folder / "spiece.model").write_bytes(plan.ours.tokenizer.vocabulary)
        else:
            text = json.dumps(tokenizer_json(plan), ensure_ascii=False)
            (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    write("export.json", description(plan, to, precision))
    shutil.copy(pathlib.Path(__file__).parent / "plain_parts/inputs.py", folder)
    tokenizer = "" if not plan.tokenizer else "sentencepiece" if plan.tokenizer["name"] == "sentencepiece" else "tokenizers"
    embeds = plan.image_outputs[0].part == "embeddings"
    text = script(to, tokenizer, plan.objective.name if plan.objective else "", plan.head_inputs, embeds, plan.sparse)
    (folder / "use.py").write_text(text, encoding="utf-8")


def preprocessor_config(s: Mapping[str, Any], size: tuple[int, int]) -> dict[str, Any]:
    """Returns the preprocessing in the keys of transformers' preprocessor_config.json, and as `tessera` in Tessera's own settings, which
    say more."""
    height, width = (math.floor(side / s["crop_pct"]) for side in size)
    shortest = s["resize_mode"] == "shortest"
    out: dict[str, Any] = {
        "do_convert_rgb": True, "do_resize": True, "resample": 2 if s["interpolation"] == "bilinear" else 3, "do_rescale": True,
        "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": s["mean"], "image_std": s["std"],
        "tessera": {**s, "image_size": size}}
    if s["resize_mode"] == "naflex":
        patches = {"patch_size": sides(s["patch_size"])[0], "max_num_patches": s["max_patches"]}
        return {"image_processor_type": "Siglip2ImageProcessor", **patches, **out}
    out["size"] = {"shortest_edge": min(height, width)} if shortest else {"height": height, "width": width}
    return {**out, "do_center_crop": shortest or s["crop_pct"] < 1, "crop_size": {"height": size[0], "width": size[1]}}


def tokenizer_json(plan: Plan) -> dict[str, Any]:
    """Returns tokenizer.json, which also cuts and pads texts as the text tower takes them."""
    out = json.loads(plan.ours._bound.tokenizer_json() or "{}")
    if not out:
        raise Refused(f"{plan.ours.path}: the tokenizer {plan.tokenizer['name']} cannot be written as a tokenizer.json")
    length, pad = plan.tokenizer["context_length"], plan.ours.tokenizer.pad_id
    vocabulary = out["model"]["vocab"]
    spelled = {index: piece for piece, index in vocabulary.items()} if isinstance(vocabulary, dict) else \
        {index: entry[0] for index, entry in enumerate(vocabulary)}
    for token in out.setdefault("added_tokens", []):
        spelled[token["id"]] = token["content"]
        for key in ("single_word", "lstrip", "rstrip"):  # which the tokenizers package demands
            token.setdefault(key, False)
    out["truncation"] = {"direction": "Right", "max_length": length, "strategy": "LongestFirst", "stride": 0}
    out["padding"] = {"strategy": {"Fixed": length} if plan.pad_is_text else "BatchLongest", "direction": "Right",
                      "pad_to_multiple_of": None, "pad_id": pad, "pad_type_id": 0, "pad_token": spelled.get(pad, "")}
    return out


MEANINGS = {
    "pixel_values": "float32 [images, 3, height, width], resized and normalized as preprocessor_config.json says",
    "pixel_attention_mask": "int64 [images, patches], 1 = a real patch, 0 = padding behind the image's patches",
    "spatial_shapes": "int64 [images, 2], rows and columns of each image's patches",
    "input_ids": "int64 [texts, length], from the tokenizer",
    "attention_mask": "int64 [texts, length], 1 = a real token, 0 = padding on the right",
    "image_embeds": "[images, D], of length 1: the dot product with text_embeds is the cosine",
    "text_embeds": "[texts, D], of length 1",
    "image_tokens": "[images, patches, W], the patches row by row, not normalized",
    "text_tokens": "[texts, length, W], one row per token, 0 at padding, not normalized",
    "text_features": "[texts, D], the texts' embeddings before they are normalized: the head's input",
    "image_slots": "[images, slots, E], not normalized", "text_slots": "[texts, slots, E], not normalized",
    "word_weights": "[images, texts, length, patches], how much each token gathers of each patch",
    "similarity_i2t": "[images, texts], mean over patches of the largest cosine with a token",
    "similarity_t2i": "[images, texts], mean over tokens of the largest cosine with a patch",
    "similarity": "[images, texts], by which to rank", "text_weights": "[images, texts, patches], the weight of each patch for a text",
    "pooled_embeds": "[images, texts, D], each image pooled for each text, of length 1",
    "text_attention": "[images, texts, patches], how much each text attends to each patch",
}


def description(plan: Plan, to: str, precision: str) -> dict[str, Any]:
    """Returns the content of export.json."""
    from ._version import version
    bias = plan.ours.logit_bias
    sparse = {name: MEANINGS[name] + "; number i is that of token i of the vocabulary" for name in ("image_embeds", "text_embeds")}
    patches = {"pixel_values": "float32 [images, patches, height * width * 3], an image's patches row by row, normalized"}
    means = {**MEANINGS, **(sparse if plan.sparse else {}), **(patches if plan.own_shapes else {})}
    settings = {key: value for key, value in plan.tokenizer.items() if key not in ("model", "merges", "vocab")}
    return {
        "tessera": version(), "format": to, "precision": precision,
        "files": {f"{file.name}.{to}": {"inputs": {name: means[name] for name in file.inputs},
                                        "outputs": {name: means[name] for name in file.outputs}} for file in plan.files()},
        "logit_scale": plan.scale, "logit_bias": None if bias is None else bias.item(),
        "grid": list(plan.ours.grid), "objective": plan.objective.name if plan.objective else None, "tokenizer": settings or None,
    }


# ---- the check

class Samples:
    """The images and captions on which outputs are compared."""

    def __init__(self, ours: Any, images: Optional[str], captions: Optional[str]):
        import torch
        if images is None:
            self.pixels = _noise(ours)
            self.of_images = f"{len(self.pixels)} images of noise"
        else:
            files = sorted(file for file in pathlib.Path(images).rglob("*") if file.suffix.lower() in IMAGE_ENDINGS)[:100]
            if not files:
                raise Refused(f"--images {images}: no image in this folder ({', '.join(sorted(IMAGE_ENDINGS))})")
            self.pixels = [ours.preprocess(file) for file in files]
            self.of_images = f"{len(files)} images"
        self.captions = list(CAPTIONS)
        if captions is not None:
            self.captions = [line for line in pathlib.Path(captions).read_text(encoding="utf-8").splitlines() if line.strip()][:100]
            if not self.captions:
                raise Refused(f"--captions {captions}: has no line with text")


def _noise(ours: Any) -> list[Any]:
    """Returns images uint8 [3, H, W] with patterns of all sizes, and of several shapes if the model keeps these."""
    import torch
    import torch.nn.functional as F
    size, generator = sides(ours.preprocessing["image_size"]), torch.Generator().manual_seed(0)
    own_shapes = ours.preprocessing["resize_mode"] == "naflex"
    images = []
    for i in range(7):
        shape = (size[0] * (i % 3 + 1), size[1] * (i % 2 + 1)) if own_shapes else size
        coarse = [F.interpolate(torch.rand(1, 3, cells, cells, generator=generator), size=shape, mode="bilinear") for cells in (2, 7, 32)]
        images.append(ours.preprocess((sum(coarse)[0] * 85).to(torch.uint8)))
    return images


def runner(path: pathlib.Path) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Returns a function that runs an exported file on tensors by name."""
    import torch
    if path.suffix == ".pt2":
        with quiet():
            module = torch.export.load(path).module()
        return lambda inputs: module(**inputs)
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(str(path), options)
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, map(torch.from_numpy, session.run(None, {key: value.numpy() for key, value in inputs.items()}))))


def check(plan: Plan, samples: Samples, to: str, precision: str, folder: pathlib.Path) -> bool:
    """Prints the largest error of each output of the files, and returns whether all are small enough."""
    import torch
    good = True
    with torch.no_grad():
        theirs = _ours(plan, samples)
        run = runner(folder / f"image.{to}")
        exported = _in_batches(run, plan.inputs_of(samples.pixels))
        if plan.text is not None:
            ids, mask = plan.ours.tokenize(samples.captions)
            longest = ids.shape[1] if plan.pad_is_text else int(mask.sum(1).max())
            inputs = {"input_ids": ids[:, :longest], "attention_mask": mask[:, :longest].long()}
            if plan.pad_is_text:
                del inputs["attention_mask"]
            exported.update(_in_batches(runner(folder / f"text.{to}"), inputs))
            _print_tokens(folder, plan, samples.captions, ids, mask)
        if plan.head is not None:
            few = {"image_tokens": theirs["image_tokens"][:7], plan.head_inputs[1]: theirs[plan.head_inputs[1]][:7]}
            if "attention_mask" in plan.head_inputs:
                few["attention_mask"] = mask[:7, :longest].long()
            exported.update(runner(folder / f"head.{to}")(few))
            theirs.update(head_by_ours(plan, few))
            if "word_weights" in exported:
                exported[GATHERED] = exported["word_weights"] @ few["image_tokens"][:, None]
    for name, expected in theirs.items():
        good &= _report(name, exported[name], expected, precision, samples)
    return good


def _ours(plan: Plan, samples: Samples) -> dict[str, Any]:
    """Returns the outputs of the model itself under the names of the exported ones."""
    import torch.nn.functional as F
    ids, mask = plan.ours.tokenize(samples.captions) if plan.text is not None else (None, None)
    out = {}
    for outputs, encode in ((plan.image_outputs, lambda parts: plan.ours._bound.image_parts(samples.pixels, parts)),
                            (plan.text_outputs, lambda parts: plan.ours._bound.text_parts(ids, mask, parts))):
        if encode and (outputs is plan.image_outputs or plan.text is not None):
            parts = encode([each.part for each in outputs])
            for each in outputs:
                x = parts[each.part].float()
                out[each.name] = F.normalize(x, dim=-1) if each.unit else x
                if each.name == "text_tokens":
                    out[each.name] = x[:, :x.shape[1] if plan.pad_is_text else int(mask.sum(1).max())]
    return out


def _in_batches(run: Callable[[Mapping[str, Any]], dict[str, Any]], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Runs a batch of one row, and the others in batches of up to 16."""
    import torch
    count = len(next(iter(inputs.values())))
    edges = [0, 1, *range(17, count, 16), count] if count > 1 else [0, 1]
    parts = [run({name: value[begin:end] for name, value in inputs.items()}) for begin, end in zip(edges, edges[1:]) if end > begin]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def head_by_ours(plan: Plan, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what Tessera's operators compute for the head's inputs."""
    import torch
    import torch.nn.functional as F

    from . import functional
    name, settings, tensors = plan.objective
    tokens = inputs["image_tokens"]
    if name == "flair":
        pooled = functional.text_conditioned_pool(tokens, inputs["text_features"], tensors, heads=settings.get("heads", 8),
                                                  zero_token=settings.get("zero_token", True))
        return {"pooled_embeds": F.normalize(pooled, dim=-1)}
    if name == "filip":
        i2t, t2i = functional.max_similarity(F.normalize(tokens, dim=-1), F.normalize(inputs["text_tokens"], dim=-1),
                                             token_keep=inputs["attention_mask"] != 0)
        return {"similarity_i2t": i2t, "similarity_t2i": t2i}
    if name == "sparc":
        texts, mask = inputs["text_tokens"], inputs["attention_mask"] != 0
        options = {key: settings[key] for key in ("weights", "threshold", "sparsify", "softmax_temperature") if key in settings}
        return {GATHERED: torch.stack([functional.sparsify_group(texts, image.expand(len(texts), -1, -1), mask, **options)
                                       for image in tokens])}
    return dict(plan.head(*inputs.values()))  # pacl and gloria have no operator of their own


def _report(name: str, exported: Any, expected: Any, precision: str, samples: Samples) -> bool:
    import torch
    error = (exported - expected).abs().max().item()
    rows = torch.nn.functional.cosine_similarity(exported.flatten(1), expected.flatten(1), dim=1)
    cosine = rows[expected.flatten(1).norm(dim=1) > 0].min().item()
    of = {"image": samples.of_images, "text": f"{len(samples.captions)} captions"}.get(name.partition("_")[0], "pairs")
    print(f"{name}: error at most {error:.1e}, cosine at least {cosine:.6f}, against Tessera on {of}")
    # Rounding decides on which side of SPARC's threshold a patch is that lies on it, and such a patch's weight is up to 1 / patches.
    limit = TOLERANCE * (50 if name == GATHERED else 1)
    good = cosine >= LEAST_COSINE if precision != "float32" else error <= limit * max(1.0, expected.abs().max().item())
    if not good:
        text = f"a cosine of {LEAST_COSINE}" if precision != "float32" else f"{limit:.0e} of the largest number"
        print(f"tessera export: {name}: the limit is {text}: do not use this file", file=sys.stderr)
    return good


def print_times(plan: Plan, samples: Samples, to: str, folder: pathlib.Path) -> None:
    """Prints the shortest time of ten calls of the towers, and their least processor time, for one input and for 16, beside Tessera's."""
    import torch
    ours = plan.ours
    for kind in ("image", "text") if plan.text is not None else ("image",):
        run = runner(folder / f"{kind}.{to}")
        for rows in (1, 16):
            if kind == "image":
                images = [samples.pixels[i % len(samples.pixels)] for i in range(rows)]
                inputs = plan.inputs_of(images)
                encode = lambda images=images: ours._bound.image_parts(images, [])
            else:
                ids, mask = ours.tokenize([samples.captions[i % len(samples.captions)] for i in range(rows)])
                longest = ids.shape[1] if plan.pad_is_text else int(mask.sum(1).max())
                ids, mask = ids[:, :longest], mask[:, :longest]
                inputs = {"input_ids": ids} if plan.pad_is_text else {"input_ids": ids, "attention_mask": mask.long()}
                encode = lambda ids=ids, mask=mask: ours._bound.text_parts(ids, mask, [])
            theirs, own = (_shortest(call) for call in (lambda inputs=inputs: run(inputs), encode))
            print(f"{rows} {kind}{'s' if rows > 1 else ''}: {theirs} with {to}, {own} with Tessera, "
                  f"{torch.get_num_threads()} thread{'s' if torch.get_num_threads() > 1 else ''}")


def _shortest(call: Callable[[], Any]) -> str:
    import time

    import torch
    wall, processor = [], []
    with torch.no_grad():
        for _ in range(10):
            begin, used = time.perf_counter(), time.process_time()
            call()
            wall.append(time.perf_counter() - begin)
            processor.append(time.process_time() - used)
    return f"{min(wall) * 1000:.1f} ms (processor {min(processor) * 1000:.1f})"


def _print_tokens(folder: pathlib.Path, plan: Plan, captions: Sequence[str], ids: Any, mask: Any) -> None:
    """Prints how many captions the written tokenizer turns into the model's ids."""
    if not (folder / "tokenizer.json").is_file():
        return
    if importlib.util.find_spec("tokenizers") is None:
        print(f"tokenizer.json: not checked, because the package tokenizers is missing: {sys.executable} -m pip install tokenizers")
        return
    import tokenizers
    encoded = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).encode_batch(list(captions))
    zero = plan.tokenizer.get("zero_id", -1)
    same = 0
    for each, row, real in zip(encoded, ids.tolist(), mask.tolist()):
        found = [0 if i == zero else i for i in each.ids]
        kept = len(row) if plan.pad_is_text else sum(real)
        same += found[:kept] == row[:kept] and (plan.pad_is_text or sum(each.attention_mask) == kept)
    print(f"tokenizer.json: the ids of {same} of {len(captions)} captions equal Tessera's")

