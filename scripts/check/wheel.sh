#!/usr/bin/env bash
# Tries a wheel in a fresh environment, without the source tree and the build.
set -euo pipefail

usage() {
  cat <<'EOT'
usage: scripts/check/wheel.sh WHEEL [--torch-from SITE_PACKAGES]
  WHEEL          a file that scripts/build_wheel.sh wrote
  --torch-from   use the PyTorch in this folder (scripts/setup.sh installs one in ~/.cache/tessera/libtorch-VERSION/lib/python3.*/site-packages)
                 instead of downloading the one that the wheel requires (5 GB)
Makes a virtual environment, installs the wheel, trains for five steps, evaluates, embeds in Python, trains with an objective in Python, reads
TIFF, and checks the message for a PyTorch of another series. Exits with a code that is not 0 if any of it fails.
EOT
}

wheel='' site=''
while [ $# -gt 0 ]; do
  case $1 in
    --torch-from) site=$(realpath "${2:?--torch-from needs a folder}"); shift ;;
    -h|--help) usage; exit 0 ;;
    -*) echo "wheel.sh: unknown argument $1 (see --help)" >&2; exit 2 ;;
    *) wheel=$(realpath "$1") ;;
  esac
  shift
done
[ -f "$wheel" ] || { usage >&2; exit 2; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
unset PYTHONPATH LD_LIBRARY_PATH TESSERA_LIBRARY
python3 -m venv fresh
if [ -n "$site" ]; then
  fresh/bin/pip install --quiet --disable-pip-version-check --no-deps "$wheel"
  echo "$site" > "$(echo fresh/lib/python3.*/site-packages)/torch.pth"
  # Programs find PyTorch next to the wheel or in the folder that Python imports it from.
else
  fresh/bin/pip install --quiet --disable-pip-version-check "$wheel"
fi

export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
series=$(sed -n 's/.*+torch\([0-9.]*\)-.*/\1/p' <<<"$(basename "$wheel")")
echo "== version"
fresh/bin/python -m tessera --version | grep -qx ".*+torch$series"
echo "== training, evaluation"
fresh/bin/trainer --config shapes_clip --set training.steps=5 schedule.warmup_steps=0 run.folder="$folder/run" training.device=cpu \
  evaluation.tasks='[]' data.loader.batch_size=16 > train.log 2>&1 || { tail -n 5 train.log >&2; exit 1; }
fresh/bin/evaluate --checkpoint run --task retrieval --data '{name: shapes, size: 64}' --device cpu --out evaluation > evaluate.log 2>&1 ||
  { tail -n 5 evaluate.log >&2; exit 1; }
echo "== Python"
fresh/bin/python - <<'EOT'
import torch
import tessera
model = tessera.load("run", "cpu").train()
objective = tessera.objectives.Objective("sparc", model)
batch = tessera.Loader({"name": "shapes", "size": 64}, model=model, objective=objective, batch_size=8).next()
losses = objective(model.features(batch, objective))
losses.total.backward()
assert model.logit_scale.grad.abs() > 0 and losses.total.isfinite()
blocks = tessera.load("run", "cpu", blocks=True)
torch.testing.assert_close(objective(blocks(batch, objective)).total, losses.total, atol=1e-5, rtol=0)
model.save("tuned.safetensors", objective)
assert tessera.load("tuned.safetensors", "cpu").encode_text("a red circle").shape == (1, model.embed_dim)
EOT
echo "== TIFF; a file with JBIG compression is a bad sample, because the wheel does not contain JBIG"
fresh/bin/python - <<'EOT'
import pathlib
import struct

for name, compression in ("plain", 1), ("jbig", 34661):
    tags = [(256, 8), (257, 8), (258, 8), (259, compression), (262, 1), (273, 8), (277, 1), (278, 8), (279, 64)]
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    file = pathlib.Path("pictures", name + ".tif")
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(struct.pack("<2sHI", b"II", 42, 72) + bytes(range(64)) + struct.pack("<H", len(tags)) + entries + bytes(4))
    file.with_suffix(".txt").write_text("a gray square")
EOT
fresh/bin/tessera-data inspect --source image_folder --set path=pictures > inspect.log 2>&1 || true
grep -q "looked at 2 samples: 1 good, 1 bad" inspect.log && grep -q "does not read JBIG" inspect.log || { tail -n 5 inspect.log >&2; exit 1; }
echo "== the message for another series"
mkdir -p other/torch
echo "__version__ = '2.3.1'" > other/torch/version.py
touch other/torch/__init__.py
if PYTHONPATH=other fresh/bin/python -m tessera trainer --version 2> message; then echo "wheel.sh: a wrong PyTorch was accepted" >&2; exit 1; fi
grep -q "built for PyTorch $series, but .* is PyTorch 2.3.1: pip install 'torch==$series\.\*'" message
echo "== $(basename "$wheel") works with PyTorch $series"
