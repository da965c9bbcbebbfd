"""Checks patch embeddings with the formulas of docs/evaluation.md for a ViT's last block, written with full attention matrices.

    last_block.py MODEL CHECK [MODEL CHECK ...]

CHECK holds `pixels` and, under the name of each variant of the last block, the patch embeddings that Tessera computed from them. Prints
the largest difference for each variant. Exits with code 1 if one is above 1e-5."""
import math
import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
from tessera import plain_model
from tessera.plain_parts import blocks, vit


def weights_of(kind, q, k, grid, first):
    """Returns attention weights [B, h, N, N] from queries and keys [B, h, N, d]."""
    d = q.shape[-1]
    scores = lambda a, b: torch.einsum("bhid,bhjd->bhij", a, b) / math.sqrt(d)
    if kind == "maskclip":
        return torch.eye(q.shape[2]).expand(*q.shape[:3], -1)
    if kind == "sclip":
        return torch.softmax(scores(q, q), -1) + torch.softmax(scores(k, k), -1)
    if kind == "clearclip":
        return torch.softmax(scores(q, q), -1)
    assert kind == "naclip"
    window = torch.zeros(q.shape[2], q.shape[2])
    for i in range(grid[0] * grid[1]):
        for j in range(grid[0] * grid[1]):
            rows, columns = i // grid[1] - j // grid[1], i % grid[1] - j % grid[1]
            window[first + i, first + j] = math.exp(-(rows ** 2 + columns ** 2) / (2 * 5.0 ** 2))
    return torch.softmax(scores(k, k) + window, -1)


def last_block(kind, part, x, heads, activation, eps, grid, first, feed_forward):
    gamma = lambda name: part.weight(name + ".gamma") if part.has(name + ".gamma") else 1
    attention = part.inner("attn")
    qkv = part.norm("ln_1", x, eps) @ attention.weight("in_proj_weight").t() + attention.weight("in_proj_bias")
    q, k, v = (y.unflatten(-1, (heads, -1)).transpose(1, 2) for y in qkv.chunk(3, -1))
    mixed = (weights_of(kind, q, k, grid, first) @ v).transpose(1, 2).flatten(2)
    update = gamma("ls_1") * attention.linear("out_proj", mixed)
    if kind in ("clearclip", "naclip"):
        return update
    x = x + update
    mlp, y = part.inner("mlp"), part.norm("ln_2", x, eps)
    y = feed_forward(mlp, y) if feed_forward else \
        mlp.linear("c_proj", blocks.activate(mlp.linear("c_fc", y), activation))
    return x + gamma("ls_2") * y


def patches(kind, model, pixels):
    part, projection = model.image.encoder, model.image.projection
    s = part.setting
    activation, eps, heads, layers = s("activation", "gelu"), s("norm_eps", 1e-5), s("heads", 12), s("layers", 12)
    first = 1 if s("class_token", True) else 0
    x = part.conv("conv1", pixels, stride=part.weight("conv1.weight").shape[2:])
    grid = tuple(x.shape[2:])
    x = x.flatten(2).transpose(1, 2)
    if first:
        x = torch.cat([part.weight("class_embedding").expand(len(x), 1, -1), x], 1)
    x = x + part.weight("positional_embedding")
    if s("pre_norm", True):
        x = part.norm("ln_pre", x, eps)
    convolved = s("leff", {})
    for i in range(layers):
        with_leff = convolved and i < convolved.get("layers", 9)
        feed_forward = vit.leff(convolved, activation, grid, first == 1) if with_leff else None
        block = part.inner(f"transformer.resblocks.{i}")
        if i + 1 < layers:
            x = blocks.block(block, x, heads, activation, eps, feed_forward=feed_forward)
        else:
            x = last_block(kind, block, x, heads, activation, eps, grid, first, feed_forward)
    if s("final_norm", "tokens") != "none":
        x = part.norm("ln_post", x, eps)
    return model.image.project(projection, x[:, first:])


@torch.no_grad()
def main():
    far = False
    for path, check in zip(sys.argv[1::2], sys.argv[2::2]):
        model = plain_model.load(path)
        expected, _ = plain_model.read_safetensors(check)
        pixels = expected.pop("pixels")
        for kind, tensor in expected.items():
            difference = (patches(kind, model, pixels) - tensor).abs().max().item()
            print(f"{path}: {kind} differs by {difference:.2g} at most")
            far |= not difference <= 1e-5
    return 1 if far else 0


if __name__ == "__main__":
    sys.exit(main())
