#!/usr/bin/env bash
# Runs a command with the libraries, test data and programs of the bundle that contains this file (scripts/gpu/bundle.sh).
set -euo pipefail
case ${1:-} in
  -h|--help)
    echo "usage: gpu_bundle/run.sh COMMAND [ARGUMENT...]"
    echo "  gpu_bundle/run.sh ./tests/kernels_tests --gtest_filter='*/cuda'"
    echo "LibTorch comes from the folder CMAKE_PREFIX_PATH, or from python3's torch."
    exit 0 ;;
esac
bundle=$(cd "$(dirname "$0")" && pwd)
torch=${CMAKE_PREFIX_PATH:-$(python3 -c 'import importlib.util; print(*importlib.util.find_spec("torch").submodule_search_locations)')}
[ -e "$torch/lib/libtorch.so" ] || {
  echo "run.sh: no LibTorch in ${torch:-python3}: set CMAKE_PREFIX_PATH to its folder, which has lib/libtorch.so" >&2
  exit 2
}
# The LibTorch of a wheel finds CUDA's libraries in neighboring folders without help. Programs that link CUDA's libraries directly need the
# search path.
libraries=$bundle/lib:$torch/lib
for folder in "$torch"/../nvidia/*/lib; do libraries=$libraries:$folder; done
export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export TESSERA_TEST_DATA=$bundle/data TESSERA_OPS_LIBRARY=$bundle/lib/libtessera_ops.so
program=${1:?usage: run.sh COMMAND [ARGUMENT...]}
[ ! -x "$bundle/$program" ] || program=$bundle/$program
shift
exec "$program" "$@"
