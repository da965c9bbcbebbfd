#!/usr/bin/env python3
"""Compares Tessera with open_clip_torch on every architecture that OpenCLIP lists, and writes docs/open_clip_architectures.md.

    scripts/generate/open_clip_table.py [--bin build/bin] [--only PATTERN ...] [--out FILE] [--work FOLDER] [--keep]

Needs torch, open_clip_torch, timm, transformers, tokenizers, safetensors and pillow; downloads nothing. Each architecture is built with
random weights, written in OpenCLIP's published format (open_clip_config.json and open_clip_model.safetensors) and read by tessera-embed.
The table has the relative errors of the embeddings of two images and five captions. Towers have their full width, image size and kinds of
layers, but only --depth blocks (for ResNets and ConvNeXts: at most that many per stage). If OpenCLIP takes a tokenizer from Hugging Face, a
small stand-in replaces it, with the special tokens in the same places. An architecture that Tessera refuses is not built: the table
has Tessera's message. Exit code 0: every architecture agrees or is refused.
"""
import argparse, collections, copy, fnmatch, json, pathlib, shutil, subprocess, sys, tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOLERANCE = 1e-5
CAPTIONS = ["a photo of a cat", "two dogs running on the beach in 1987", "forty two balloons and a small red bird", "trees and sky",
            "the quick brown fox jumps over the lazy dog near a river bank while the sun sets behind the old mountains of the north"]

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/bin", help="folder with tessera-embed")
parser.add_argument("--only", nargs="+", default=["*"], help="names to check; then the table is written only with --out")
parser.add_argument("--out", type=pathlib.Path, help="file for the table (default: docs/open_clip_architectures.md, if all architectures are checked)")
parser.add_argument("--work", type=pathlib.Path, help="folder for the models (default: a temporary one)")
parser.add_argument("--depth", type=int, default=2, help="largest number of blocks of a tower; 100: all")
parser.add_argument("--keep", action="store_true", help="keep each model in --work")
arguments = parser.parse_args()

try:
    import numpy as np, open_clip, timm, torch, transformers
    from PIL import Image
    from safetensors.torch import load_file, save_file
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
except ImportError as error:
    sys.exit(f"open_clip_table.py: {sys.executable}: {error}: pip install open_clip_torch transformers")

HF_TEXTS = json.loads((ROOT / "configs/architectures/text_towers.json").read_text())["models"]


def shallow(layers):
    return [min(n, arguments.depth) for n in layers] if isinstance(layers, list) else min(layers, arguments.depth)


def shallow_programs(bin_folder, work):
    """Copies tessera-embed together with a table of timm's towers in which they have as few blocks as the models built here."""
    (work / "bin").mkdir(parents=True); shutil.copy2(bin_folder / "tessera-embed", work / "bin")
    configs = work / "share/tessera/configs"; shutil.copytree(ROOT / "configs", configs)
    table = json.loads((configs / "architectures/timm.json").read_text())
    for row in table["models"].values():
        for part in (row, row.get("settings", {})):
            if "layers" in part: part["layers"] = shallow(part["layers"])
    (configs / "architectures/timm.json").write_text(json.dumps(table))
    return work / "bin/tessera-embed"


def make_timm_shallow():
    whole, rows = timm.create_model, json.loads((ROOT / "configs/architectures/timm.json").read_text())["models"]

    def create_model(name, **kwargs):
        row = rows[name]; key = "layers" if row.get("encoder") == "fastvit" else "depths" if "settings" in row else "depth"
        return whole(name, **{key: shallow(row.get("settings", row)["layers"])}, **kwargs)
    timm.create_model = create_model


def shallow_config(name):
    """Returns the architecture's settings with few blocks, and the settings of its text tower if the tower is from Hugging Face."""
    config = copy.deepcopy(open_clip.get_model_config(name)); vision, text = config["vision_cfg"], config["text_cfg"]
    if "layers" in vision: vision["layers"] = shallow(vision["layers"])
    if "timm_drop_path" in vision: vision["timm_drop_path"] = 0.0
    if "layers" in text: text["layers"] = shallow(text["layers"])
    if "multimodal_cfg" in config: config["multimodal_cfg"]["layers"] = 1
    tower = None
    if "hf_model_name" in text:
        tower = dict(HF_TEXTS.get(text["hf_model_name"], {}))
        for key in ("num_hidden_layers", "encoder_layers", "num_layers"):
            if key in tower: tower[key] = shallow(tower[key])
    return config, tower


def corpus():
    words = " ".join(CAPTIONS).lower().split()
    return [" ".join(words[i % len(words):] + words[:i % len(words)]) for i in range(400)]


def stand_in_tokenizer(folder, special):
    """Writes a byte-fallback BPE tokenizer whose first entries are the special tokens `special`. It puts <s> (if there is one) before a
    text and </s> after it."""
    t = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    t.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace(" ", "\u2581")])
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=500, special_tokens=special + [f"<0x{i:02X}>" for i in range(256)], show_progress=False))
    ends = [(token, special.index(token)) for token in ("<s>", "</s>") if token in special]
    template = ("<s> " if "<s>" in special else "") + "$A </s>"
    t.post_processor = processors.TemplateProcessing(single=template, special_tokens=ends)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=t, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", padding_side="right")
    tokenizer.save_pretrained(folder)
    return tokenizer


def ids_of(config, tower, folder):
    """Returns the captions' token ids [5, L] from OpenCLIP, and writes the tokenizer's files to the folder."""
    text = config["text_cfg"]; length = text.get("context_length", 77)
    if "hf_tokenizer_name" not in text: return open_clip.SimpleTokenizer(context_length=length)(CAPTIONS)
    last = tower["pad_token_id"] + 1 if tower else text["eos_id"] if text.get("pool_type") == "eos" else 1
    special = ["<s>", "<pad>", "</s>", "<unk>"] if last == 2 else ["<pad>", "</s>", "<unk>"]
    tokenizer = stand_in_tokenizer(folder, special)
    if tower: tower["vocab_size"] = len(tokenizer)
    else: text["vocab_size"] = len(tokenizer)
    text.get("tokenizer_kwargs", {}).pop("strip_sep_token", None)  # the stand-in tokenizer has no separator token
    clean = open_clip.tokenizer.get_clean_fn(text.get("tokenizer_kwargs", {}).get("clean", "whitespace"))
    return tokenizer([clean(c) for c in CAPTIONS], padding="max_length", truncation=True, max_length=length, return_tensors="pt")["input_ids"]


def perturbed(model):
    """Changes every bias, norm, layer scale and token, so that none keeps its constant initial value."""
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, v in model.state_dict().items():
            if not v.is_floating_point() or name.startswith("logit_"): continue
            if "running_var" in name: v.copy_(0.5 + torch.rand(v.shape, generator=g)); continue
            r = torch.randn(v.shape, generator=g) if v.numel() < 10**7 else 0
            if v.ndim <= 1 and name.endswith(("weight", "gamma", "gamma_1", "gamma_2")): v.copy_(0.7 + 0.1 * r)
            elif v.ndim <= 1 or float(v.abs().max()) == 0: v.add_(0.05 * r)
    return model.eval()


def pictures(folder, preprocess):
    size = preprocess["size"]; size = (size, size) if isinstance(size, int) else size[-2:]
    rng = np.random.default_rng(0); out = []; folder.mkdir()
    for i in range(2):
        y, x = np.mgrid[0:size[0], 0:size[1]]; f = rng.uniform(0.02, 0.3, (3, 2))
        a = np.stack([127 + 90 * np.sin(f[c, 0] * x + f[c, 1] * y + i) for c in range(3)], -1) + rng.normal(0, 15, (*size, 3))
        a = a.clip(0, 255).astype(np.uint8); Image.fromarray(a).save(folder / f"{i}.png")
        out.append((torch.from_numpy(a).permute(2, 0, 1).float() / 255 - torch.tensor(preprocess["mean"]).view(3, 1, 1)) / torch.tensor(preprocess["std"]).view(3, 1, 1))
    return torch.stack(out)


def ours(program, folder, pictures_folder):
    """Returns the embeddings, or the program's message."""
    (folder / "captions.txt").write_text("\n".join(CAPTIONS) + "\n")
    command = [program, "--raw", "--device", "cpu", "--checkpoint", folder / "model", "--images", *sorted(pictures_folder.iterdir()), "--texts", folder / "captions.txt",
               "--out", folder / "out.safetensors"]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode == 0: return load_file(folder / "out.safetensors")
    lines = [line for line in result.stderr.strip().splitlines() if "warning" not in line.lower()]
    return (lines[-1] if lines else f"exit {result.returncode}").replace(str(folder / "model") + "/", "").removeprefix("tessera-embed: ")


def refusal(program, name, config, tower, folder):
    """Returns the program's message if it refuses the settings, otherwise None. The file has no weights, so even with accepted settings the
    program fails, but only at the first tensor."""
    write_config(folder, config, {}, tower)
    save_file({"nothing": torch.zeros(1)}, folder / "model/open_clip_model.safetensors")
    (folder / "none").mkdir(); Image.new("RGB", (8, 8)).save(folder / "none/0.png")
    line = ours(program, folder, folder / "none")
    shutil.rmtree(folder / "none")
    return None if " is missing" in line or "left over" in line else line


def write_config(folder, config, preprocess, tower):
    (folder / "model/open_clip_config.json").write_text(json.dumps({"model_cfg": config, "preprocess_cfg": preprocess}, indent=1))
    if tower: (folder / "model/config.json").write_text(json.dumps(tower, indent=1))


def build(config, tower, folder):
    where = folder / "configs"; where.mkdir(); built = copy.deepcopy(config)
    if tower:
        keys = {k: v for k, v in tower.items() if k != "model_type"}
        of_name = transformers.AutoConfig.for_model(tower["model_type"], **keys, **({"decoder_layers": 1} if "encoder_layers" in keys else {}))
        transformers.AutoConfig.from_pretrained = lambda *_, **__: of_name
    (where / "shallow.json").write_text(json.dumps(built)); open_clip.add_model_config(where)
    torch.manual_seed(0)
    model = perturbed(open_clip.create_model("shallow", pretrained=None, pretrained_hf=False))
    shutil.rmtree(where)
    return model


def error_of(got, wanted):
    return ((got.float() - wanted).norm() / wanted.norm()).item() if got.shape == wanted.shape else float("inf")


def check(program, name, folder):
    """Returns (result, whether it is as expected)."""
    config, tower = shallow_config(name)
    said = refusal(program, name, config, tower, folder)
    if said is not None: return f"refused: {said}", True
    ids = ids_of(config, tower, folder / "model")
    model = build(config, tower, folder); preprocess = dict(open_clip.get_model_preprocess_cfg(model))
    write_config(folder, config, preprocess, tower)
    save_file({k: v.contiguous().clone() for k, v in model.state_dict().items()}, folder / "model/open_clip_model.safetensors")
    x = pictures(folder / "pictures", preprocess)
    with torch.no_grad(): wanted = {"image_embeddings": model.encode_image(x), "text_embeddings": model.encode_text(ids)}
    del model
    got = ours(program, folder, folder / "pictures")
    if isinstance(got, str): return f"FAILS: {got}", False
    errors = {k: error_of(got[k], w) for k, w in wanted.items()}
    good = all(e <= TOLERANCE for e in errors.values())
    return ("" if good else "DIFFERS: ") + ", ".join(f"{k.split('_')[0]} {e:.1e}" for k, e in errors.items()), good


def towers(name):
    config = open_clip.get_model_config(name); vision, text = config["vision_cfg"], config["text_cfg"]
    image = vision.get("timm_model_name") or ("ResNet" if isinstance(vision["layers"], list) else f"ViT, patches of {vision['patch_size']}, width {vision['width']}")
    words = text.get("hf_model_name") or f"width {text['width']}, {text['layers']} blocks" + (", CoCa" if text.get("embed_cls") else "")
    return image, words


def table(results):
    kinds = collections.Counter("refused" if r.startswith("refused") else "read" for r, _ in results.values())
    lines = ["# OpenCLIP's architectures", "",
             f"Of the {len(results)} architectures that `open_clip.list_models()` of open_clip_torch {open_clip.__version__} names, Tessera reads {kinds['read']} and refuses {kinds['refused']}.",
             "`scripts/generate/open_clip_table.py` makes this table: it builds each architecture with random weights (full width and image size, "
             f"{arguments.depth} blocks, a small stand-in for a tokenizer of Hugging Face's), lets `tessera-embed` read it, and compares the embeddings. The result is their "
             "relative error in float32, or the line with which Tessera refuses the model.", "",
             "| architecture | image tower | text tower | result |", "| --- | --- | --- | --- |"]
    for name, (result, _) in results.items():
        image, words = towers(name)
        lines.append(f"| {name} | {image} | {words} | {result.replace('|', '/')} |")
    return "\n".join(lines) + "\n"


def main():
    names = [n for n in open_clip.list_models() if any(fnmatch.fnmatch(n, p) for p in arguments.only)]
    out = arguments.out or (ROOT / "docs/open_clip_architectures.md" if arguments.only == ["*"] else None)
    make_timm_shallow(); results = {}
    with tempfile.TemporaryDirectory(dir=arguments.work) as temporary:
        work = pathlib.Path(temporary); program = shallow_programs(arguments.bin.resolve(), work)
        for name in names:
            folder = (arguments.work if arguments.keep and arguments.work else work) / name
            shutil.rmtree(folder, ignore_errors=True); (folder / "model").mkdir(parents=True)
            try: results[name] = check(program, name, folder)
            except Exception as error: results[name] = f"OpenCLIP does not build it: {type(error).__name__}: {str(error).splitlines()[0]}", False
            print(f"{name}: {results[name][0]}", flush=True)
            if not arguments.keep: shutil.rmtree(folder)
    if out: out.write_text(table(results)); print(f"written: {out}")
    kinds = collections.Counter("refused" if r.startswith("refused") else "agree" if good else "disagree" for r, good in results.values())
    print(f"{len(results)} architectures: " + ", ".join(f"{n} {kind}" for kind, n in kinds.items()))
    sys.exit(not all(good for _, good in results.values()))


if __name__ == "__main__": main()
