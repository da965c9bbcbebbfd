#!/usr/bin/env bash
# Packs everything that checks and measures Tessera on a machine with a GPU, so that nothing has to be built there: the wheel's programs,
# the tests that need a GPU, and the libraries they need, about 30 megabytes.
set -euo pipefail

usage() {
  cat <<'EOT'
usage: scripts/gpu/bundle.sh OUT [--jobs N]
  OUT       the folder to write gpu_bundle.tar.xz into
  --jobs N  compiler processes (default: one per core)
Builds the wheel (scripts/build_wheel.sh, on Debian 12) and the tests in build/, and packs them. The GPU machine needs a GPU of compute
capability 8.0 or higher and LibTorch of the same version with its CUDA libraries, for example python3's torch, but no compiler and no
other package:
  TESSERA_GPU_BUNDLE=OUT scripts/gpu/check.sh              # all stages, with this repository
  tar xf gpu_bundle.tar.xz && gpu_bundle/run.sh ./tests/kernels_tests
EOT
}

out='' jobs=$(nproc)
while [ $# -gt 0 ]; do
  case $1 in
    --jobs) jobs=${2:?--jobs needs a number}; shift ;;
    -h|--help) usage; exit 0 ;;
    -*) echo "bundle.sh: unknown argument $1 (see --help)" >&2; exit 2 ;;
    *) out=$1 ;;
  esac
  shift
done
[ -n "$out" ] || { usage >&2; exit 2; }
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$(dirname "$0")/../.."

build=build
tests=(kernels_tests ops_tests models_tests step_tests nccl_tests)
scripts/build_wheel.sh "$build/wheel" --jobs "$jobs"
ninja -C "$build" -j "$jobs" "${tests[@]}"

# Prints the libraries of the Linux distribution that the programs need. Leaves out libraries that every Linux has, and libraries that come
# with LibTorch (including CUDA's).
libraries_of() {
  ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    grep -vE '/(libc|libm|libdl|librt|libpthread|libutil|libgcc_s|libstdc\+\+)\.so|/torch/lib/|/nvidia/|/cuda[^/]*/'
}

bundle=$build/gpu_bundle
rm -rf "$bundle"
mkdir -p "$bundle"/{tests,data/golden}
# The wheel's folder tessera/ has bin, lib, libexec and share.
cp -r "$build"/wheel/stage/tessera/{bin,lib,libexec,share} "$bundle/"
cp "${tests[@]/#/$build/tests/}" "$bundle/tests/"
strip "$bundle"/tests/*
libraries_of "$bundle"/tests/* | xargs -I{} cp -L {} "$bundle/lib/"
for system in encoders optim pyramidclip sparc sparo stair text_group; do
  cp -r "tests/data/golden/$system" "$bundle/data/golden/"
done
cp -r tests/data/foreign "$bundle/data/"
cp scripts/gpu/run_in_bundle.sh "$bundle/run.sh"
git describe --always --dirty >"$bundle/commit" 2>/dev/null || echo unknown >"$bundle/commit"

tar -C "$build" --sort=name --owner=0 --group=0 -c gpu_bundle | xz -T0 -9 >"$out/gpu_bundle.tar.xz"
newest() { objdump -T "$bundle"/{bin,tests,libexec/tessera}/* "$bundle"/lib/*.so* | grep -oE "$1_[0-9.]+" | sort -uV | tail -n 1; }
echo "== $out/gpu_bundle.tar.xz: $(($(stat -c %s "$out/gpu_bundle.tar.xz") / 1000)) kB; needs $(newest GLIBC), $(newest GLIBCXX)"
