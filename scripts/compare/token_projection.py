#!/usr/bin/env python3
"""Compares STAIR's token projection, forward and backward on the CPU: torch.ops.tessera.token_max_projection, which never holds [B, P, V],
and eager PyTorch's composed operations, which do. All positions are real, because padding would cost the fused operator nothing. About half
of the maxima are above 0, as at the start of training; the others get no gradient and cost the fused operator's backward pass nothing.

  scripts/compare/token_projection.py                       # B=64, P=196, V=30522, D=512; the composed side takes 3 GB
  scripts/compare/token_projection.py --repetitions 5 --time-at-most 0.5 --memory-at-most 0.05
"""
import side_by_side


def composed(torch, tokens, mask, table, bias):
    activations = torch.nn.functional.linear(tokens, table, bias)  # [B, P, V]
    return torch.log1p(torch.relu(activations.masked_fill(~mask.unsqueeze(-1), float("-inf")).max(1).values))


def make(torch, args):
    def rounded(x, step):  # rounded inputs make sums of products exact, so that both sides find the same maxima
        return ((x / step).round() * step).requires_grad_()

    tokens = rounded(torch.randn(args.batch, args.positions, args.width), 1 / 4)  # has the distribution of a LayerNorm's output
    table = rounded(0.02 * torch.randn(args.vocabulary, args.width), 1 / 512)
    greatest = torch.linalg.vector_norm(table.detach(), dim=1).mean() * 2.7  # the typical maximum of 196 activations
    bias = rounded(-greatest + 0.1 * torch.randn(args.vocabulary), 1 / 512)
    mask = torch.ones(args.batch, args.positions, dtype=torch.bool)
    gradient = torch.randn(args.batch, args.vocabulary) / args.vocabulary**0.5
    fused = torch.ops.tessera.token_max_projection
    return (tokens, table, bias), [gradient], {
        "eager": lambda tokens, table, bias: (composed(torch, tokens, mask, table, bias),),
        "fused": lambda tokens, table, bias: (fused(tokens, mask, table, bias)[0],)}


if __name__ == "__main__":
    side_by_side.compare_operator(__doc__, {"batch": 64, "positions": 196, "vocabulary": 30522, "width": 512},
                                  "token_max_projection forward + backward, B={batch} P={positions} V={vocabulary} D={width}", make)
