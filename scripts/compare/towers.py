#!/usr/bin/env python3
"""Compares published image towers with timm's: embedding images, and a training step (forward, loss, backward, AdamW).

  python3 -m pip install timm safetensors pillow           # into LibTorch's environment
  scripts/compare/towers.py                                # the ViT-B/16 of SigLIP, DINOv3 and EVA-02, float32, 2 threads
  scripts/compare/towers.py --kinds siglip --batch-size 32 --at-least 1

Each timm model has random weights. Both sides read the same folder, and the script first checks that they compute the same embeddings.
Then they take turns, so that heat and other load affect both alike. Times are medians; the ratio is timm's median divided by ours, with the
quartiles of the ratios of single turns. Memory is the peak resident set of a separate process. Our step also has a text tower of one
narrow block, which timm's side lacks.

Exit code: 0; 1 if embeddings differ or a ratio is below --at-least; 77 if a Python package is missing.
"""
import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile

import side_by_side

try:
    import timm
    import torch
    from PIL import Image
    from safetensors.torch import load_file
except ImportError as error:
    print(f"compare/towers.py: skipped, {error}")
    sys.exit(77)

KINDS = {"siglip": "vit_base_patch16_siglip_224", "dinov3": "vit_base_patch16_dinov3", "eva02": "eva02_base_patch16_clip_224"}
SCALE = 10.0


class Timm:
    """timm's model, eager, as a PyTorch training loop runs it."""

    def __init__(self, args, kind):
        torch.manual_seed(0)
        self.model = timm.create_model(KINDS[kind], num_classes=0, img_size=args.image_size)
        self.pixels = torch.randn(args.batch_size, 3, args.image_size, args.image_size)
        self.texts = torch.nn.functional.normalize(torch.randn(args.batch_size, self.model.num_features), dim=-1)
        parameters = list(self.model.parameters())
        self.optimizer = torch.optim.AdamW([{"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
                                            {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": 0.2}], lr=1e-4, fused=True)

    def forward(self):
        self.model.eval()
        with torch.no_grad():
            self.model(self.pixels)

    def step(self):
        self.model.train()
        self.optimizer.zero_grad()
        logits = SCALE * torch.nn.functional.normalize(self.model(self.pixels), dim=-1) @ self.texts.T
        labels = torch.arange(len(logits))
        loss = (torch.nn.functional.cross_entropy(logits, labels) + torch.nn.functional.cross_entropy(logits.T, labels)) / 2
        loss.backward()
        self.optimizer.step()


def check_embeddings(args, model, folder):
    """Returns the relative error of our embedding of a noise image."""
    pixels = torch.randint(0, 256, (args.image_size, args.image_size, 3), dtype=torch.uint8)
    Image.fromarray(pixels.numpy()).save(folder / "noise.png")
    command = [args.bench.parent / "tessera-embed", "--raw", "--checkpoint", folder / "model", "--images", folder / "noise.png",
               "--out", folder / "noise.safetensors"]
    subprocess.run(command, check=True, capture_output=True)
    cfg = model.pretrained_cfg
    x = (pixels.permute(2, 0, 1) / 255 - torch.tensor(cfg["mean"]).view(3, 1, 1)) / torch.tensor(cfg["std"]).view(3, 1, 1)
    with torch.no_grad():
        theirs = model.eval()(x[None])
    ours = load_file(folder / "noise.safetensors")["image_embeddings"]
    return float((ours - theirs).norm() / theirs.norm())


def configuration(args, folder, width):
    """Writes the configuration of a training step. The settings of the image tower come from the folder."""
    (folder / "tower.yaml").write_text(f"""
model:
  image: {{from: {folder / 'model'}}}
  text: {{encoder: {{name: text_transformer, width: 64, heads: 1, layers: 1}}, projection: {{name: linear, embed_dim: {width}}}}}
objective: {{name: clip}}
data: {{train: {{name: shapes}}}}
tokenizer: {{name: clip-bpe, context_length: 8, merges: {side_by_side.ROOT}/configs/vocabularies/clip-bpe/bpe_simple_vocab_16e6.txt.gz}}
optimizer: {{name: adamw, lr: 1.0e-4, betas: [0.9, 0.999], eps: 1.0e-8, weight_decay: 0.2}}
""")
    printed = subprocess.run([args.bench.parent / "trainer", "--config", folder / "tower.yaml", "--print-config"], capture_output=True, text=True)
    if printed.returncode:
        sys.exit(printed.stderr)
    path = folder / "step.yaml"
    path.write_text(printed.stdout)
    return path


def take_turns(args, kind, what, folder):
    """Returns the times of our side and of timm's in seconds, and the peak memory of each."""
    theirs = Timm(args, kind)
    bench = side_by_side.OnDemand(args.bench, "step", configuration(args, folder, theirs.model.num_features), "--batch-size", args.batch_size, "--threads",
                                  args.threads, "--on-demand", *(["--forward"] if what == "forward" else []))
    if what == "step":
        bench.line()
    timm_step = getattr(theirs, what)
    times = side_by_side.take_turns({"ours": bench.step, "timm": lambda: side_by_side.seconds_of(timm_step)}, args.repetitions)
    memory = bench.peak_memory()
    bench.end()
    return times, {"ours": memory, "timm": side_by_side.in_fresh_process("--memory-of", kind, what)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", type=pathlib.Path, default=side_by_side.BENCH)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--at-least", type=float, default=0, metavar="RATIO", help="exit 1 if timm's time / our time is below this")
    parser.add_argument("--memory-at-most", type=float, metavar="SHARE", help="exit 1 if our memory / timm's memory exceeds this")
    parser.add_argument("--memory-of", nargs=2, help=argparse.SUPPRESS)  # used only in the fresh process that measures memory
    args = parser.parse_args()
    args.bench = args.bench.resolve()
    torch.set_num_threads(args.threads)
    if args.memory_of:
        kind, what = args.memory_of
        model = Timm(args, kind)
        for _ in range(3):
            getattr(model, what)()
        print(side_by_side.resident("VmHWM"))
        return
    print(f"ViT-B/16, {args.batch_size} images of {args.image_size} pixels, float32, {args.threads} threads, {args.repetitions} turns, "
          f"PyTorch {torch.__version__}, timm {timm.__version__}\n")
    print("| kind | what | relative error | ours, ms | timm, ms | times as fast (quartiles) | ours, GB | timm, GB |\n| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |")
    failed = False
    for kind in args.kinds:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            model = Timm(args, kind).model
            timm.models.save_for_hf(model, folder / "model", model_args={"img_size": args.image_size}, safe_serialization=True)
            error = check_embeddings(args, model, folder)
            del model
            for what in ("forward", "step"):
                times, memory = take_turns(args, kind, what, folder)
                median = {side: statistics.median(seconds) for side, seconds in times.items()}
                ratio, faster = side_by_side.times_as_fast(times["ours"], times["timm"])
                print(f"| {kind} | {what} | {error:.0e} | {1e3 * median['ours']:.0f} | {1e3 * median['timm']:.0f} | {faster} "
                      f"| {memory['ours'] / 1e9:.2f} | {memory['timm'] / 1e9:.2f} |", flush=True)
                failed |= error > 1e-4 or ratio < args.at_least
                failed |= args.memory_at_most is not None and memory["ours"] > args.memory_at_most * memory["timm"]
    sys.exit(failed)


if __name__ == "__main__":
    main()
