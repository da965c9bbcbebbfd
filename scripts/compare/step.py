#!/usr/bin/env python3
"""Compares a training step with OpenCLIP's, eager and compiled: towers, loss, backward pass, clipping and AdamW update, from the same
weights on the same batch.

  python3 -m pip install open_clip_torch safetensors       # into LibTorch's environment
  scripts/compare/step.py                                  # ViT-B/32, 32 pairs, float32, captions of COCO's lengths, then of full length
  scripts/compare/step.py --device cuda --dtype bfloat16 --model ViT-B-16 --config openclip_vitb16 --batch-size 1024 --compile

The sides take turns step by step, so that heat and other load affect them alike. Times are medians; the ratio is OpenCLIP's median divided
by ours, with the quartiles of the ratios of single turns. With bfloat16, our side is measured with both residual streams
(training.residual): float32, and bfloat16, which rounds where OpenCLIP's image encoder rounds. On the CPU, memory is the peak resident set of a process that runs a few steps,
including programs and libraries. Our side skips the padding of captions; OpenCLIP computes it.

Exit code: 0; 1 if the first losses differ by more than 1e-4 (bfloat16: 1e-2), or if a ratio is below --at-least; 77 if a Python package
is missing.
"""
import argparse
import json
import pathlib
import statistics
import sys
import tempfile
import time

import side_by_side

try:
    import open_clip
    import torch
    from safetensors.torch import save_file
except ImportError as error:
    print(f"compare/step.py: skipped, {error}")
    sys.exit(77)

CONTEXT = 77
START, END = 49406, 49407
# The distribution that `tessera-bench step --caption-lengths coco` uses: of 1,000 COCO captions, 5 have 9 tokens, 31 have 10, and so on.
COCO = dict(enumerate((5, 31, 132, 203, 170, 176, 109, 72, 34, 19, 15, 9, 3, 8, 3, 8, 0, 0, 0, 3), start=9))


class OpenClipStep:
    """A step as in open_clip_train: autocast, ClipLoss, one AdamW with two groups, clipping, logit scale clamped to ln 100."""

    def __init__(self, args, batch, compiled):
        torch.manual_seed(0)
        self.args, self.device = args, torch.device(args.device)
        self.model = open_clip.create_model(args.model, pretrained=None).to(self.device).train()
        self.weights = {name: value.detach().clone().cpu().contiguous() for name, value in self.model.state_dict().items()}
        self.loss = open_clip.ClipLoss()
        decayed, others = [], []
        for name, parameter in self.model.named_parameters():
            plain = parameter.ndim < 2 or "bn" in name or "ln" in name or "bias" in name or "logit_scale" in name
            (others if plain else decayed).append(parameter)
        self.optimizer = torch.optim.AdamW([{"params": others, "weight_decay": 0.0}, {"params": decayed, "weight_decay": 0.2}],
                                           lr=5e-4, betas=(0.9, 0.98), eps=1e-6, fused=True)
        self.image, self.text = batch["image"].to(self.device), batch["text"].to(self.device)
        self.run = torch.compile(self.model) if compiled else self.model

    def step(self):
        self.optimizer.zero_grad()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.args.dtype == "bfloat16"):
            image, text, scale = self.run(self.image, self.text)[:3]
            loss = self.loss(image, text, scale)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.args.clip_norm)
        self.optimizer.step()
        with torch.no_grad():
            self.model.logit_scale.clamp_(0, 4.6052)
        return loss

    def first_loss(self):
        loss = self.step().item()
        self.release()
        return loss

    def release(self):
        """Frees the GPU's memory for the other sides."""
        self.optimizer.zero_grad()
        torch.cuda.empty_cache()

    def seconds(self):
        if self.device.type == "cpu":
            return side_by_side.seconds_of(self.step)
        self.step()  # an untimed step, which allocates the memory again
        torch.cuda.synchronize()
        begin = time.perf_counter()
        self.step()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
        self.release()
        return seconds


def make_batch(args, lengths):
    generator = torch.Generator().manual_seed(1)
    text = torch.zeros(args.batch_size, CONTEXT, dtype=torch.long)
    for row, length in enumerate(lengths):
        text[row, :length] = torch.randint(1000, 40000, (length,), generator=generator)
        text[row, 0], text[row, length - 1] = START, END
    side = args.image_size
    return {"image": torch.randn(args.batch_size, 3, side, side, generator=generator), "text": text,
            "lengths": torch.tensor(lengths)}


def caption_lengths(args, kind):
    if kind == "full":
        return [CONTEXT] * args.batch_size
    generator = torch.Generator().manual_seed(0)
    drawn = torch.multinomial(torch.tensor(list(COCO.values()), dtype=torch.float), args.batch_size, replacement=True, generator=generator)
    return [list(COCO)[i] for i in drawn.tolist()]


def configuration(args, folder, residual):
    """Writes a configuration with the model and objective of --config (a shipped name or a file) and OpenCLIP's optimizer and clipping."""
    own = pathlib.Path(args.config)
    path = folder / f"step_{residual}.yaml"
    path.write_text(f"extends: {own.resolve() if own.exists() else args.config}\n"
                    f"training: {{clip_norm: {args.clip_norm}, residual: {residual}}}\n"
                    "optimizer: {name: adamw, lr: 5.0e-4, betas: [0.9, 0.98], eps: 1.0e-6, weight_decay: 0.2}\n")
    return path


def ours(args, folder, weights, batch, residual):
    return side_by_side.OnDemand(args.bench, "step", configuration(args, folder, residual), "--batch-size", args.batch_size, "--dtype", args.dtype,
                                 "--device", args.device, "--threads", args.threads, "--weights", weights, "--batch", batch, "--on-demand", *(["--recorded"] if args.recorded else []))


def compare(args, kind, folder):
    """Prints one table and returns the problems found."""
    batch = make_batch(args, caption_lengths(args, kind))
    save_file(batch, folder / "batch.safetensors")
    theirs = {"OpenCLIP": OpenClipStep(args, batch, compiled=False)}
    if args.compile:
        theirs["OpenCLIP, compiled"] = OpenClipStep(args, batch, compiled=True)
    save_file(next(iter(theirs.values())).weights, folder / "weights.safetensors")
    own = {"Tessera": "float32"}
    if args.dtype == "bfloat16":
        own["Tessera, bfloat16 residual"] = "bfloat16"
    benches = {name: ours(args, folder, folder / "weights.safetensors", folder / "batch.safetensors", residual) for name, residual in own.items()}
    losses = {**{name: float(bench.line()) for name, bench in benches.items()}, **{name: each.first_loss() for name, each in theirs.items()}}
    sides = {**{name: bench.step for name, bench in benches.items()}, **{name: each.seconds for name, each in theirs.items()}}
    times = side_by_side.take_turns(sides, args.repetitions)
    memory = {name: bench.peak_memory() for name, bench in benches.items()} if args.device == "cpu" else {}
    for bench in benches.values():
        bench.end()
    del theirs, sides
    if args.device == "cpu":
        memory["OpenCLIP"] = side_by_side.in_fresh_process("--memory-of", kind)
    print(f"{args.model}, {args.batch_size} pairs, {args.dtype}, captions: {kind} "
          f"(mean {statistics.mean(batch['lengths'].tolist()):.1f} tokens); {args.repetitions} turns, {torch.get_num_threads()} threads, "
          f"PyTorch {torch.__version__}, open_clip {open_clip.__version__}\n")
    print("| | first loss | ms per step | fastest, ms | pairs/s | peak resident set, GB | times as fast (quartiles) |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    problems = []
    for name, seconds in times.items():
        median = statistics.median(seconds)
        ratio, faster = side_by_side.times_as_fast(times["Tessera"], seconds)
        grown = f"{memory[name] / 1e9:.2f}" if name in memory else "-"
        print(f"| {name} | {losses[name]:.6f} | {1e3 * median:.0f} | {1e3 * min(seconds):.0f} | {args.batch_size / median:.2f} | {grown} | {'' if name == 'Tessera' else faster} |")
        if name not in own and ratio < args.at_least.get(kind, 0):
            problems.append(f"{kind}: {ratio:.2f} times as fast as {name}, less than {args.at_least[kind]}")
        if abs(losses[name] - losses["Tessera"]) > (1e-2 if args.dtype == "bfloat16" else 1e-4):
            problems.append(f"{kind}: the first loss is {losses['Tessera']}, but {name}'s is {losses[name]}")
    if args.memory_at_most is not None and memory and memory["Tessera"] > args.memory_at_most * memory["OpenCLIP"]:
        problems.append(f"{kind}: {memory['Tessera'] / memory['OpenCLIP']:.2f} times OpenCLIP's memory")
    print(flush=True)
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", type=pathlib.Path, default=side_by_side.BENCH)
    parser.add_argument("--model", default="ViT-B-32", help="OpenCLIP's name (default: %(default)s)")
    parser.add_argument("--config", default="openclip_vitb32", help="our configuration of the same architecture (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--captions", nargs="+", default=["coco", "full"], choices=["coco", "full"])
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--clip-norm", type=float, default=1.0)
    parser.add_argument("--compile", action="store_true", help="also measure OpenCLIP with torch.compile")
    parser.add_argument("--recorded", action="store_true", help="ours as a CUDA graph (training.cuda_graph)")
    parser.add_argument("--at-least", type=json.loads, default={}, metavar="JSON", help="""smallest allowed ratios, for example '{"coco": 1.3, "full": 1.05}'""")
    parser.add_argument("--memory-at-most", type=float, metavar="SHARE", help="largest allowed memory, relative to OpenCLIP's, on the CPU")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)  # used only in the fresh process that measures memory
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.memory_of:
        step = OpenClipStep(args, make_batch(args, caption_lengths(args, args.memory_of)), compiled=False)
        for _ in range(3):
            step.step()
        print(side_by_side.resident("VmHWM"))
        return
    problems = []
    for kind in args.captions:
        with tempfile.TemporaryDirectory() as folder:
            problems += compare(args, kind, pathlib.Path(folder))
    for problem in problems:
        print(f"compare/step.py: {problem}")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
