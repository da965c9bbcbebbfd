#!/usr/bin/env python3
"""Compares CLIP's contrastive loss with the setting `chunk`, forward and backward on the CPU, with a composed loss that holds all
similarities: open_clip's ClipLoss in eager PyTorch (two logit matrices, each with a cross-entropy). tessera-bench runs our side.

  scripts/compare/clip_chunk.py                             # B=32,768, D=512: the composed loss takes about 18 GiB
  scripts/compare/clip_chunk.py --batch 16384               # 4.5 GiB
  scripts/compare/clip_chunk.py --ours 32768                # in addition, measures our loss alone at batch size 32,768
  scripts/compare/clip_chunk.py --time-at-most 1.3 --memory-at-most 0.05

Times are medians over repetitions in which the two take turns. Memory is the growth of a fresh process's resident set over its size before
the step (features and weights); it includes the gradients of the features.
"""
import argparse
import pathlib
import statistics
import sys

import side_by_side


def ours_of(args, batch, environment=None):
    objective = f"{{name: clip, chunk: {args.chunk}}}" if args.chunk else "clip"
    threads = ["--threads", args.threads] if args.threads else []
    return side_by_side.OnDemand(args.bench, "loss", "--on-demand", "--objectives", objective, "--batch-sizes", batch, "--width", args.width,
                                 "--tokens", 1, *threads, environment=environment)


def composed(torch, args):
    """Returns a function that runs one forward and backward pass."""
    torch.manual_seed(0)
    functional = torch.nn.functional
    features = [torch.randn(args.batch, args.width, requires_grad=True) for _ in range(2)]
    logit_scale = torch.nn.Parameter(torch.tensor(2.6593))

    def step():
        for leaf in (*features, logit_scale):
            leaf.grad = None
        image, text = (functional.normalize(tensor, dim=-1) for tensor in features)
        scale = logit_scale.exp()
        labels = torch.arange(args.batch)
        loss = (functional.cross_entropy(scale * image @ text.T, labels) + functional.cross_entropy(scale * text @ image.T, labels)) / 2
        loss.backward()

    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    side_by_side.add_arguments(parser)
    parser.set_defaults(repetitions=5)
    parser.add_argument("--batch", type=int, default=32768)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--chunk", type=int, default=256, help="0: our composed loss")
    parser.add_argument("--ours", type=int, metavar="BATCH", help="also measure only ours at this size")
    parser.add_argument("--bench", type=pathlib.Path, default=side_by_side.BENCH)
    args = parser.parse_args()
    torch = side_by_side.torch_of(args)
    if args.memory_of:
        print(side_by_side.grown_memory(composed(torch, args)))
        return

    def memory_of_ours(batch):
        ours = ours_of(args, batch, side_by_side.SMALL_BLOCKS)
        memory = ours.grown_memory()
        ours.end()
        return memory

    memory = {"ours": memory_of_ours(args.batch), "eager": side_by_side.in_fresh_process("--memory-of", "eager", environment=side_by_side.SMALL_BLOCKS)}
    ours, their_step = ours_of(args, args.batch), composed(torch, args)
    times = side_by_side.take_turns({"eager": lambda: side_by_side.seconds_of(their_step), "ours": ours.step}, args.repetitions, warm_up=1)
    ours.end()
    median = {name: statistics.median(values) for name, values in times.items()}
    print(f"CLIP loss, B={args.batch}, D={args.width}, float32, chunk {args.chunk}; {torch.get_num_threads()} threads, median of "
          f"{args.repetitions}, PyTorch {torch.__version__}\n")
    print("| | time, s | fastest, s | memory, MB |\n| --- | --- | --- | --- |")
    for name in ("eager", "ours"):
        print(f"| {name} | {median[name]:.2f} | {min(times[name]):.2f} | {memory[name] / 1e6:.0f} |")
    time_share, memory_share = median["ours"] / median["eager"], memory["ours"] / memory["eager"]
    print(f"\nours / eager: time {time_share:.2f}, memory {memory_share:.4f} (1/{1 / memory_share:.0f})")
    if args.ours:
        alone = ours_of(args, args.ours)
        seconds = statistics.median([alone.step() for _ in range(1 + min(3, args.repetitions))][1:])
        alone.end()
        print(f"ours at B={args.ours}: {seconds:.2f} s, {memory_of_ours(args.ours) / 1e6:.0f} MB")
    sys.exit(side_by_side.beyond_limits(args, time_share, memory_share))


if __name__ == "__main__":
    main()
