#!/usr/bin/env bash
# Runs all checks and measurements that need an NVIDIA GPU. Each stage takes less than ten minutes and can be run separately.
set -uo pipefail

usage() {
  cat <<'EOT'
usage: scripts/gpu/check.sh [--dry-run] [STAGE...]     runs the named stages; by default all of them but speed, in this order:
  probe     describes the machine and checks that the programs start
  build     builds the core's programs for this GPU in build-gpu/; does nothing with a bundle
  test      kernels, operators, attention, recorded steps and NCCL on the GPU; a skipped test counts as failed
  sanitize  compute-sanitizer's memcheck, racecheck, synccheck and initcheck on the kernels' tests
  bench     kernels and losses; kernels compared with eager and compiled PyTorch; AdamW compared with PyTorch's; a profile of one kernel
  step      training steps, compared with OpenCLIP's eager and compiled ones
  speed     the kernels and the step whose speed docs/benchmarks.md predicts; the most important measurements of bench and step in one stage
  train     the trainer with all configurations of shapes, compared with the CPU; interrupted runs, which resume (needs a bundle)
usage: scripts/gpu/check.sh --pack DIR                 on a machine with a network: downloads OpenCLIP for Python and the Debian packages of a
                                                       build into DIR, for a machine without a network
  --dry-run  print the stages' commands with their limits in seconds, but run nothing

Writes OUT/summary.md (under 12,000 characters) and OUT/report.tar.gz (all logs, tables and JSON) after every stage. If a stage
fails, the others still run. Exit code: 0 if everything passed, 1 if something failed, 2 if nothing can run here. Missing tools are
named in the summary and do not count as failures.

Needs LibTorch (python3's torch, or the folder CMAKE_PREFIX_PATH) and either a bundle or nvcc, cmake and ninja. Environment:
  OUT                 where the reports go (default: build-gpu/out)
  TESSERA_GPU_BUNDLE  the folder that scripts/gpu/bundle.sh wrote into; for GPUs of compute capability 8.0 and higher
  TESSERA_PACKAGES    a folder made by --pack
EOT
}
die() { echo "gpu_check: $*" >&2; exit 2; }

known=(probe build test sanitize bench step speed train)
stages=() dry=no
while (($# > 0)); do
  case $1 in
    --dry-run) dry=yes ;;
    --pack) pack=${2:?"usage: scripts/gpu/check.sh --pack DIR"}; shift ;;
    -h | --help) usage; exit 0 ;;
    *) [[ " ${known[*]} " == *" $1 "* ]] || die "no stage $1; there are: ${known[*]}"
       stages+=("$1") ;;
  esac
  shift
done
((${#stages[@]} > 0)) || stages=(probe build test sanitize bench step train)

if [[ -n "${pack:-}" ]]; then
  mkdir -p "$pack" && cd "$pack" || exit
  apt-get download nlohmann-json3-dev libcli11-dev libspdlog-dev libfmt-dev libfmt9 libspdlog1.10 libyaml-cpp-dev libyaml-cpp0.7 \
    libgtest-dev googletest ninja-build libgloo-dev libjs-dygraphs &&
    python3 -m pip download --no-deps --only-binary=:all: open_clip_torch ftfy wcwidth
  exit
fi

# Relative folders are relative to the caller's working folder.
for name in OUT TESSERA_GPU_BUNDLE TESSERA_PACKAGES; do
  [[ -z "${!name:-}" ]] || printf -v "$name" %s "$(realpath -m "${!name}")"
done
cd "$(dirname "$0")/../.." || exit
# shellcheck source=scripts/gpu/cuda_toolkit.sh
. scripts/gpu/cuda_toolkit.sh

build=$PWD/build-gpu
report=$build/report
out=${OUT:-$build/out}

# ---- pieces of a stage

# seconds_left SECONDS: prints the time limit of a piece, which is SECONDS or the time that the stage has left, whichever is less.
seconds_left() {
  local left=$((stage_end - SECONDS))
  echo $(($1 < left ? $1 : left))
}

row() {  # row PIECE RESULT SECONDS
  local result=${2//|//}
  echo "| $stage | $1 | ${result:0:200} | $3 |" >>"$folder/rows.md"
  echo "   $1: $2 ($3 s)"
}

# section TITLE: adds its standard input to the summary under this title.
section() {
  { printf '\n### %s: %s\n\n' "$stage" "$1"; cat -s; } >>"$folder/sections.md"
}

# piece NAME SECONDS COMMAND...: runs COMMAND as one piece of the stage, with its output in NAME.log. If COMMAND exits with 77, something
# that it needs is not available. Returns 0 only if COMMAND succeeds. With of_gpu=yes, COMMAND is a test program, and the piece also fails
# if no test runs or if a test is skipped.
piece() {
  local name=$1 limit=$2 log=$folder/$1.log start=$SECONDS code=0 result=passed
  shift 2
  if [[ $dry == yes ]]; then
    printf '  %-20s %3d s ' "$name" "$limit"
    for word; do [[ $word =~ ^[[:alnum:]_./:,=-]+$ ]] && printf ' %s' "$word" || printf " '%s'" "$word"; done
    echo
    return 1
  fi
  limit=$(seconds_left "$limit")
  if ((limit < 1)); then
    row "$name" "**not run**: the stage's time was up" 0
    failed+=("$stage/$name")
    return 1
  fi
  timeout --kill-after=5 "$limit" "$@" >"$log" 2>&1 || code=$?
  case $code in
    0) [[ ${of_gpu:-no} == no ]] || { grep -q '^\[  PASSED  \] [1-9]' "$log" && ! grep -q '^\[  SKIPPED \]' "$log"; } ||
         result="**failed**: no test ran, or some were skipped" ;;
    77) result="not available: $(tail -n 1 "$log")" ;;
    124 | 137) result="**stopped** at its limit of $limit s" ;;
    *) result="**failed** with exit code $code" ;;
  esac
  row "$name" "$result" $((SECONDS - start))
  [[ $result != passed ]] || return 0
  [[ $result == \** ]] || return 1
  tail -n 25 "$log" | cut -c 1-300 | section "the end of $name.log"
  failed+=("$stage/$name")
  return 1
}

# table NAME SECONDS COMMAND...: runs COMMAND as one piece of the stage, and adds the tables that COMMAND prints to the summary.
table() {
  ! piece "$@" || grep -vE 'Warning|warnings\.warn|^[WI][0-9]{4} ' "$folder/$1.log" | section "$1"
}

tests() {  # tests NAME SECONDS PROGRAM FILTER
  ! of_gpu=yes piece "$1" "$2" "${run[@]}" "$programs/tests/$3" "--gtest_filter=$4" ||
    ! grep -q '^|' "$folder/$1.log" || grep '^|' "$folder/$1.log" | section "$1"
}

# available TOOL COMMAND...: checks that the tool exists and that COMMAND, which uses the tool, works. The result is remembered.
available() {
  local tool=$1 note=$build/tools/$1
  shift
  [[ $dry == no ]] || return 0
  if [[ ! -e $note ]]; then
    mkdir -p "$build/tools"
    if ! command -v "$tool" >/dev/null; then
      echo "not on the PATH" >"$note"
    elif timeout --kill-after=5 "$(seconds_left 60)" "$@" >"$note.log" 2>&1; then
      echo works >"$note"
    else
      { grep . "$note.log" || echo "ran past its limit"; } | tail -n 1 >"$note"
    fi
  fi
  [[ $(<"$note") == works ]] || { row "$tool" "not available: $(<"$note")" 0; return 1; }
}

# Checks that the first loss on a CPU and on a GPU is the same, for the same model and batch.
same_first_loss() {
  local cpu gpu
  cpu=$("$@" --device cpu </dev/null) && gpu=$("$@" --device cuda </dev/null) || return
  echo "CPU $cpu, GPU $gpu"
  awk -v a="$cpu" -v b="$gpu" 'BEGIN {d = a - b; exit !(d < 1e-3 && d > -1e-3)}'
}

describe_machine() {
  nvidia-smi --query-gpu=name,driver_version,compute_cap,memory.total,clocks.max.sm --format=csv,noheader
  echo "$(uname -sr), $(nproc) cores, $(awk '/MemTotal/ {print int($2 / 1048576)}' /proc/meminfo) GB"
  ldd --version | head -n 1
  for tool in nvcc cmake ninja compute-sanitizer ncu nsys; do
    echo "$tool: $("$tool" --version 2>/dev/null | grep -iE 'version|release|^[0-9]' | tail -n 1 || true)"
  done
  python3 - <<'EOT'
import importlib
import sys
print("python", sys.version.split()[0])
for name in ("torch", "triton", "open_clip", "torchvision", "safetensors"):
    try:
        print(name, importlib.import_module(name).__version__)
    except Exception as error:
        print(name, "not available:", error)
EOT
}
export -f same_first_loss describe_machine

# ---- where programs, LibTorch and CUDA are

# Sets `programs` to the folder that contains bin/, tests/ and lib/. Sets `run` to the prefix of commands that start these programs.
choose_programs() {
  programs=$build run=(env)
  [[ -n "${TESSERA_GPU_BUNDLE:-}" ]] || return 0
  local bundle=$build/bundle/gpu_bundle
  if [[ $dry == no ]]; then
    if ((capability < 80)); then
      echo "gpu_check: the bundle is for compute capability 8.0 and higher, but this GPU has $capability"
      return
    fi
    mkdir -p "$build/bundle"
    local archive=$TESSERA_GPU_BUNDLE/gpu_bundle.tar.xz
    [[ -e $archive ]] || die "$TESSERA_GPU_BUNDLE holds no gpu_bundle.tar.xz"
    # If tar cannot read xz, Python unpacks the archive.
    tar -C "$build/bundle" -xf "$archive" 2>/dev/null || python3 -m tarfile -e "$archive" "$build/bundle" 2>/dev/null ||
      die "$archive cannot be unpacked"
    if ! "$bundle/run.sh" "$bundle/tests/ops_tests" --gtest_list_tests >"$build/bundle/start.log" 2>&1; then
      echo "gpu_check: the bundle does not start here: $(tail -n 1 "$build/bundle/start.log")"
      return
    fi
  fi
  programs=$bundle run=("$bundle/run.sh")
}

# Sets `torch` to LibTorch's folder, and puts the packages from TESSERA_PACKAGES on the search paths.
choose_packages() {
  torch=${CMAKE_PREFIX_PATH:-$(python3 -c 'import importlib.util; print(*importlib.util.find_spec("torch").submodule_search_locations)' 2>/dev/null)}
  torch=${torch%/share/cmake}
  prefix=
  [[ $dry == no ]] || torch=${torch:-LIBTORCH}
  if [[ $dry == no ]]; then
    [[ -e $torch/lib/libtorch.so ]] || die "no LibTorch: install torch for python3, or set CMAKE_PREFIX_PATH to its folder"
    if [[ -n "${TESSERA_PACKAGES:-}" && ! -e $build/packages ]]; then
      for package in "$TESSERA_PACKAGES"/*.deb; do dpkg -x "$package" "$build/packages"; done
      python3 -m pip install --quiet --no-index --no-deps --target "$build/packages/python" "$TESSERA_PACKAGES"/*.whl ||
        echo "gpu_check: the Python packages in $TESSERA_PACKAGES cannot be installed"
    fi
    [[ -z "${TESSERA_PACKAGES:-}" ]] || prefix=$build/packages
  fi
  export CMAKE_PREFIX_PATH=$torch
  [[ -z $prefix ]] || export PATH=$prefix/usr/bin:$PATH PYTHONPATH=$prefix/python:${PYTHONPATH:-} \
    LD_LIBRARY_PATH=$prefix/usr/lib/x86_64-linux-gnu:${LD_LIBRARY_PATH:-}
}

# Sets `toolkit` to CUDA's folder, or sets `problem` to the reason why nothing can be built.
choose_toolkit() {
  local tool
  toolkit=$(system_toolkit 13) problem=''
  [[ $dry == no ]] || return 0
  [[ -n $toolkit ]] || problem="no nvcc of CUDA 13"
  for tool in cmake ninja; do command -v "$tool" >/dev/null || problem="no $tool"; done
  [[ -z $problem && ! -e $toolkit/include/cublas_v2.h ]] || return 0
  joined_toolkit "$toolkit" "$(dirname "$torch")" 13 "$build/toolkit" || problem="no cuBLAS headers in $toolkit or next to $torch"
  toolkit=$build/toolkit
}

# ---- the stages; the time limits of a stage's pieces add up to no more than the stage's time limit

declare -A seconds=([probe]=120 [build]=570 [test]=550 [sanitize]=570 [bench]=570 [step]=570 [speed]=585 [train]=420)

stage_probe() {
  ! piece machine 60 bash -c describe_machine || section machine <"$folder/machine.log"
  piece programs 60 "${run[@]}" "$programs/bin/tessera-bench" --help
}

stage_build() {
  if [[ $programs != "$build" ]]; then
    [[ $dry == yes ]] || row bundle "nothing to build: the bundle is of commit $(<"$programs/commit")" 0
    return
  fi
  choose_toolkit
  [[ -z $problem ]] || { row toolkit "**failed**: $problem" 0; failed+=(build/toolkit); return; }
  export CUDACXX=$toolkit/bin/nvcc CUDA_HOME=$toolkit CUDA_PATH=$toolkit
  local configure=(-DCMAKE_BUILD_TYPE=Release -DCMAKE_UNITY_BUILD=ON -DTESSERA_WITH_DATA=OFF "-DTESSERA_CUDA_ARCHITECTURES=$capability"
                   "-DCMAKE_PREFIX_PATH=${prefix:+$prefix/usr;}$torch" "-DCUDAToolkit_ROOT=$toolkit" "-DCUDA_TOOLKIT_ROOT_DIR=$toolkit")
  piece configure 120 cmake -S . -B "$build" -G Ninja "${configure[@]}" || [[ $dry == yes ]] || return
  piece compile 450 cmake --build "$build" --target kernels_tests ops_tests models_tests step_tests nccl_tests tessera-bench tessera_ops
}

stage_test() {
  tests kernels 150 kernels_tests '*/cuda'
  tests operators 90 ops_tests '*OnGpu*:*OnAGpu*:*/cuda'
  tests attention 60 models_tests '*OnAGpu*:*/cuda'
  tests steps 70 step_tests '*OnAGpu*'
  tests nccl 90 nccl_tests '*'
  piece python_operators 90 "${run[@]}" python3 tests/ops/python_operators_test.py "$programs/lib/libtessera_ops.so"
}

stage_sanitize() {
  local tool kernels=$programs/tests/kernels_tests
  # Together, these few tests reach every kernel. More tests would take too long, because the tools of compute-sanitizer slow tests down a
  # hundredfold.
  local filter='*Definition*/cuda:*IsNeverRead*/cuda:*RowsMayBeFarther*/cuda:-*SizesOfTraining*'
  available compute-sanitizer "${run[@]}" compute-sanitizer "$kernels" '--gtest_filter=*RankWithoutRows*/cuda' || return
  for tool in memcheck racecheck synccheck initcheck; do
    piece "$tool" 140 "${run[@]}" compute-sanitizer --tool "$tool" --error-exitcode 9 "$kernels" "--gtest_filter=$filter"
  done
}

stage_bench() {
  local bench=$programs/bin/tessera-bench
  table kernels 110 "${run[@]}" "$bench" kernels --device cuda --quiet --time-limit 3 --json "$folder/kernels.json"
  table beside_pytorch 200 "${run[@]}" python3 scripts/compare/kernels_gpu.py --library "$programs/lib/libtessera_ops.so" \
    --json "$folder/beside_pytorch.json"
  # Batch sizes grow beyond what fits on the GPU. The table marks where an objective does not fit.
  table loss 110 "${run[@]}" "$bench" loss --device cuda --quiet --time-limit 3 --dtype bfloat16 --model configs/sparc/vitb16.yaml \
    --batch-sizes 64 256 1024 4096 --plot "$folder/loss.html" --json "$folder/loss.json"
  table adamw 50 "${run[@]}" python3 scripts/compare/adamw.py --device cuda --bench "$bench"
  local kernel=("$bench" kernels --device cuda --quiet --repeats 1 --dtypes bfloat16 --sparsify-group 1024x76x196x512)
  local ncu=("${run[@]}" ncu --clock-control none --kernel-name regex:sparsify_group)
  available ncu "${ncu[@]}" --launch-count 1 "${kernel[@]}" || return
  ! piece ncu 90 "${ncu[@]}" --launch-count 4 --set detailed "${kernel[@]}" ||
    grep -E '^ +sparsify_group|Duration|(Memory|DRAM|\(SM\)) Throughput|Registers Per|Achieved Occupancy' "$folder/ncu.log" | section ncu
}

stage_step() {
  local bench=("${run[@]}" "$programs/bin/tessera-bench" step)
  local many=(--device cuda --dtype bfloat16 --caption-lengths coco --repeats 7 --phases --operators 10 --quiet)
  local beside=("${run[@]}" python3 scripts/compare/step.py --bench "$programs/bin/tessera-bench" --device cuda --dtype bfloat16
                --model ViT-B-16 --config openclip_vitb16 --compile --repetitions 5)
  piece first_loss 60 bash -c 'same_first_loss "$@"' _ "${bench[@]}" openclip_vitb32 --batch-size 8 --on-demand
  # OpenCLIP's step takes more than 40 GB with 512 pairs. 1,024 pairs could take twice as much, so they need a GPU of over 100,000 MiB.
  local large=1024
  ((${memory:-0} > 100000)) || large=512
  table "clip_$large" 70 "${bench[@]}" clip_vitb16 --batch-size "$large" "${many[@]}" --recorded --json "$folder/clip_$large.json" \
    --trace "$folder/clip_$large.trace.json"
  table "sparc_$large" 60 "${bench[@]}" sparc_vitb16 --batch-size "$large" "${many[@]}" --json "$folder/sparc_$large.json"
  table clip_256 40 "${bench[@]}" clip_vitb16 --batch-size 256 "${many[@]}" --recorded --json "$folder/clip_256.json"
  table "beside_openclip_$large" 200 "${beside[@]}" --batch-size "$large"
  table beside_openclip_256 140 "${beside[@]}" --batch-size 256 --recorded
}

# part COMMAND...: runs a piece of the stage and writes the reports, so that the results are there even if the stage does not end.
part() {
  "$@"
  [[ $dry == yes ]] || write_reports
}

# offers WORD PROGRAM...: whether the program's help contains the word. In a dry run, every program offers everything.
offers() {
  local word=$1 help
  shift
  [[ $dry == no ]] || return 0
  help=$("$@" --help 2>/dev/null)
  grep -qwe "$word" <<<"$help"
}

# The parts are in the order of their importance, in case that the time does not suffice.
stage_speed() {
  local bench=("${run[@]}" "$programs/bin/tessera-bench") python=("${run[@]}" python3)
  local device=(--device cuda --quiet) pairs=(--device cuda --dtype bfloat16 --batch-size 512)
  part table ceilings 10 "${bench[@]}" kernels "${device[@]}" --ceilings --time-limit 1 --json "$folder/ceilings.json"
  part tests products 15 ops_tests 'LinearMap.OnAGpu*'
  local correct=(SparsifyGroup HopperProducts FlopsRegularizer ResidualNorm Activation AdamW TokenContrast Attention TokenMaxProjection
                 MaxSimilarity)
  part tests correct 65 kernels_tests "$(printf '*/%s*/cuda:' "${correct[@]}")"
  if offers tune "${bench[@]}"; then
    part piece tune 120 "${bench[@]}" tune --device cuda --json "$folder/tuning.json"
    [[ ! -s $folder/tuning.json ]] || local -x TESSERA_TUNING=$folder/tuning.json  # for the parts that follow
  else
    row tune "not available: tessera-bench has no command tune" 0
  fi
  part table token_contrast 10 "${bench[@]}" kernels "${device[@]}" --time-limit 1 --token-contrast 1024x55x512 1024x76x512 \
    --json "$folder/token_contrast.json"
  local beside_pytorch=("${python[@]}" scripts/compare/kernels_gpu.py --library "$programs/lib/libtessera_ops.so" --recorded --operators)
  part table kernels 60 "${beside_pytorch[@]}" sparsify_group flops_regularizer flops_regularizer_written flops_regularizer_added \
    --json "$folder/kernels.json"
  part table other_kernels 35 "${beside_pytorch[@]}" linear_cross_entropy linear_soft_cross_entropy token_max_projection max_similarity --dtypes bfloat16 \
    --json "$folder/other_kernels.json"
  local step=("${python[@]}" scripts/compare/step.py --bench "$programs/bin/tessera-bench" "${pairs[@]}" --model ViT-B-16
              --config openclip_vitb16 --compile --repetitions 5)
  part table linear_map 10 "${bench[@]}" kernels "${device[@]}" --dtypes bfloat16 --linear-map 100864x768x3072 --time-limit 0.5 \
    --json "$folder/linear_map.json"
  part table step_coco 85 "${step[@]}" --captions coco
  part table step_full 55 "${step[@]}" --captions full
  local ledger=("${pairs[@]}" --caption-lengths coco --repeats 5 --phases --operators 30 --quiet) narrow=$folder/residual_bfloat16.yaml
  part table ledger 25 "${bench[@]}" step openclip_vitb16 "${ledger[@]}" --json "$folder/ledger.json"
  [[ $dry == yes ]] || printf 'extends: %s\ntraining: {residual: bfloat16}\n' "$PWD/configs/openclip/vitb16.yaml" >"$narrow"
  part table ledger_bfloat16 25 "${bench[@]}" step "$narrow" "${ledger[@]}" --json "$folder/ledger_bfloat16.json"
  part table update 10 "${bench[@]}" kernels "${device[@]}" --adamw 300x500000 --dtypes float32 --repeats 5 --time-limit 1 --json "$folder/update.json"
  local kernel=("${bench[@]:${#run[@]}}" kernels "${device[@]}" --repeats 1 --dtypes bfloat16 --sparsify-group 1024x55x196x512
                --flops-regularizer 8192x30522)
  local ncu=("${run[@]}" ncu --clock-control none --kernel-name 'regex:sparsify_group|sum_columns|write_gradient|residual_norm')
  available ncu "${ncu[@]}" --launch-count 1 "${kernel[@]}" || return
  ! piece ncu 60 "${ncu[@]}" --launch-count 12 --set detailed "${kernel[@]}" ||
    grep -E '^ +[a-z_]+.*\(|Duration|(Memory|DRAM|\(SM\)) Throughput|L2 Hit Rate|Registers Per|Achieved Occupancy' "$folder/ncu.log" |
      section ncu
}

stage_train() {
  [[ $programs != "$build" ]] || { [[ $dry == yes ]] || row trainer "not available: only a bundle has it" 0; return; }
  local trainer=$programs/bin/trainer
  table devices 240 "${run[@]}" python3 scripts/gpu/compare_devices.py --trainer "$trainer"
  piece resume 180 "${run[@]}" python3 scripts/check/kill_test.py --only kill9,sigterm --kills 5 --device cuda --trainer "$trainer"
}

# ---- reports

# The summary has rows for every stage that has run in this folder so far, but tables only for the stages of this call.
write_reports() {
  local name left share
  mkdir -p "$out"
  {
    echo "# Tessera on $gpu"
    printf '\nCommit %s, %s.\n\n' "$(git describe --always --dirty 2>/dev/null || cat "$programs/commit" 2>/dev/null)" "$(date -u '+%F %R UTC')"
    printf '| stage | piece | result | s |\n| --- | --- | --- | ---: |\n'
    for name in "${known[@]}"; do cat "$report/$name/rows.md" 2>/dev/null; done
  } >"$report/summary.md"
  left=${#stages[@]}
  for name in "${stages[@]}"; do
    share=$(((11500 - $(wc -c <"$report/summary.md")) / left--))
    [[ ! -e $report/$name/sections.md ]] || LC_ALL=C awk -v room="$share" '
      {room -= length($0) + 1}
      room < 0 {print "\n(The rest is in the archive.)"; exit}
      {print}' "$report/$name/sections.md" >>"$report/summary.md"
  done
  cp "$report/summary.md" "$out/"
  tar -C "$build" -czf "$out/report.tar.gz" report
}

gpu=none capability=90
if [[ $dry == no ]]; then
  command -v nvidia-smi >/dev/null || die "no nvidia-smi on the PATH: this is for machines with an NVIDIA GPU"
  gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)
  memory=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | head -n 1)  # MiB
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d '. ')
  mkdir -p "$report"
fi
choose_packages
choose_programs
failed=()
for stage in "${stages[@]}"; do
  stage_end=$((SECONDS + seconds[$stage])) folder=$report/$stage
  if [[ $dry == yes ]]; then
    echo "$stage: ${seconds[$stage]} s"
    "stage_$stage"
    continue
  fi
  echo "== $stage"
  rm -rf "$folder"
  mkdir -p "$folder"
  "stage_$stage"
  write_reports
done
[[ $dry == no ]] || exit 0
echo "gpu_check: $SECONDS s, reports in $out"
((${#failed[@]} == 0)) || { echo "gpu_check: FAILED: ${failed[*]}"; exit 1; }
echo "gpu_check: all passed"
