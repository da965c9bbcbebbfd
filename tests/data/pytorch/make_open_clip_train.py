#!/usr/bin/env python3
"""Writes open_clip_train.pt, a checkpoint of a tiny CLIP with random weights in the format of OpenCLIP's trainer, and the embeddings
that OpenCLIP 3.3 computes with it for an image and a text. Both files are in the repository. Needs the package open_clip_torch."""
from pathlib import Path

import open_clip
import torch
from safetensors.torch import save_file

FOLDER = Path(__file__).parent


def main():
    torch.manual_seed(0)
    model = open_clip.model.CLIP(
        embed_dim=6,
        vision_cfg=dict(image_size=16, patch_size=8, width=12, layers=1, head_width=4),
        text_cfg=dict(context_length=8, vocab_size=30, width=8, layers=1, heads=2),
    ).eval()
    optimizer = torch.optim.AdamW(model.parameters())
    wrapped = torch.nn.Module()
    wrapped.module = model  # the name that DistributedDataParallel uses
    torch.save({"epoch": 2, "name": "tiny", "state_dict": wrapped.state_dict(), "optimizer": optimizer.state_dict(),
                "scaler": {"scale": 65536.0}}, FOLDER / "open_clip_train.pt")
    pixels = torch.linspace(-1, 1, 3 * 16 * 16).reshape(1, 3, 16, 16)
    ids = torch.tensor([[28, 3, 17, 5, 29, 0, 0, 0]])
    with torch.no_grad():
        save_file({"pixels": pixels, "ids": ids, "image": model.encode_image(pixels), "text": model.encode_text(ids)},
                  FOLDER / "open_clip_train.safetensors")


if __name__ == "__main__":
    main()
