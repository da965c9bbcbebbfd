#!/usr/bin/env bash
# Fuzzes the parsers of untrusted input with libFuzzer, AddressSanitizer, UndefinedBehaviorSanitizer and LeakSanitizer.
set -euo pipefail
cd "$(dirname "$0")/../.."

usage() {
  cat <<'EOT'
usage: scripts/check/fuzz.sh [--seconds N] [--build-only] [TARGET...]
  TARGET        annotations bucket config features image index listing model_file npy parquet paths pytorch request safetensors tar tokenizer tokenizer_json vocabulary yaml (default: all)
  --seconds N   how long each target runs (default: 60)
  --build-only  build, but run nothing
Inputs that break a target are kept as build-fuzz/crashes/TARGET-*, inputs that cover new code in build-fuzz/found/TARGET/. Prints one line
per target; the exit code is 1 if one broke. An input that takes 10 s or more than 4 GiB counts as a failure.
EOT
}
die() { printf 'fuzz.sh: %s\n' "$*" >&2; exit 2; }

seconds=60 run=yes targets=()
known=$(sed -n 's/^set(targets \(.*\))$/\1/p' tests/fuzz/CMakeLists.txt)
while [ $# -gt 0 ]; do
  case $1 in
    --seconds) seconds=${2:?--seconds needs a number}; shift ;;
    --build-only) run=no ;;
    -h|--help) usage; exit 0 ;;
    -*) die "unknown argument $1 (see --help)" ;;
    *) [[ " $known " == *" $1 "* ]] || die "no target $1; there are: $known"
       targets+=("$1") ;;
  esac
  shift
done
[ ${#targets[@]} -gt 0 ] || read -ra targets <<<"$known"

command -v clang++ >/dev/null || [ "$(id -u)" = 0 ] ||
  die "clang is missing: scripts/setup.sh --fuzz as root, or apt-get install clang libclang-rt-dev"
scripts/setup.sh --fuzz >/dev/null
for target in "${targets[@]}"; do
  case $target in config|model_file)
    [ -e build/src/libtessera_training.a ] || die "$target links the libraries in build/: run scripts/setup.sh first" ;;
  esac
done
ninja -C build-fuzz "${targets[@]/#/fuzz_}" | tail -n 1
[ "$run" = yes ] || exit 0

crashes=$PWD/build-fuzz/crashes
mkdir -p "$crashes"
export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=0:${ASAN_OPTIONS:-} UBSAN_OPTIONS=print_stacktrace=1 OMP_NUM_THREADS=1
failed=0
for target in "${targets[@]}"; do
  found=build-fuzz/found/$target log=build-fuzz/$target.log
  mkdir -p "$found"
  dictionary=tests/fuzz/dictionaries/$target.dict
  arguments=(-max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 -max_len=16384 -print_final_stats=1
             -artifact_prefix="$crashes/$target-")
  [ ! -e "$dictionary" ] || arguments+=(-dict="$dictionary")
  status=0
  "build-fuzz/bin/fuzz_$target" "${arguments[@]}" "$found" "tests/fuzz/corpus/$target" >"$log" 2>&1 || status=$?
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  coverage=$(grep -ao 'cov: [0-9]*' "$log" | tail -n 1 || true)
  outcome=ok
  if [ $status -ne 0 ]; then
    failed=1
    outcome="BROKEN: $(grep -aoE "$crashes/[^ ]*" "$log" | tail -n 1 || true) (see $log)"
  fi
  printf '%-12s %8s s  %12s executions  %-10s  %s\n' "$target" "$seconds" "${executions:-?}" "$coverage" "$outcome"
done
exit $failed
