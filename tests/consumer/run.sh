#!/usr/bin/env bash
# Installs the build into a fresh folder, builds this project against the installed files as the README says, and runs it and the
# installed trainer. usage: run.sh BUILD_DIR TORCH
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd) build_dir=$1 torch=$2
unset CMAKE_PREFIX_PATH CUDACXX CUDA_HOME CUDA_PATH
work=$(readlink -f "$(mktemp -d "$build_dir/consumer.XXXXXX")")
trap 'rm -rf "$work"' EXIT
fail() { echo "consumer: $*" >&2; exit 1; }
configure() {  # configure PREFIX_PATH
  cmake -S "$here" -B "$work/build" --fresh -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$1" >"$work/log" 2>&1 ||
    { cat "$work/log"; fail "find_package(Tessera) failed"; }
}

cmake --install "$build_dir" --prefix "$work/prefix" >/dev/null

# A LibTorch of the project's own wins over the one that Tessera was built with.
ln -s "$torch" "$work/torch"
configure "$work/prefix;$work/torch"
grep -q "^Torch_DIR:.*=$work/torch/" "$work/build/CMakeCache.txt" || fail "CMAKE_PREFIX_PATH did not decide which LibTorch is taken"

configure "$work/prefix"
ninja -C "$work/build"
"$work/build/consumer"

# The configurations that an installed program finds are the installed ones.
cd "$work"
prefix/bin/trainer --list-configs >listed
grep -q "^in $work/prefix/share/tessera/configs," listed || fail "the installed trainer lists others' configurations"
prefix/bin/trainer --config openclip_vitb32 --print-config >printed
grep -q "merges: .*$work/prefix/share/tessera/configs/vocabularies" printed ||
  fail "an installed configuration does not lead to the installed vocabulary"
