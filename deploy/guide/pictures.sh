#!/bin/sh
# Makes the pictures of the guide from the report of a demo run:
#
#   deploy/demo.sh OUT_DIR && deploy/guide/pictures.sh OUT_DIR
#
# Needs Chromium (Debian: chromium) and, for small files, pngquant. Look at the pictures before you commit them: the cuts are
# pixels of the report as it is laid out today.
set -eu

report=$(cd "$1" && pwd)/report.html
pictures=$(cd "$(dirname "$0")" && pwd)/src/pictures
[ -s "$report" ] || { echo "pictures: there is no $report: run deploy/demo.sh first" >&2; exit 4; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# cut NAME FROM HEIGHT: that part of the report, 1000 pixels wide.
cut() {
    printf '<body style="margin:0;overflow:hidden"><iframe src="file://%s" style="border:0;width:1000px;height:4200px;margin-top:-%dpx"></iframe>' \
        "$report" "$2" >"$work/$1.html"
    chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size="1000,$3" \
        --screenshot="$work/$1.png" "file://$work/$1.html" >/dev/null 2>&1
    if command -v pngquant >/dev/null; then pngquant --force --output "$pictures/$1.png" 32 "$work/$1.png"; else cp "$work/$1.png" "$pictures/$1.png"; fi
}

cut report-coefficients 0 862
cut report-held-out 1020 580
cut report-calibration 2400 430
cut report-budget 2820 430
