#!/usr/bin/env python3
"""Writes transforms.safetensors in this folder: two images, the results of the evaluation transforms of timm and transformers on them, and
the configurations of these transforms. Needs torch, torchvision, timm, transformers, pillow and safetensors; run it in this folder. It
downloads nothing."""
import json
import numpy as np, torch
from PIL import Image
from safetensors.torch import save_file
from timm.data import create_transform, resolve_data_config
from transformers import BitImageProcessor, CLIPImageProcessor, DINOv3ViTImageProcessor, SiglipImageProcessor

TIMM = {"center": dict(crop_pct=0.875, crop_mode="center"), "center_bilinear": dict(crop_pct=0.9, interpolation="bilinear"),
        "whole": dict(crop_pct=1.0), "squash": dict(crop_pct=0.9, crop_mode="squash"), "border": dict(crop_pct=0.95, crop_mode="border"),
        "default": dict(), "wide": dict(crop_pct=0.85, input_size=[3, 32, 48])}
TRANSFORMERS = {"clip": (CLIPImageProcessor, dict(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})),
                "dinov2": (BitImageProcessor, dict(size={"shortest_edge": 37}, crop_size={"height": 32, "width": 32})),
                "siglip": (SiglipImageProcessor, dict(size={"height": 32, "width": 32}, resample=2)),
                "dinov3": (DINOv3ViTImageProcessor, dict(size={"height": 32, "width": 32}))}


def picture(height, width, seed):
    """Returns an image of waves with one box in another color."""
    rng = np.random.default_rng(seed); y, x = np.mgrid[0:height, 0:width]
    waves = np.stack([127 + 100 * np.sin(rng.uniform(0.05, 0.4) * x + rng.uniform(0.05, 0.4) * y + c) for c in range(3)], -1)
    waves[height // 4:height // 2, width // 3:] = rng.uniform(0, 255, 3)
    return waves.clip(0, 255).astype(np.uint8)


def main():
    pictures = {"wide": picture(47, 62, 1), "tall": picture(75, 53, 2)}
    tensors = {f"in.{name}": torch.from_numpy(pixels) for name, pixels in pictures.items()}; configs = {}
    for name, changes in TIMM.items():
        pretrained = {"input_size": [3, 32, 32], "interpolation": "bicubic", "mean": [0.5] * 3, "std": [0.5] * 3, **changes}
        configs[f"timm_{name}"] = {"config.json": {"architecture": "vit_tiny_patch16_224", "pretrained_cfg": pretrained}}
        transform = create_transform(**resolve_data_config(pretrained_cfg=pretrained), is_training=False, normalize=False)
        for shape, pixels in pictures.items():
            tensors[f"timm_{name}.{shape}"] = transform(Image.fromarray(pixels)).permute(1, 2, 0)
    for name, (processor, settings) in TRANSFORMERS.items():
        processor = processor(**settings)
        model = {"model_type": "dinov2", "image_size": 32, "patch_size": 16, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
        configs[f"transformers_{name}"] = {"config.json": model, "preprocessor_config.json": json.loads(processor.to_json_string())}
        for shape, pixels in pictures.items():
            # DINOv3's processor scales the pixels before it resizes them, so its results are not whole numbers.
            out = processor(Image.fromarray(pixels), return_tensors="pt", do_normalize=False)["pixel_values"][0] * 255
            tensors[f"transformers_{name}.{shape}"] = out.round().clamp(0, 255).to(torch.uint8).permute(1, 2, 0)
    save_file({k: v.contiguous() for k, v in tensors.items()}, "transforms.safetensors", {"configs": json.dumps(configs)})
    print(json.dumps(configs["transformers_clip"]), json.dumps(configs["transformers_dinov3"]), sep="\n")


if __name__ == "__main__": main()
