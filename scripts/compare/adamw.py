#!/usr/bin/env python3
"""Compares the time of one AdamW update in Tessera with torch.optim.AdamW(fused=True). The two take turns, step by step; tessera-bench runs
ours. Parameters, weight decays and settings are the same.

  scripts/compare/adamw.py                       # ViT-B/32 and CLIP's text tower, 151 million parameters
  scripts/compare/adamw.py --at-most 1.05        # exit 1 if ours takes more than 1.05 times as long as PyTorch's
"""
import argparse
import json
import pathlib
import statistics
import sys

import side_by_side


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, default=side_by_side.ROOT / "configs/openclip/vitb32.yaml", help="a configuration (default: %(default)s)")
    parser.add_argument("--bench", type=pathlib.Path, default=side_by_side.BENCH)
    parser.add_argument("--repetitions", type=int, default=25)
    parser.add_argument("--threads", type=int, default=0, help="default: one per core")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--at-most", type=float, metavar="SHARE", help="exit 1 if our time / PyTorch's time exceeds this")
    args = parser.parse_args()
    torch = side_by_side.torch_of(args)
    settings = "{name: adamw, lr: 5.0e-4, betas: [0.9, 0.98], eps: 1.0e-6, weight_decay: 0.2}"
    ours = side_by_side.OnDemand(args.bench, "optimizer", "--on-demand", "--model", args.model, "--optimizers", settings, "--device",
                                 args.device, "--threads", torch.get_num_threads())
    groups = {}
    for parameter in json.loads(ours.line()):
        tensor = torch.nn.Parameter(0.02 * torch.randn(parameter["shape"], device=args.device))
        tensor.grad = 1e-3 * torch.randn_like(tensor)
        groups.setdefault(parameter["weight_decay"], []).append(tensor)
    optimizer = torch.optim.AdamW([{"params": tensors, "weight_decay": decay} for decay, tensors in groups.items()],
                                  lr=5e-4, betas=(0.9, 0.98), eps=1e-6, fused=True)

    def their_step():
        optimizer.step()
        if args.device != "cpu":
            torch.cuda.synchronize()

    times = side_by_side.take_turns({"Tessera": ours.step, "PyTorch": lambda: side_by_side.seconds_of(their_step)}, args.repetitions, warm_up=3)
    ours.end()
    tensors = [tensor for group in groups.values() for tensor in group]
    print(f"{len(tensors)} tensors, {sum(tensor.numel() for tensor in tensors):,} parameters, float32, {args.device}; "
          f"{torch.get_num_threads()} threads, median of {args.repetitions}, PyTorch {torch.__version__}\n")
    print("| AdamW, fused | ms a step | fastest, ms |\n| --- | --- | --- |")
    median = {name: statistics.median(values) for name, values in times.items()}
    for name, values in times.items():
        print(f"| {name} | {1e3 * median[name]:.2f} | {1e3 * min(values):.2f} |")
    share = median["Tessera"] / median["PyTorch"]
    print(f"\nTessera / PyTorch: {share:.3f}")
    sys.exit(1 if args.at_most is not None and share > args.at_most else 0)


if __name__ == "__main__":
    main()
