#!/usr/bin/env bash
# Makes the images of pages in the documentation: overlays of zero-shot segmentation, the top of a run's page, of a report and, with a second
# run, of their comparison and of the page of tessera-serve. The light colors are those that the pages have in a browser without a preference
# for dark ones. Needs Chromium (apt-get install chromium).
set -euo pipefail
case ${1:-} in
  -h|--help)
    echo "usage: scripts/generate/readme_images.sh [RUN_FOLDER [OTHER_RUN]]"
    echo "  RUN_FOLDER  a run of scripts/quickstart.sh (default: runs/quickstart)"
    echo "  OTHER_RUN   another run with an evaluation, for the images of comparisons"
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
  capture "file://$work/page.html" "1000,$3" "$4"
}
# ADDRESS, WIDTH,HEIGHT, IMAGE, further options of Chromium.
capture() {
  "$browser" --headless --no-sandbox --hide-scrollbars --user-data-dir="$work/profile" --window-size="$2" --virtual-time-budget=20000 "${@:4}" \
    --screenshot="$work/image.png" "$1" > "$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
  mv "$work/image.png" "$3"
  echo "$3"
}
only_overlays='main{padding:16px 20px}main>:not(.overlays),.overlays~.overlays,.overlays>:nth-child(n+7){display:none!important}'
screenshot "$run/evaluation/report.html" "$only_overlays" 715 docs/images/segmentation.png
screenshot "$run/evaluation/report.html" '' 2100 docs/images/report.png
screenshot "$run/run.html" '' 1100 docs/images/run_page.png
if [ -n "${2:-}" ]; then
  build/bin/tessera-serve --checkpoint "$run" --checkpoint "$2" --images '{name: shapes, split: validation, size: 200}' --port 0 --quiet \
    > "$work/serve.log" 2>&1 &
  server=$!
  trap 'kill "$server"; rm -rf "$work"' EXIT
  until address=$(grep -o 'http://[^ ]*' "$work/serve.log"); do
    kill -0 "$server" 2> "$work/log" || { cat "$work/serve.log" >&2; exit 1; }
    sleep 0.2
  done
  address+="#image=23&text=a%20red%20circle,%20a%20yellow%20moon%20and%20a%20cyan%20cross"
  classes='classes=red,%20yellow,%20cyan,%20orange,%20blue&prompt=a%20%7B%7D%20circle&segmentation&query=a%20red%20circle'
  capture "$address&$classes&word=2" 1000,1010 docs/images/serve.png
  capture "$address&word=2&other=$(basename "$2")" 1000,1190 docs/images/serve_compare.png --blink-settings=preferredColorScheme=0
  build/bin/tessera-report "$run" "$2" --out "$work/comparison.html" > "$work/log"
  screenshot "$work/comparison.html" '' 1500 docs/images/comparison.png
fi
