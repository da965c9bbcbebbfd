#!/usr/bin/env python3
"""Compares the cross-entropy of a linear layer over a vocabulary, forward and backward on the CPU: torch.ops.tessera.linear_cross_entropy,
which never holds [T, V], and eager PyTorch's linear and cross_entropy, which do. No target is ignored, because an ignored one would cost
the fused operator nothing.

  scripts/compare/linear_cross_entropy.py                   # T=4096, V=49408, D=512; the composed side takes about 3 GB
  scripts/compare/linear_cross_entropy.py --repetitions 5 --time-at-most 1.1 --memory-at-most 0.1
  scripts/compare/linear_cross_entropy.py --tokens 16384 --width 768 --words 20 --memory-at-most 0.05   # images into words (SuperCLIP)

With --words N each row has a soft target of N words: torch.ops.tessera.linear_soft_cross_entropy is compared with a dense target times
log_softmax.
"""
import side_by_side


def made(torch, args):
    hidden = torch.randn(args.tokens, args.width).requires_grad_()  # has the distribution of a LayerNorm's output
    weight = (0.02 * torch.randn(args.vocabulary, args.width)).requires_grad_()
    return (hidden, weight), [torch.ones(())]


def make(torch, args):
    inputs, gradients = made(torch, args)
    targets = torch.randint(args.vocabulary, (args.tokens,))
    functional, fused = torch.nn.functional, torch.ops.tessera.linear_cross_entropy
    return inputs, gradients, {
        "eager": lambda hidden, weight: (functional.cross_entropy(functional.linear(hidden, weight), targets),),
        "fused": lambda hidden, weight: (fused(hidden, weight, targets),)}


def make_soft(torch, args):
    inputs, gradients = made(torch, args)
    ids = torch.rand(args.tokens, args.vocabulary // 8).topk(args.words, 1).indices  # distinct words
    shares = torch.rand(args.tokens, args.words).softmax(1)
    functional, fused = torch.nn.functional, torch.ops.tessera.linear_soft_cross_entropy

    def eager(hidden, weight):
        target = shares.new_zeros(args.tokens, args.vocabulary).scatter_(1, ids, shares)
        return (-(target * functional.linear(hidden, weight).log_softmax(1)).sum() / args.tokens,)

    return inputs, gradients, {"eager": eager, "fused": lambda hidden, weight: (fused(hidden, weight, ids, shares),)}


if __name__ == "__main__":
    side_by_side.compare_operator(__doc__, {"tokens": 4096, "vocabulary": 49408, "width": 512, "words": 0},
                                  "linear_cross_entropy forward + backward, T={tokens} V={vocabulary} D={width} words={words}",
                                  lambda torch, args: (make_soft if args.words > 0 else make)(torch, args))
