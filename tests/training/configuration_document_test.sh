#!/usr/bin/env bash
# Checks that docs/configuration.md is what the trainer writes, and that it has the settings of every group:
# configuration_document_test.sh TRAINER PAGE
set -euo pipefail
written=$(mktemp)
trap 'rm -f "$written"' EXIT
"$1" --write-configuration-doc "$written"
diff "$2" "$written" || { echo "run: build/bin/trainer --write-configuration-doc docs/configuration.md"; exit 1; }

for key in $(awk -F' \\| ' '/^\| `/ && $2 ~ /group/ {gsub(/[|` ]/, "", $1); print $1}' "$written" | sort -u); do
  grep -qE "^\| \`${key//./\\.}(\[i\]|\.NAME)?\." "$written" || { echo "nested_groups() in config_document.cpp lacks $key"; exit 1; }
done
