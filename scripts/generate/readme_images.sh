#!/usr/bin/env bash
# Makes the images of pages in the documentation: overlays of zero-shot segmentation, the top of a run's page, of a report and, with a second
# run, of their comparison. The light colors are those that the pages have in a browser without a preference for dark ones. Needs Chromium
# (apt-get install chromium).
set -euo pipefail
case ${1:-} in
  -h|--help)
    echo "usage: scripts/generate/readme_images.sh [RUN_FOLDER [OTHER_RUN]]"
    echo "  RUN_FOLDER  a run of scripts/quickstart.sh (default: runs/quickstart)"
    echo "  OTHER_RUN   another run with an evaluation, for the image of a comparison"
    exit 0 ;;
  -*) echo "readme_images.sh: unknown argument $1 (see --help)" >&2; exit 2 ;;
esac
cd "$(dirname "$0")/../.."
run=${1:-runs/quickstart}
for page in "$run/run.html" "$run/evaluation/report.html"; do
  [ -e "$page" ] || { echo "readme_images.sh: $page does not exist: run scripts/quickstart.sh first" >&2; exit 2; }
done
browser=$(command -v chromium chromium-browser google-chrome | head -n 1) ||
  { echo "readme_images.sh: Chromium is missing: apt-get install chromium" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Writes the top of a page to an image, 1,000 pixels wide: PAGE, STYLE to add to it, HEIGHT, IMAGE.
screenshot() {
  sed "s|</head>|<style>$2</style></head>|" "$1" > "$work/page.html"
  "$browser" --headless --no-sandbox --hide-scrollbars --user-data-dir="$work/profile" --window-size="1000,$3" --virtual-time-budget=3000 \
    --screenshot="$work/image.png" "file://$work/page.html" > "$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
  mv "$work/image.png" "$4"
  echo "$4"
}
only_overlays='main{padding:16px 20px}main>:not(.overlays),.overlays~.overlays,.overlays>:nth-child(n+7){display:none!important}'
screenshot "$run/evaluation/report.html" "$only_overlays" 715 docs/images/segmentation.png
screenshot "$run/evaluation/report.html" '' 2100 docs/images/report.png
screenshot "$run/run.html" '' 1100 docs/images/run_page.png
if [ -n "${2:-}" ]; then
  build/bin/tessera-report "$run" "$2" --out "$work/comparison.html" > "$work/log"
  screenshot "$work/comparison.html" '' 1500 docs/images/comparison.png
fi
