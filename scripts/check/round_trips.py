#!/usr/bin/env python3
"""Converts published folders to Tessera's format and back, and compares every byte.

    scripts/check/round_trips.py FOLDER ... [--bin build/bin] [--only PATTERN ...] [--load] [--across]

Each FOLDER is a published model (with config.json or open_clip_config.json) or a folder of such folders; the model of a test case may be in
CASE/model. --load also loads the written folder in its own library (transformers, timm, open_clip) and compares its embeddings of random
images and token ids with the original's. --across also writes each model for the other two libraries where possible, loads it there, and
compares. Without --load and --across no packages are needed. The last line is `N of N` if all models agree; otherwise the exit code is 1.
"""
import argparse, fnmatch, json, os, pathlib, subprocess, sys, tempfile

LIBRARIES = ("transformers", "timm", "open_clip")
WEIGHTS = (".safetensors", ".bin", ".pt")
TOLERANCE = 1e-4  # largest allowed relative error of the embeddings of a model that was written for another library


def is_model(folder):
    return (folder / "config.json").is_file() or (folder / "open_clip_config.json").is_file()


def models(folders, patterns):
    """Yields the name and path of each model below the folders."""
    for folder in folders:
        inner = [folder] if is_model(folder) else sorted(p for p in folder.iterdir() if p.is_dir())
        for place in inner:
            model = place if is_model(place) else place / "model"
            if is_model(model) and any(fnmatch.fnmatch(place.name, p) for p in patterns): yield place.name, model


def library_of(folder):
    if (folder / "open_clip_config.json").is_file(): return "open_clip"
    return "timm" if "pretrained_cfg" in json.load(open(folder / "config.json")) else "transformers"


def convert(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]


def unlike_files(before, after):
    """Returns the names of files that are missing, added or different."""
    files = lambda folder: {p.name for p in folder.iterdir() if p.is_file()}
    kept = {n for n in files(before) if n.endswith((".json", ".txt", ".model", ".jinja")) or (n.endswith(WEIGHTS) and n != "expected.safetensors")}
    there = files(after)
    return sorted((kept ^ there) | {n for n in kept & there if (before / n).read_bytes() != (after / n).read_bytes()})


def naflex_inputs(patch):
    """Returns a function that makes the inputs of a NaFlex model of SigLIP 2 from images of one size."""
    import torch
    def inputs(x):
        rows, columns = x.shape[2] // patch, x.shape[3] // patch
        patches = x.reshape(len(x), 3, rows, patch, columns, patch).permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)
        return {"pixel_values": patches, "pixel_attention_mask": torch.ones(patches.shape[:2], dtype=torch.long),
                "spatial_shapes": torch.tensor([[rows, columns]] * len(x))}
    return inputs


def embedder(folder, trunk=False):
    """Loads the folder in its own library. Returns a function of normalized images, a function of ids (None without a text tower), and the
    image size. For OpenCLIP, `trunk` selects the pooled output of timm's image tower before the projection."""
    import torch
    tensor = lambda out: out if torch.is_tensor(out) else out.pooler_output
    kind = library_of(folder)
    if kind == "transformers":
        import transformers
        name = json.load(open(folder / "config.json"))["architectures"][0]
        model = getattr(transformers, name).from_pretrained(folder).eval().float()
        vision = getattr(model.config, "vision_config", model.config)
        inputs, size = (lambda x: {"pixel_values": x}), getattr(vision, "image_size", None)
        if size is None: inputs, size = naflex_inputs(vision.patch_size), int(vision.num_patches**0.5) * vision.patch_size
        image = lambda x: tensor(model.get_image_features(**inputs(x))) if hasattr(model, "get_image_features") else \
            (lambda out: out.image_embeds if hasattr(out, "image_embeds") else out.pooler_output)(model(**inputs(x)))
        text = (lambda ids: tensor(model.get_text_features(input_ids=ids))) if hasattr(model, "get_text_features") else None
        return image, text, (size, size) if isinstance(size, int) else tuple(size)
    if kind == "timm":
        import timm
        model = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
        size = tuple(model.pretrained_cfg["input_size"][1:])
        return lambda x: model.forward_head(model.forward_features(x), pre_logits=True), None, size
    import open_clip
    model, _ = open_clip.create_model_from_pretrained(f"local-dir:{folder.resolve()}"); model.eval()
    size = open_clip.get_model_preprocess_cfg(model)["size"]
    if trunk:
        tower, head = model.visual.trunk, model.visual.head
        pooled = lambda x: tower.forward_head(tower.forward_features(x), pre_logits=True)
        return (lambda x: pooled(x) if pooled(x).ndim == 2 else head.pool(pooled(x))), None, (size, size) if isinstance(size, int) else tuple(size)
    return model.encode_image, model.encode_text, (size, size) if isinstance(size, int) else tuple(size)


def texts_of(folder, vocabulary, length):
    """Returns random ids. For CLIP, each text ends with the largest id, which is its end token."""
    import torch
    ids = torch.randint(3, vocabulary - 3, (3, length), generator=torch.Generator().manual_seed(1))
    ids[:, -1] = vocabulary - 1
    return ids


def text_size(folder):
    config = json.load(open(folder / ("open_clip_config.json" if library_of(folder) == "open_clip" else "config.json")))
    if library_of(folder) == "open_clip":
        text = config["model_cfg"]["text_cfg"]
        return text.get("vocab_size", 49408), text.get("context_length", 77)
    return config["text_config"].get("vocab_size", 49408), config["text_config"].get("max_position_embeddings", 77)


def compare(before, after):
    """Returns the largest relative error between the embeddings of two folders. Compares only images if a folder has no text tower."""
    import torch
    relative = lambda got, want: ((got - want).norm() / want.norm()).item()
    with torch.no_grad():
        second = embedder(after)
        first = embedder(before, trunk=library_of(before) == "open_clip" and library_of(after) == "timm")
        x = torch.randn(2, 3, *first[2], generator=torch.Generator().manual_seed(0))
        errors = [relative(second[0](x), first[0](x))]
        if first[1] and second[1]:
            ids = texts_of(before, *text_size(before))
            errors.append(relative(second[1](ids), first[1](ids)))
    return max(errors)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, nargs="+")
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/bin"))
    parser.add_argument("--only", nargs="+", default=["*"])
    parser.add_argument("--load", action="store_true")
    parser.add_argument("--across", action="store_true")
    a = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    program, good, total = a.bin / "tessera-convert", 0, 0
    if not program.exists(): sys.exit(f"check/round_trips.py: {program} does not exist: build it, or pass its folder with --bin")
    for name, model in models(a.folder, a.only):
        total += 1
        with tempfile.TemporaryDirectory() as place:
            place = pathlib.Path(place); library = library_of(model); ours = place / "ours.safetensors"; back = place / "back"
            code, line = convert(program, model, ours)
            if code == 0: code, line = convert(program, "--to", library, ours, back)
            if code: print(f"{name}: exit {code}: {' '.join(line)}", flush=True); continue
            unlike = unlike_files(model, back); right = not unlike
            says = ["bytes equal" if right else f"other bytes: {', '.join(unlike)}"]
            try:
                if a.load:
                    error = compare(model, back); right &= error == 0; says.append(f"loaded, error {error:.0e}")
                for other in LIBRARIES if a.across else ():
                    if other == library: continue
                    code, line = convert(program, "--to", other, ours, place / other)
                    if code == 2: says.append(f"{other}: none"); print(f"  {' '.join(line)}"); continue
                    error = compare(model, place / other) if code == 0 else float("inf")
                    right &= error <= TOLERANCE; says.append(f"{other}: error {error:.0e}")
            except Exception as error:  # the other library may raise anything: report it and continue with the next model
                right = False; says.append(f"{type(error).__name__}: {error}")
        good += right
        print(f"{name}: {'; '.join(says)}", flush=True)
    print(f"{good} of {total}")
    sys.exit(not total or good != total)


if __name__ == "__main__": main()
