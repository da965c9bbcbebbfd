#!/usr/bin/env bash
# Installs the build into a fresh folder, builds this project against the installed files alone, and runs it.
# usage: run.sh SOURCE_DIR BUILD_DIR CMAKE_PREFIX_PATH
set -euo pipefail
source_dir=$1 build_dir=$2 prefix_path=$3
work=$(mktemp -d "$build_dir/consumer.XXXXXX")
trap 'rm -rf "$work"' EXIT
cmake --install "$build_dir" --prefix "$work/prefix" >/dev/null
cmake -S "$source_dir/tests/consumer" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="$work/prefix;$prefix_path" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
ninja -C "$work/build"
"$work/build/consumer"
