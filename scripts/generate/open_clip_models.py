#!/usr/bin/env python3
"""Writes configs/architectures/open_clip.json: the architectures that OpenCLIP knows by name, and where the weights of their tags are.

    scripts/generate/open_clip_models.py [OUT]     needs open_clip_torch; downloads nothing

Each architecture is stored as the `model_cfg` of an open_clip_config.json. For each tag, the file has only the values that differ from
OpenCLIP's defaults: `hf_hub` or `url`, `quick_gelu`, and its preprocessing. Run the script again when OpenCLIP has new models.
"""
import dataclasses, json, pathlib, sys

if "-h" in sys.argv or "--help" in sys.argv:
    print(__doc__)
    sys.exit(0)
try:
    import open_clip
    from open_clip.transform import PreprocessCfg
except ImportError as error:
    sys.exit(f"generate/open_clip_models.py: {sys.executable}: {error}: pip install open_clip_torch")

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEFAULTS = {key: list(value) if isinstance(value, tuple) else value for key, value in dataclasses.asdict(PreprocessCfg()).items()}


def tag_row(model, tag):
    given = open_clip.get_pretrained_cfg(model, tag)
    place = {"hf_hub": given["hf_hub"].rstrip("/")} if given.get("hf_hub") else {"url": given.get("url", "")}
    other = {key: list(given[key]) if isinstance(given[key], tuple) else given[key] for key in DEFAULTS if key in given}
    quick = {"quick_gelu": True} if given.get("quick_gelu") else {}
    return place | quick | {key: value for key, value in other.items() if value != DEFAULTS[key]}


def main():
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "configs/architectures/open_clip.json"
    line = lambda value: json.dumps(value, separators=(",", ":"))
    names = open_clip.list_models()
    models = ",\n".join(f"  {json.dumps(n)}: {line(open_clip.get_model_config(n))}" for n in names)
    tags = {n: {t: tag_row(n, t) for t in open_clip.list_pretrained_tags_by_model(n)} for n in names}
    weights = ",\n".join(f"  {json.dumps(n)}: {line(rows)}" for n, rows in tags.items() if rows)
    out.write_text(f'{{"open_clip": "{open_clip.__version__}",\n "models": {{\n{models}}},\n "pretrained": {{\n{weights}}}}}\n')
    print(f"{out}: {len(names)} architectures, {sum(map(len, tags.values()))} tags")


if __name__ == "__main__": main()
