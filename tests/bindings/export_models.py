"""Small models of every family that `python -m tessera export` can export (export_test.py, scripts/check/exports.py)."""
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SMALL = ("model.image.encoder.layers=1", "model.text.encoder.layers=1")
LINEAR = ("model.image.readout={name: gap}", "model.image.projection={name: linear, embed_dim: 128}", SMALL[1])
# For each name, a configuration in configs/shapes, settings that change it, and the files of its export besides image and text.
RUNS = {
    "sparc": ("sparc", SMALL, {"head"}),
    "filip": ("filip", SMALL, {"head"}),
    "pacl": ("pacl", SMALL, {"head"}),
    "gloria": ("gloria", SMALL, {"head"}),
    "flair": ("flair", SMALL, {"head"}),
    "sum": ("clip_filip", SMALL, {"head"}),
    "sparo": ("sparo", SMALL, set()),
    "stair": ("stair_single", SMALL, set()),
    "text_group": ("text_group", ("model.image.encoder.depths=[1,1,1]", "model.text.encoder.token_layers=1"), set()),
    "pyramidclip": ("pyramidclip", (*SMALL, "model.image.encoder.leff.layers=1", "model.image.encoder.regions.first_block=1"), set()),
    "clip": ("cls", (*SMALL, "tokenizer={name: clip-bpe, context_length: 20}", "model.text.encoder.attention=causal"), set()),
    "siglip": ("clip", (*SMALL, "objective={name: siglip}", "tokenizer.pad_is_text=true", "tokenizer.cleanup=siglip",
                        "model.image.readout={name: map, heads: 4}", "model.image.projection={name: linear, embed_dim: 128}",
                        "model.text.readout={name: eos}", "model.preprocessing.resize_mode=squash"), set()),
    "mgca": ("mgca", SMALL, set()),
    "siglip2": ("naflex", (*SMALL, "data.loader.resolution=[]"), set()),
    "tokens_only": ("filip", (*SMALL, "model.image.readout=none", "model.text.readout=none",
                              "model.image.projection={name: linear, embed_dim: 128}",
                              "model.text.projection={name: linear, embed_dim: 128}"), {"head"}),
    "convnext": ("cls", ("model.image.encoder={name: convnext, layers: [1, 1, 1, 1], widths: [16, 24, 32, 48]}", *LINEAR), set()),
    "timm_resnet": ("cls", ("model.image.encoder={name: timm_resnet, layers: [1, 1, 1, 1], block: basic, mean_downsample: true}", *LINEAR),
                    set()),
    "mobileclip": ("cls", ("model.image.encoder={name: vit, stem: mobileclip, width: 64, heads: 2, layers: 1, patch_size: 16}", *LINEAR),
                   set()),
    "vitamin": ("cls", ("model.image.encoder={name: vit, stem: vitamin, stem_widths: [8, 16], width: 64, heads: 2, layers: 1, "
                        "patch_size: 16, class_token: false, mlp: gated, mlp_input_norm: true}", *LINEAR), set()),
    "attentional_pool": ("attentional_pool", SMALL, set()),
    "images_only": ("dino", SMALL[:1], set()),
    "resnet": ("cls", ("model.image.encoder={name: modified_resnet, layers: [1, 1, 1, 1], width: 8}",
                       "model.image.readout={name: attention_pool_2d, heads: 2, output_dim: 128}", "model.image.projection=none",
                       *SMALL[1:]), set()),
}


def train(programs, name, folder):
    """Trains a model for three steps with the programs in a folder."""
    config, settings, _ = RUNS[name]
    done = subprocess.run([str(programs / "trainer"), "--config", str(ROOT / f"configs/shapes/{config}.yaml"), "--set",
                           f"run.folder={folder}", "training.steps=3", "training.threads=1", "schedule.warmup_steps=1", "log.every_steps=3",
                           "evaluation.tasks=[]", "data.loader.batch_size=8", *settings], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{name}: {done.stderr.strip()}")
    return folder
