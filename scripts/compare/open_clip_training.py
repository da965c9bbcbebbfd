#!/usr/bin/env python3
"""Runs recipes with OpenCLIP's training program, open_clip_train, and with the YAML that `trainer --from-open-clip` makes from each run's
params.txt, from the same weights on the same data, and compares the loss of every step.

    python3 -m pip install open_clip_torch pandas webdataset braceexpand     # into an environment with torch
    scripts/compare/open_clip_training.py                                    # runs all recipes, with build/bin/trainer
    scripts/compare/open_clip_training.py --only clip siglip --bin build-develop/bin

Each run has 20 steps on the CPU in float32. The images have the model's size and crops cover them completely, so there is no
augmentation. A batch is the whole data set, so the order of samples does not affect the loss.

  clip            ViT-S-32-alt at 64 pixels, CSV data, cosine with warm-up, weight decay
  siglip          the same with --siglip and --grad-clip-norm
  cooldown        quick GELU, const-cooldown with a power of 2, no warm-up
  locked          --lock-image with two groups unlocked, --lock-text with two layers unlocked
  accumulated     --accum-freq 2
  timm            timm's image tower vit_medium_patch16_gap_256, resized from 256 to 64 pixels, with its own mean and std
  long_warmup     more warm-up steps than steps

The table has the first and last loss of open_clip_train and the largest difference of a step's loss. Exit code: 0; 1 if a difference
exceeds --tolerance; 77 if a Python package is missing.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import open_clip
    import torch
    from PIL import Image
    import open_clip_train.main  # also imports pandas, webdataset and braceexpand
except ImportError as error:
    print(f"compare/open_clip_training.py: skipped, {error}")
    sys.exit(77)

STEPS, SAMPLES = 20, 16
SMALL = ["--model", "ViT-S-32-alt", "--force-image-size", "64"]
RECIPES = {
    "clip": SMALL + ["--lr", "5e-4", "--warmup", "5"],
    "siglip": SMALL + ["--siglip", "--grad-clip-norm", "0.5", "--warmup", "5", "--wd", "0.1"],
    "cooldown": SMALL + ["--force-quick-gelu", "--lr-scheduler", "const-cooldown", "--epochs-cooldown", "12", "--lr-cooldown-power", "2",
                         "--lr-cooldown-end", "1e-5", "--warmup", "0", "--beta2", "0.95"],
    "locked": SMALL + ["--lock-image", "--lock-image-unlocked-groups", "2", "--lock-text", "--lock-text-unlocked-layers", "2", "--lock-text-freeze-layer-norm", "--warmup", "5"],
    "accumulated": SMALL + ["--accum-freq", "2", "--batch-size", str(SAMPLES // 2), "--warmup", "5"],
    "timm": ["--model", "vit_medium_patch16_gap_256", "--force-image-size", "64", "--warmup", "5", "--image-mean", "0.5", "--image-std", "0.5"],
    "long_warmup": SMALL + ["--warmup", "1000", "--lr", "1e-2"],
}
COMMON = ["--batch-size", str(SAMPLES), "--epochs", str(STEPS), "--precision", "fp32", "--device", "cpu", "--workers", "0", "--log-every-n-steps", "1",
          "--aug-cfg", "scale=(1.0,1.0)", "--name", "run", "--save-frequency", "0", "--csv-caption-key", "caption"]


def write_data(folder, side):
    """Writes SAMPLES noise images, each with its own caption."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    rows = ["filepath\tcaption"]
    for i in range(SAMPLES):
        Image.fromarray(rng.integers(0, 256, (side, side, 3), dtype=np.uint8)).save(folder / f"{i}.png")
        rows.append(f"{folder / f'{i}.png'}\tpicture {i}, {'a few words more ' * (i % 4)}with the number {i * 7}")
    (folder / "train.csv").write_text("\n".join(rows) + "\n")


def parsed(arguments):
    return open_clip_train.main.parse_args(arguments)


def write_weights(arguments, file):
    """Writes a random model with nonzero biases and returns its image size."""
    torch.manual_seed(1)
    forced = arguments.force_image_size[0] if arguments.force_image_size else None
    # OpenCLIP loads a timm model's weights before it resizes the model, so the file must have the weights of the original image size.
    timm = "timm_model_name" in open_clip.get_model_config(arguments.model)["vision_cfg"]
    model = open_clip.create_model(arguments.model, force_image_size=None if timm else forced, pretrained_text=False)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.ndim == 1:
                value.add_(0.02 * torch.randn(value.shape, generator=generator))
    torch.save(model.state_dict(), file)
    if timm:  # the weights' names depend on the configuration, so it is stored next to the weights, as for a published model
        (file.parent / "open_clip_config.json").write_text(json.dumps({"model_cfg": open_clip.get_model_config(arguments.model)}))
    return forced or model.visual.image_size[0]


def losses_of_open_clip(arguments, out):
    """The inner program: runs open_clip_train.main and records every loss that it calls backward() on."""
    import open_clip_train.train as train
    losses, backward = [], train.backward

    def recording(loss, scaler):
        losses.append(loss.item())
        backward(loss, scaler)
    train.backward = recording
    open_clip_train.main.main(arguments)
    pathlib.Path(out).write_text(json.dumps(losses))


def run(command, **kwargs):
    result = subprocess.run(command, capture_output=True, text=True, **kwargs)
    if result.returncode != 0:
        sys.exit(f"compare/open_clip_training.py: {' '.join(map(str, command))}:\n{result.stdout[-2000:]}{result.stderr[-3000:]}")
    return result.stdout


def compare(program, name, recipe, folder):
    """Returns (open_clip_train's losses, our losses)."""
    folder.mkdir()
    arguments = COMMON + recipe + ["--logs", str(folder / "logs"), "--train-data", str(folder / "data/train.csv")]
    side = write_weights(parsed(arguments), folder / "weights.pt")
    write_data(folder / "data", side)
    arguments += ["--pretrained", str(folder / "weights.pt")]
    run([sys.executable, __file__, "--inner", str(folder / "losses.json"), *arguments])
    theirs = json.loads((folder / "losses.json").read_text())[::parsed(arguments).accum_freq]
    (folder / "run.yaml").write_text(run([program, "--from-open-clip", folder / "logs/run/params.txt"]))
    run([program, "--config", folder / "run.yaml", "--set", f"run.folder={folder / 'ours'}", "log.tensorboard=false", "log.page=false"])
    rows = [json.loads(line) for line in (folder / "ours/metrics.jsonl").read_text().splitlines()]
    return theirs, [row["loss"] for row in rows if "loss" in row]


def main():
    if sys.argv[1:2] == ["--inner"]:
        return losses_of_open_clip(sys.argv[3:], sys.argv[2])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2] / "build/bin", help="folder with trainer")
    parser.add_argument("--only", nargs="+", choices=RECIPES, default=list(RECIPES), help="recipes to run")
    parser.add_argument("--tolerance", type=float, default=1e-4, help="largest allowed difference of a loss")
    parser.add_argument("--keep", type=pathlib.Path, help="a new folder for data, logs and runs (default: a temporary one)")
    options = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as temporary:
        work = options.keep or pathlib.Path(temporary)
        work.mkdir(exist_ok=True)
        print("| recipe | loss of open_clip_train, first and last | greatest difference |\n| --- | --- | ---: |")
        for name in options.only:
            theirs, ours = compare(options.bin.resolve() / "trainer", name, RECIPES[name], work.resolve() / name)
            if len(theirs) != STEPS or len(ours) != STEPS:
                sys.exit(f"{name}: {len(theirs)} losses of open_clip_train, {len(ours)} of the trainer: expected {STEPS} from each")
            difference = max(abs(a - b) for a, b in zip(theirs, ours))
            good &= difference <= options.tolerance
            print(f"| {name} | {theirs[0]:.5f}, {theirs[-1]:.5f} | {difference:.1e} |", flush=True)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
