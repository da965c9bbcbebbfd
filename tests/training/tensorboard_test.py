#!/usr/bin/env python3
"""Checks that Python's tensorboard can read the event files of a run. Usage: tensorboard_test.py TRAINER MERGES

Trains two steps, starts over as after a crash before the first checkpoint, trains three steps, resumes for two more, and compares every
scalar with metrics.jsonl.
Exits with code 77, which ctest reports as skipped, if the package tensorboard is missing.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    print("skipped: the Python package tensorboard is not installed")
    sys.exit(77)

CONFIG = """
data: {{train: {{name: shapes, size: 64, image_size: 16}}, loader: {{batch_size: 8}}}}
tokenizer: {{name: clip-bpe, merges: {merges}}}
model:
  preprocessing: {{image_size: 16}}
  image: {{encoder: {{name: vit, patch_size: 8, width: 16, layers: 1, heads: 2}}, readout: {{name: cls}},
          projection: {{name: linear, embed_dim: 8}}}}
  text: {{encoder: {{name: text_transformer, width: 16, layers: 1, heads: 2}}, readout: {{name: eos}},
         projection: {{name: linear, embed_dim: 8}}}}
checkpoint: {{every_steps: 2}}
log: {{every_steps: 1}}
"""


def main(trainer, merges):
    with tempfile.TemporaryDirectory() as folder:
        config, run = pathlib.Path(folder, "tiny.yaml"), pathlib.Path(folder, "run")
        config.write_text(CONFIG.format(merges=merges))
        for steps in (2, 3, 5):
            subprocess.run([trainer, "--config", config, "--resume", "auto", "--set", f"run.folder={run}",
                            "--set", f"training.steps={steps}"], check=True)
            if steps == 2:
                shutil.rmtree(run / "checkpoints")
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        events = EventAccumulator(str(run / "tensorboard"))
        events.Reload()
        assert [row["step"] for row in rows] == [1, 2, 3, 4, 5], rows
        for tag, value_of in {"loss/total": lambda row: row["loss"], "optimizer/learning_rate": lambda row: row["lr"],
                              "optimizer/grad_norm": lambda row: row["grad_norm"],
                              "optimizer/grad_norm_text": lambda row: row["grad_norms"]["text"],
                              "throughput/tflops": lambda row: row["tflops"],
                              "throughput/mfu": lambda row: row["mfu"],
                              "memory/resident_peak_gib": lambda row: row["memory"]["resident_peak"] / 2**30,
                              "model/logit_scale": lambda row: row["logit_scale"]}.items():
            scalars = events.Scalars(tag)
            assert [s.step for s in scalars] == [1, 2, 3, 4, 5], (tag, scalars)
            for scalar, row in zip(scalars, rows):
                assert abs(scalar.value - value_of(row)) <= 1e-6 * max(1, abs(scalar.value)), (tag, scalar, row)
        print(f"{len(events.Tags()['scalars'])} series of {len(rows)} steps agree")


if __name__ == "__main__":
    main(*sys.argv[1:])
