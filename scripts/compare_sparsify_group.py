#!/usr/bin/env python3
"""SPARC's sparsify-and-group, forward and backward on the CPU: torch.ops.tessera.sparsify_group beside the same from eager PyTorch's
composed operations, in one run. All tokens are real: padding would cost the fused operator nothing.

  scripts/compare_sparsify_group.py                       # B=64, L=55, P=196, D=512
  scripts/compare_sparsify_group.py --time-at-most 0.833 --memory-at-most 0.2
"""
import side_by_side


def composed(torch, text, image, mask):
    similarity = text @ image.mT  # [B, L, P]
    low, high = similarity.amin(-1, keepdim=True), similarity.amax(-1, keepdim=True)
    z = (similarity - low) / (high - low)
    kept = torch.where(z < 1 / image.shape[1], 0.0, z)
    weights = kept / kept.sum(-1, keepdim=True)
    return weights.masked_fill(~mask.unsqueeze(-1), 0.0) @ image


def main():
    parser = side_by_side.parser(__doc__)
    for name, size in {"batch": 64, "tokens": 55, "patches": 196, "width": 512}.items():
        parser.add_argument(f"--{name}", type=int, default=size)
    args = parser.parse_args()
    torch = side_by_side.prepare(args)
    torch.manual_seed(0)
    text = torch.randn(args.batch, args.tokens, args.width, requires_grad=True)
    image = torch.randn(args.batch, args.patches, args.width, requires_grad=True)
    mask = torch.ones(args.batch, args.tokens, dtype=torch.bool)
    gradient = torch.randn(args.batch, args.tokens, args.width)
    operators = {"eager": lambda: composed(torch, text, image, mask),
                 "fused": lambda: torch.ops.tessera.sparsify_group(text, image, mask)}

    def step(operator):
        grouped = operator()
        torch.autograd.grad(grouped, (text, image), gradient)
        return grouped.detach()

    difference = (step(operators["eager"]) - step(operators["fused"])).abs().max().item()
    assert difference < 1e-4, f"the two differ by {difference}"
    side_by_side.compare(args, torch, f"sparsify_group forward + backward, B={args.batch} L={args.tokens} P={args.patches} D={args.width}",
                         {name: lambda operator=operator: step(operator) for name, operator in operators.items()},
                         results=(gradient, text, image))  # of their sizes


if __name__ == "__main__":
    main()
