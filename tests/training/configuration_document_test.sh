#!/usr/bin/env bash
# Checks that docs/configuration.md is what the trainer writes: configuration_document_test.sh TRAINER PAGE
set -euo pipefail
written=$(mktemp)
trap 'rm -f "$written"' EXIT
"$1" --write-configuration-doc "$written"
diff "$2" "$written" || { echo "run: build/bin/trainer --write-configuration-doc docs/configuration.md"; exit 1; }
