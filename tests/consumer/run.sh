#!/usr/bin/env bash
# Installs the build into a fresh folder, and builds this project against the installed files as the README says. Then runs this project and
# the installed trainer. usage: run.sh BUILD_DIR TORCH
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd) build_dir=$1 torch=$2
unset CMAKE_PREFIX_PATH CUDACXX CUDA_HOME CUDA_PATH
work=$(readlink -f "$(mktemp -d "$build_dir/consumer.XXXXXX")")
trap 'rm -rf "$work"' EXIT
fail() { echo "consumer: $*" >&2; exit 1; }
configure() {  # usage: configure PROJECT BUILD_DIR PREFIX_PATH
  cmake -S "$1" -B "$2" --fresh -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$3" >"$work/log" 2>&1 ||
    { cat "$work/log"; fail "find_package(Tessera) failed"; }
}

# A project cannot link the build folder; the error must say how to install Tessera.
cmake -S "$here" -B "$work/build" --fresh -G Ninja -DCMAKE_PREFIX_PATH="$build_dir" >"$work/log" 2>&1 && fail "the build folder was linked"
tr -s '\n ' ' ' <"$work/log" | grep -q "install it (cmake --install " || { cat "$work/log"; fail "the error does not say to install"; }

cmake --install "$build_dir" --prefix "$work/prefix" >/dev/null

# A LibTorch that the project names takes precedence over the one that Tessera was built with.
ln -s "$torch" "$work/torch"
configure "$here" "$work/build" "$work/prefix;$work/torch"
grep -q "^Torch_DIR:.*=$work/torch/" "$work/build/CMakeCache.txt" || fail "CMAKE_PREFIX_PATH did not decide which LibTorch is taken"

configure "$here" "$work/build" "$work/prefix"
ninja -C "$work/build"
"$work/build/consumer"

# An installed program finds the installed configurations, not those of the source tree.
cd "$work"
prefix/bin/trainer --list-configs >listed
grep -q "^in $work/prefix/share/tessera/configs," listed || fail "the installed trainer does not list the installed configurations"
[ -x prefix/share/tessera/scripts/log_to_wandb.py ] || fail "the script that trainer --from-open-clip names is not installed"
prefix/bin/trainer --config shapes_clip --print-config >printed
grep -q "model: .*$work/prefix/share/tessera/configs/vocabularies" printed ||
  fail "an installed configuration does not lead to the installed vocabulary"

# Builds the installed example of docs/own_objective.md, checks its gradients, and trains it with one process and with two.
example=$work/prefix/share/tessera/docs/examples/own_objective
configure "$example" "$work/own" "$work/prefix"
ninja -C "$work/own"
ctest --test-dir "$work/own" --output-on-failure
own() {  # usage: own PROGRAM FOLDER BATCH_SIZE OPTION...
  "$work/own/$1" --config "$example/nearest_patch.yaml" --set run.folder="$2" --set data.loader.batch_size="$3" \
    --set data.train.size=64 --set data.validation.size=16 --set training.steps=1 --set log.every_steps=1 --set log.peak_tflops=0.1 "${@:4}" >"$2.log" 2>&1 ||
    { cat "$2.log"; fail "the objective of docs/own_objective.md does not train"; }
  grep -o '"loss[a-z_]*": *[0-9.]\{5\}' "$2/metrics.jsonl" >"$2.losses"
}
own own_trainer one 16
own own_trainer two 8 --nproc 2
grep -q loss_words one.losses || fail "metrics.jsonl lacks the objective's own term"
cmp one.losses two.losses || fail "two ranks have different losses than one"
own margin_trainer margin_one 16 --set objective=margin objective.margin=0.1
own margin_trainer margin_two 8 --set objective=margin objective.margin=0.1 --nproc 2
cmp margin_one.losses margin_two.losses || fail "two ranks have a different hinge loss than one"
own classify_trainer classify 16 --set objective=classify
