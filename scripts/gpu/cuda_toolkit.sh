# shellcheck shell=bash
# Functions for scripts/setup.sh and scripts/gpu/check.sh. They provide a CUDA toolkit with which CMake and LibTorch's package can build.

# system_toolkit MAJOR: prints the folder of the installed toolkit of that major version, or nothing.
system_toolkit() {
  local nvcc
  nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null) || return 0
  if "$nvcc" --version | grep -q "release $1\."; then
    (cd "$(dirname "$(readlink -f "$nvcc")")/.." && pwd)
  fi
}

# complete_toolkit TOOLKIT SITE: completes a toolkit that comes from the wheels in the site-packages folder SITE. Adds lib64, the
# unversioned library names that linkers look for, and the headers of NCCL and cuDNN.
complete_toolkit() {
  local toolkit=$1 site=$2 library header plain
  [ -e "$toolkit/lib64" ] || ln -s lib "$toolkit/lib64"
  for library in "$toolkit"/lib/lib*.so.*; do
    plain=${library%%.so.*}.so
    [ -e "$plain" ] || ln -s "$(basename "$library")" "$plain"
  done
  for header in "$site"/nvidia/{nccl,cudnn}/include/*.h; do
    [ -e "$toolkit/include/$(basename "$header")" ] || ln -s "$header" "$toolkit/include/"
  done
}

# joined_toolkit SYSTEM SITE MAJOR FOLDER: makes a toolkit in FOLDER from two others. The compiler comes from SYSTEM, which lacks headers
# such as cublas_v2.h. Headers and libraries come from LibTorch's wheels in SITE.
joined_toolkit() {
  local system=$1 site=$2 wheels=$2/nvidia/cu$3 folder=$4 file
  [ ! -e "$folder/.joined" ] || return 0
  rm -rf "$folder"
  mkdir -p "$folder/lib"
  cp -rL "$system/bin" "$system/nvvm" "$system/include" "$folder/"
  cp -rLn "$wheels/include/." "$folder/include/"
  for file in "$system"/lib64/* "$wheels"/lib/*; do
    [ -e "$folder/lib/$(basename "$file")" ] || ln -s "$file" "$folder/lib/"
  done
  complete_toolkit "$folder" "$site"
  touch "$folder/.joined"
}
