#!/usr/bin/env bash
# Checks on a machine with a GPU all that needs one, in under ten minutes: builds the core, runs the kernels' tests on the
# device, compute-sanitizer (memcheck, racecheck) over them, the tests of the torch operators and of CUDA graphs on the
# device, and the tables of tessera-bench. Exit 0 only if every stage passed.
#
#   scripts/gpu_check.sh            everything; logs, tables and JSON go to $OUT, or build-gpu/report
#   scripts/gpu_check.sh --pack DIR on a Debian machine with a network: downloads into DIR the packages that a GPU machine
#                                   without one may lack (GoogleTest, yaml-cpp, CLI11, spdlog, ...), a few megabytes
#
# Needs there: nvcc, cmake, ninja and LibTorch (CMAKE_PREFIX_PATH, or a python3 that has torch). Environment:
#   TESSERA_DEB_DIR       a folder made by --pack; its packages are unpacked into build-gpu/packages and used from there
#   TESSERA_DEPS_PREFIX   a prefix where the packages are already unpacked
#   CMAKE_PREFIX_PATH     where LibTorch is, if not beside python3's torch
set -uo pipefail
cd "$(dirname "$0")/.."

packages=(nlohmann-json3-dev libcli11-dev libspdlog-dev libfmt-dev libfmt9 libspdlog1.10 libyaml-cpp-dev libyaml-cpp0.7
          libgtest-dev googletest ninja-build libgloo-dev)

if [[ "${1:-}" == "--pack" ]]; then
  folder=${2:?"usage: scripts/gpu_check.sh --pack DIR"}
  mkdir -p "$folder" && cd "$folder" && exec apt-get download "${packages[@]}"
fi

build=build-gpu
report=${OUT:-$build/report}
mkdir -p "$build" "$report"
started=$SECONDS
failed=()

stage() {  # stage NAME SECONDS COMMAND...: runs, logs, remembers a failure
  local name=$1 limit=$2 start=$SECONDS
  shift 2
  echo "== $name"
  if timeout "$limit" "$@" >"$report/$name.log" 2>&1; then
    echo "   passed in $((SECONDS - start)) s"
    return 0
  fi
  echo "   FAILED after $((SECONDS - start)) s; the end of $report/$name.log:"
  tail -n 25 "$report/$name.log" | sed 's/^/   | /'
  failed+=("$name")
  return 1
}

gpu_tests() {  # COMMAND...: runs the tests on the device; none at all is a failure
  "$@" "--gtest_filter=$filter" && "$tests" --gtest_list_tests "--gtest_filter=$filter" | grep -q cuda ||
    { echo "tests failed, or found no GPU"; return 1; }
}
operator_tests() {  # tests of operators and of the recorded step skip without a GPU: here a skipped one is a failure
  local log status=0 program
  log=$(for program in ops_tests optimizer_tests; do
    "$build/tests/$program" "--gtest_filter=*OnGpu*:*OnAGpu*" 2>&1 || exit
  done) || status=1
  echo "$log"
  [[ "$log" != *SKIPPED* ]] || { echo "LibTorch found no GPU"; return 1; }
  return "$status"
}
export -f gpu_tests operator_tests

need() {
  command -v "$1" >/dev/null || { echo "gpu_check: $1 is not on the PATH: $2" >&2; exit 2; }
}
need nvidia-smi "run this on a machine with an NVIDIA GPU"
need nvcc "install the CUDA toolkit 13.0, or put its bin folder on the PATH"
need cmake "install cmake 3.25 or later"
nvidia-smi --query-gpu=name,driver_version,compute_cap,memory.total --format=csv,noheader | tee "$report/gpu.txt"
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d '. ')

prefix=${TESSERA_DEPS_PREFIX:-}
if [[ -n "${TESSERA_DEB_DIR:-}" ]]; then
  prefix=$PWD/$build/packages
  mkdir -p "$prefix"
  for package in "$TESSERA_DEB_DIR"/*.deb; do dpkg -x "$package" "$prefix"; done
fi
[[ -z "$prefix" ]] || { prefix=$prefix/usr; export PATH=$prefix/bin:$PATH
                        export LD_LIBRARY_PATH=$prefix/lib/x86_64-linux-gnu:${LD_LIBRARY_PATH:-}; }
need ninja "install ninja-build"
torch=${CMAKE_PREFIX_PATH:-$(python3 -c 'import torch; print(torch.utils.cmake_prefix_path)')}
[[ -n "$torch" ]] || { echo "gpu_check: no LibTorch: set CMAKE_PREFIX_PATH, or install torch for python3" >&2; exit 2; }

# No data libraries, one architecture: this machine's.
if stage configure 120 cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTESSERA_WITH_DATA=OFF \
     "-DTESSERA_CUDA_ARCHITECTURES=$capability" "-DCMAKE_PREFIX_PATH=$prefix;$torch" &&
   stage build 300 cmake --build "$build" --target kernels_tests ops_tests optimizer_tests tessera-bench; then
  export build tests=$build/tests/kernels_tests
  export filter='*/cuda'
  stage tests 120 bash -c 'gpu_tests "$tests"' && tail -n 2 "$report/tests.log"
  stage operators 60 bash -c 'operator_tests' && tail -n 1 "$report/operators.log"
  # The tests that together reach every kernel; the sanitizer slows them down a hundredfold.
  filter='*EqualsTheDefinition*/cuda:*PaddingIsNeverRead*/cuda:*RowsMayBeFarther*/cuda:*FlopsRegularizer.*/cuda'
  if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
      stage "$tool" 100 bash -c "gpu_tests compute-sanitizer --tool $tool --error-exitcode 9 \$tests"
    done
  else
    echo "== memcheck, racecheck: no compute-sanitizer on the PATH, left out"
    failed+=(compute-sanitizer)
  fi
  bench=$build/bin/tessera-bench
  stage kernels 100 "$bench" kernels --device cuda --quiet --time-limit 3 --json "$report/kernels.json" &&
    cat "$report/kernels.log"
  # As many pairs as the GPU holds; objectives that stop fitting are marked.
  stage loss 150 "$bench" loss --device cuda --quiet --time-limit 3 --dtype bfloat16 --model configs/sparc_vitb16.yaml \
    --batch-sizes 16 64 256 1024 2048 4096 --plot "$report/loss.svg" --json "$report/loss.json" && cat "$report/loss.log"
fi

echo "gpu_check: $((SECONDS - started)) s, reports in $report"
if ((${#failed[@]} > 0)); then
  echo "gpu_check: FAILED: ${failed[*]}"
  exit 1
fi
echo "gpu_check: all passed"
