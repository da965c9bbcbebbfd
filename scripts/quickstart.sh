#!/usr/bin/env bash
# Trains a model from a fresh clone: sets up, builds, trains a small SPARC model on the built-in shapes for a few minutes on the CPU,
# evaluates it, and writes a report with images.
set -euo pipefail
case ${1:-} in
  -h|--help)
    echo "usage: scripts/quickstart.sh [RUN_FOLDER]"
    echo "  RUN_FOLDER  where the model and the report go (default: runs/quickstart); if a run exists there, it is resumed"
    exit 0 ;;
  -*) echo "quickstart.sh: unknown argument $1 (see --help)" >&2; exit 2 ;;
esac
run=${1:+$(realpath -m "$1")}   # a relative folder is relative to the caller's working folder
cd "$(dirname "$0")/.."
run=${run:-runs/quickstart}
started=$SECONDS
phase() { printf '\n== %s (%d s since start)\n' "$1" $((SECONDS - started)); }

phase "1/4 set-up and build"
scripts/setup.sh --programs

phase "2/4 tokenizer: a small SentencePiece model on captions of the built-in shapes"
mkdir -p "$run"
build/bin/tessera-data train-sentencepiece --source shapes --vocab-size 120 --out "$run/shapes.model"

phase "3/4 training SPARC on shapes"
build/bin/trainer --config configs/shapes/sparc.yaml --set "run.folder=$run" --set "tokenizer.model=$run/shapes.model" --resume auto

phase "4/4 evaluation: zero-shot, retrieval, segmentation by patches"
build/bin/evaluate --checkpoint "$run" --suite configs/suites/shapes.yaml --out "$run/evaluation" --overwrite

phase "done"
echo "report with images: $(realpath "$run")/evaluation/report.html"
