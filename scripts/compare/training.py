#!/usr/bin/env python3
"""Compares five AdamW steps of published towers with the same steps in PyTorch with the library's own model: the same weights,
images, captions, loss and parameter groups. Ours are runs of the trainer: plain, with blocks recomputed in the backward pass
(grad_checkpointing), and in parts with GradCache (micro_batch).

  python3 -m pip install torch torchvision transformers timm open_clip_torch tokenizers safetensors pillow
  scripts/compare/training.py                         # runs build/bin/trainer with small random models from scripts/make_small_models.py
  scripts/compare/training.py --only dinov3 --bin build-develop/bin

  siglip2   transformers' SiglipModel with its own sigmoid loss
  naflex    transformers' Siglip2Model on images of six shapes, with its own sigmoid loss
  dinov3    transformers' DINOv3ViTModel, [class token, mean of patches] and a projection, against CLIPModel's text tower; InfoNCE
  eva02     OpenCLIP's CustomTextCLIP with timm's eva02_tiny_patch14_224; InfoNCE
  pe_core   the same with timm's vit_pe_core_tiny_patch16_384
  modern    the same with OpenCLIP's ViT and modern text tower; skipped with an OpenCLIP that has no such tower

For each case the script prints how far PyTorch's weights moved (relative to their norm), the largest difference of a loss, relative to
1 + loss, and the largest difference of a weight tensor after the last step, relative to its norm, with the tensor's name. DINOv3's rotary
augmentation is off because it is random. AdamW's eps is 1e-5: the softmax does not depend on a key's bias, so the bias's gradient is pure
rounding error, and a smaller eps would turn it into random updates.

Exit code: 0; 1 if a difference exceeds --tolerance; 77 if a Python package is missing.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import make_small_models  # noqa: E402

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
    import transformers
    from PIL import Image
    from safetensors import safe_open
except ImportError as error:
    print(f"compare/training.py: skipped, {error}")
    sys.exit(77)

STEPS, BATCH = 5, 6
ADAMW = {"lr": 3e-4, "betas": [0.9, 0.98], "eps": 1e-5, "weight_decay": 0.2}
NO_DECAY = ("bias", "ln_", "norm", "logit_scale", "positional_embedding", "position_embedding", "pos_embed", "class_embedding",
            "class_token", "cls_token")  # the default of no_decay (docs/configuration.md, adamw)
UNUSED = {"image.embeddings.mask_token"}  # parameters that only DINOv3's own training uses
VARIANTS = {"whole": [], "blocks computed again": ["model.image.encoder.grad_checkpointing=true", "model.text.encoder.grad_checkpointing=true"],
            "parts of 2": ["training.micro_batch=2"]}


# ---- the libraries' side: each case has a function loss(pixels, captions)

class Siglip:
    normalization = "half"
    settings = ["objective={name: siglip}"]

    def __init__(self, folder, name="siglip2"):
        self.model = transformers.AutoModel.from_pretrained(folder / name)
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder / name)

    def images(self, pixels):
        return {"pixel_values": torch.stack(pixels)}

    def loss(self, pixels, captions):
        ids = self.tokenizer(captions, padding="max_length", truncation=True, max_length=64, return_tensors="pt").input_ids
        return self.model(input_ids=ids, **self.images(pixels), return_loss=True).loss


class Naflex(Siglip):
    PATCH, MOST = 8, 48  # of make_small_models.py

    def images(self, pixels):
        """Returns patches as the library's processor makes them of images that need no resizing."""
        grids = torch.tensor([[image.shape[1] // self.PATCH, image.shape[2] // self.PATCH] for image in pixels])
        rows = [image.unfold(1, self.PATCH, self.PATCH).unfold(2, self.PATCH, self.PATCH).permute(1, 2, 3, 4, 0).flatten(2).flatten(0, 1)
                for image in pixels]
        patches = torch.stack([F.pad(row, (0, 0, 0, self.MOST - len(row))) for row in rows])
        mask = torch.arange(self.MOST) < grids.prod(1, keepdim=True)
        return {"pixel_values": patches, "pixel_attention_mask": mask.long(), "spatial_shapes": grids}


def info_nce(image, text, scale):
    logits = scale * F.normalize(image, dim=-1) @ F.normalize(text, dim=-1).T
    right = torch.arange(len(logits))
    return (F.cross_entropy(logits, right) + F.cross_entropy(logits.T, right)) / 2


class DinoAndClipText(torch.nn.Module):
    def __init__(self, folder, projection):
        super().__init__()
        config = transformers.AutoConfig.from_pretrained(folder / "dinov3")
        config.pos_embed_rescale = None
        self.image = transformers.DINOv3ViTModel.from_pretrained(folder / "dinov3", config=config)
        clip = transformers.CLIPModel.from_pretrained(folder / "clip")
        self.text, self.text_projection = clip.text_model, clip.text_projection
        self.proj = torch.nn.Parameter(projection.clone())  # [2 w, D]
        self.logit_scale = torch.nn.Parameter(torch.tensor(1 / 0.07).log())

    def forward(self, pixels, ids, mask):
        tokens = self.image(pixel_values=pixels).last_hidden_state
        patches = tokens[:, 1 + self.image.config.num_register_tokens:].mean(1)
        image = torch.cat([tokens[:, 0], patches], 1) @ self.proj
        text = self.text_projection(self.text(input_ids=ids, attention_mask=mask).pooler_output)
        return info_nce(image, text, self.logit_scale.exp())


class Dino:
    normalization = "imagenet"
    image = {"readout": "cls_mean", "projection": {"name": "linear", "embed_dim": 64}, "encoder": {"rotary": {"rescale": None}}}
    settings = ["objective={name: clip}"]

    def __init__(self, folder, ours):
        self.model = DinoAndClipText(folder, ours["visual.proj"])
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "clip")

    def loss(self, pixels, captions):
        tokens = self.tokenizer(captions, padding="max_length", truncation=True, max_length=77, return_tensors="pt")
        return self.model(torch.stack(pixels), tokens.input_ids, tokens.attention_mask)


class OpenClip:
    settings, normalization = ["objective={name: clip}"], "clip"

    def __init__(self, folder, name):
        import open_clip
        from safetensors.torch import load_file
        config = json.loads((folder / name / "open_clip_config.json").read_text())["model_cfg"]
        config.pop("custom_text")
        self.model = open_clip.CustomTextCLIP(**config)
        self.model.load_state_dict(load_file(folder / name / "open_clip_model.safetensors"))
        self.tokenizer = open_clip.SimpleTokenizer(context_length=config["text_cfg"]["context_length"])

        if config["text_cfg"].get("hf_tokenizer_name"):
            tokenizer, length = transformers.AutoTokenizer.from_pretrained(folder / name), config["text_cfg"]["context_length"]
            self.tokenizer = lambda texts: tokenizer(texts, padding="max_length", truncation=True, max_length=length, return_tensors="pt").input_ids

    def loss(self, pixels, captions):
        return info_nce(self.model.encode_image(torch.stack(pixels)), self.model.encode_text(self.tokenizer(captions)), self.model.logit_scale.exp())


CASES = {"siglip2": lambda folder, ours: Siglip(folder), "naflex": lambda folder, ours: Naflex(folder, "naflex"), "dinov3": Dino,
         "eva02": lambda folder, ours: OpenClip(folder, "eva02_clip"), "pe_core": lambda folder, ours: OpenClip(folder, "pe_core"),
         "modern": lambda folder, ours: OpenClip(folder, "modern")}
TOWERS = {"siglip2": ({"image": "siglip2", "text": "siglip2"}, {}, Siglip), "naflex": ({"image": "naflex", "text": "naflex"}, {}, Naflex),
          "modern": ({"image": "modern", "text": "modern"}, {}, OpenClip), "dinov3": ({"image": "dinov3", "text": "clip"}, Dino.image, Dino),
          "eva02": ({"image": "eva02_clip", "text": "eva02_clip"}, {}, OpenClip), "pe_core": ({"image": "pe_core", "text": "pe_core"}, {}, OpenClip)}
SIDES = {"siglip2": 64, "dinov3": 64, "eva02": 224, "pe_core": 384, "modern": 64}
SHAPES = {"naflex": [(48, 64), (64, 48), (40, 72), (24, 128), (72, 40), (8, 384)]}  # heights and widths, in turn


# ---- data

def write_data(folder, shapes):
    """Writes STEPS * BATCH images of these shapes in turn, each with a caption. Returns the pixels (0..255) and the captions."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    captions = list(dict.fromkeys(make_small_models.texts()))
    captions = [captions[i] for i in rng.permutation(len(captions))[:STEPS * BATCH]]
    pictures = [rng.integers(0, 256, (*shapes[i % len(shapes)], 3), dtype=np.uint8) for i in range(STEPS * BATCH)]
    rows = ["filepath,title"]
    for i, (picture, caption) in enumerate(zip(pictures, captions)):
        Image.fromarray(picture).save(folder / f"{i}.png")
        rows.append(f"{i}.png,{caption}")
    (folder / "table.csv").write_text("\n".join(rows) + "\n")
    return [torch.from_numpy(picture).permute(2, 0, 1).float() for picture in pictures], captions


# ---- ours

class Trainer:
    def __init__(self, program, folder, models, towers, image, settings, data):
        self.program, self.folder = program, folder
        config = {"seed": 1, "data": {"train": {"name": "csv", "path": str(data / "table.csv"), "separator": "comma"},
                                      "loader": {"batch_size": BATCH, "threads": 1, "shuffle": False, "augmentation": {"crop": "evaluation"}}},
                  "model": {"image": {"from": str(models / towers["image"]), **image}, "text": {"from": str(models / towers["text"])}},
                  "optimizer": {"name": "adamw", **ADAMW}, "schedule": {"schedule": "constant"},
                  "training": {"steps": STEPS, "precision": "float32", "device": "cpu", "clip_norm": None},
                  "checkpoint": {"every_steps": STEPS}, "log": {"every_steps": 1, "tensorboard": False, "peak_tflops": 1.0}}
        self.config = folder / "config.yaml"
        self.config.write_text(json.dumps(config))
        self.settings = settings

    def run(self, name, *settings):
        """Returns the losses and the weights after the last step."""
        run = self.folder / name
        command = [self.program, "--config", self.config, "--set", f"run.folder={run}", *self.settings, *settings]
        ended = subprocess.run(command, capture_output=True, text=True)
        if ended.returncode:
            sys.exit(f"compare/training.py: {' '.join(map(str, command))}: exit {ended.returncode}\n{ended.stderr[-1000:]}")
        losses = [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]
        checkpoint = max((run / "checkpoints").glob("step_*"))
        with safe_open(next(checkpoint.glob("model*.safetensors")), "pt") as file:
            return losses, {name: file.get_tensor(name).float() for name in file.keys() if file.get_tensor(name).is_floating_point()}


# ---- matching of tensors

def parts(tensor):
    """Returns the functions that may turn one of our tensors into one of theirs, or the reverse: identity, transpose, channels last, a half
    along the first axis (of a gated MLP), a third (queries, keys or values), or two thirds (keys and values)."""
    changes = [lambda t: t]
    if tensor.dim() == 4:
        changes.append(lambda t: t.permute(0, 2, 3, 1).flatten(1))
    if tensor.dim() == 2:
        changes.append(lambda t: t.T)
    for count, width in ((2, 1), (3, 1), (3, 2)):
        if tensor.dim() > 0 and tensor.shape[0] % count == 0:
            changes += [lambda t, i=i, count=count, width=width: torch.cat(t.chunk(count)[i:i + width]) for i in range(count - width + 1)]
    return changes


def content(tensor):
    return tensor.detach().float().contiguous().numpy().tobytes()


def pairs(theirs, ours):
    """Returns [(their name, their tensor -> part, our name, our tensor -> part)] for tensors whose parts have the same content."""
    known = {}
    for name, tensor in ours.items():
        for change in parts(tensor):
            known.setdefault(content(change(tensor)), (name, change))
    found = []
    for name, tensor in theirs.items():
        whole, *pieces = parts(tensor)
        if content(tensor) in known:
            found.append((name, whole, *known[content(tensor)]))
        else:  # the library stores both halves of a gated MLP in one tensor
            found += [(name, piece, *known[content(piece(tensor))]) for piece in pieces if content(piece(tensor)) in known]
    return found


# ---- the comparison

def decays(name, tensor):
    return tensor.dim() >= 2 and not any(part in name for part in NO_DECAY)


def library_steps(case, pixels, captions, found, ours):
    own = {theirs: name for theirs, _, name, _ in found}
    groups = {True: [], False: []}
    for name, parameter in case.model.named_parameters():
        if name in own:
            groups[decays(own[name], ours[own[name]])].append(parameter)
    optimizer = torch.optim.AdamW([{"params": groups[True]}, {"params": groups[False], "weight_decay": 0.0}], **ADAMW)
    case.model.train()
    losses = []
    for step in range(STEPS):
        rows = slice(step * BATCH, (step + 1) * BATCH)
        loss = case.loss(pixels[rows], captions[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def distance(a, b):
    return ((a - b).norm() / b.norm().clamp_min(1e-12)).item()


def compare(name, program, folder, models):
    towers, image, kind = TOWERS[name]
    pixels, captions = write_data(folder / "data", SHAPES.get(name) or [(SIDES[name], SIDES[name])])
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in make_small_models.NORMALIZATIONS[kind.normalization])
    pixels = [(image / 255 - mean) / std for image in pixels]
    trainer = Trainer(program, folder, models, towers, image, ["--set", *kind.settings], folder / "data")
    _, start = trainer.run("start", "--set", "optimizer.lr=0", "training.steps=1", "checkpoint.every_steps=1")
    case = CASES[name](models, start)
    before = {key: value.detach().clone() for key, value in case.model.named_parameters()}
    found = pairs(before, start)
    alone = set(before) - {name for name, *_ in found} - UNUSED, set(start) - {name for _, _, name, _ in found}
    if any(alone):
        sys.exit(f"compare/training.py: {name}: no counterpart for {sorted(alone[0])} of theirs and {sorted(alone[1])} of ours")
    losses = library_steps(case, pixels, captions, found, start)
    after = {key: value.detach() for key, value in case.model.named_parameters()}
    moved = max(distance(after[theirs], before[theirs]) for theirs, *_ in found)
    print(f"{name}: {len(found)} tensors, loss {losses[0]:.4f} to {losses[-1]:.4f}, weights moved by up to {moved:.3f}")
    worst = 0.0
    for variant, settings in VARIANTS.items():
        our_losses, weights = trainer.run(variant.replace(" ", "_"), *(["--set", *settings] if settings else []))
        by_loss = max(abs(a - b) / (1 + abs(b)) for a, b in zip(our_losses, losses, strict=True))
        by_weight, tensor = max((distance(change(weights[own]).reshape(-1), part(after[theirs]).reshape(-1)), theirs)
                                for theirs, part, own, change in found)
        print(f"  {variant:22}  loss {by_loss:.1e}  weights {by_weight:.1e} ({tensor})", flush=True)
        worst = max(worst, by_loss, by_weight)
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/bin"))
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES), metavar="CASE")
    parser.add_argument("--seed", type=int, default=0, help="seed of the small models")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    arguments = parser.parse_args()
    make_small_models.be_quiet()
    far, done = [], 0
    with tempfile.TemporaryDirectory() as work:
        models = pathlib.Path(work) / "models"
        for name in arguments.only:
            folder = pathlib.Path(work) / name
            try:
                for model in sorted(set(TOWERS[name][0].values())):
                    make_small_models.write(models / model, model, arguments.seed)
            except ImportError as error:
                print(f"{name}: skipped, {error}")
                continue
            done += 1
            folder.mkdir()
            if not compare(name, (arguments.bin / "trainer").absolute(), folder, models) <= arguments.tolerance:
                far.append(name)
    if not done:
        return 77
    print(f"{done - len(far)} of {done} agree to {arguments.tolerance:g}")
    return 1 if far else 0


if __name__ == "__main__":
    sys.exit(main())
