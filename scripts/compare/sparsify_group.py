#!/usr/bin/env python3
"""Compares SPARC's sparsify-and-group, forward and backward on the CPU: torch.ops.tessera.sparsify_group and eager PyTorch's
composed operations. All tokens are real, because padding would cost the fused operator nothing.

  scripts/compare/sparsify_group.py                       # B=64, L=55, P=196, D=512
  scripts/compare/sparsify_group.py --time-at-most 0.833 --memory-at-most 0.2
"""
import side_by_side


def composed(torch, text, image, mask):
    similarity = text @ image.mT  # [B, L, P]
    low, high = similarity.amin(-1, keepdim=True), similarity.amax(-1, keepdim=True)
    z = (similarity - low) / (high - low)
    kept = torch.where(z < 1 / image.shape[1], 0.0, z)
    weights = kept / kept.sum(-1, keepdim=True)
    return weights.masked_fill(~mask.unsqueeze(-1), 0.0) @ image


def make(torch, args):
    text = torch.randn(args.batch, args.tokens, args.width, requires_grad=True)
    image = torch.randn(args.batch, args.patches, args.width, requires_grad=True)
    mask = torch.ones(args.batch, args.tokens, dtype=torch.bool)
    gradient = torch.randn(args.batch, args.tokens, args.width)
    return (text, image), [gradient], {"eager": lambda text, image: (composed(torch, text, image, mask),),
                                       "fused": lambda text, image: (torch.ops.tessera.sparsify_group(text, image, mask),)}


if __name__ == "__main__":
    side_by_side.compare_operator(__doc__, {"batch": 64, "tokens": 55, "patches": 196, "width": 512},
                                  "sparsify_group forward + backward, B={batch} L={tokens} P={patches} D={width}", make)
