#!/usr/bin/env python3
"""Compares FILIP's similarities of all images with all texts, forward and backward on the CPU: torch.ops.tessera.max_similarity, which
never holds [B, B, P, L], and eager PyTorch's composed operations, which do. All tokens are real and kept, because others would cost the
fused operator nothing.

  scripts/compare/filip.py                       # B=32, P=196, L=55, D=256
  scripts/compare/filip.py --time-at-most 0.5 --memory-at-most 0.05
"""
import side_by_side


def composed(torch, patches, tokens, mask):
    similarity = torch.einsum("ipd,jld->ijpl", patches, tokens)  # [B, B, P, L]
    i2t = similarity.masked_fill(~mask[None, :, None, :], -1e9).max(3).values.mean(2)
    t2i = similarity.max(2).values.masked_fill(~mask, 0.0).sum(2) / mask.sum(1)
    return i2t, t2i


def make(torch, args):
    unit = torch.nn.functional.normalize
    patches = unit(torch.randn(args.batch, args.patches, args.width), dim=-1).requires_grad_()
    tokens = unit(torch.randn(args.batch, args.tokens, args.width), dim=-1).requires_grad_()
    mask = torch.ones(args.batch, args.tokens, dtype=torch.bool)
    keep = torch.ones(args.batch, args.patches, dtype=torch.bool)
    gradients = [torch.randn(args.batch, args.batch) for _ in range(2)]
    fused = torch.ops.tessera.max_similarity
    return (patches, tokens), gradients, {"eager": lambda patches, tokens: composed(torch, patches, tokens, mask),
                                          "fused": lambda patches, tokens: fused(patches, tokens, keep, mask)}


if __name__ == "__main__":
    side_by_side.compare_operator(__doc__, {"batch": 32, "patches": 196, "tokens": 55, "width": 256},
                                  "FILIP forward + backward, B={batch} P={patches} L={tokens} D={width}", make)
