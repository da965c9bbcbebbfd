#!/usr/bin/env python3
"""The cross-entropy of a linear layer over a vocabulary, forward and backward on the CPU: torch.ops.tessera.linear_cross_entropy, which never
holds [T, V], beside eager PyTorch's linear and cross_entropy, which do, in one run. Every target counts: an ignored one would cost the fused
operator nothing.

  scripts/compare_linear_cross_entropy.py                   # T=4096, V=49408, D=512; the composed side takes about 3 GB
  scripts/compare_linear_cross_entropy.py --repetitions 5 --time-at-most 1.1 --memory-at-most 0.1
"""
import side_by_side


def make(torch, args):
    hidden = torch.randn(args.tokens, args.width).requires_grad_()  # a LayerNorm gives them
    weight = (0.02 * torch.randn(args.vocabulary, args.width)).requires_grad_()
    targets = torch.randint(args.vocabulary, (args.tokens,))
    functional, fused = torch.nn.functional, torch.ops.tessera.linear_cross_entropy
    return (hidden, weight), [torch.ones(())], {
        "eager": lambda hidden, weight: (functional.cross_entropy(functional.linear(hidden, weight), targets),),
        "fused": lambda hidden, weight: (fused(hidden, weight, targets),)}


if __name__ == "__main__":
    side_by_side.compare_operator(__doc__, {"tokens": 4096, "vocabulary": 49408, "width": 512},
                                  "linear_cross_entropy forward + backward, T={tokens} V={vocabulary} D={width}", make)
