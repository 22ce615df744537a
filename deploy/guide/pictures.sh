#!/bin/sh
# Makes the pictures of the guide from the report of a demo run:
#
#   deploy/demo.sh OUT_DIR && deploy/guide/pictures.sh OUT_DIR
#
# Needs Chromium (Debian: chromium) and, for small files, pngquant. Look at the pictures before you commit them.
set -eu

report=$(cd "$1" && pwd)/report.html
pictures=$(cd "$(dirname "$0")" && pwd)/src/pictures
[ -s "$report" ] || { echo "pictures: there is no $report: run deploy/demo.sh first" >&2; exit 4; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

browse() {
    chromium --headless=new --no-sandbox --disable-gpu --hide-scrollbars --blink-settings=preferredColorScheme=1 "$@" 2>/dev/null
}

# cut NAME STYLE: the report under more rules of style, 1000 pixels wide.
cut() {
    page=$work/$1.html
    # The copy, not the report, has a script: it says how high the page is.
    sed "s|</head>|<style>body{padding-bottom:1rem}h2{border:0;margin-top:0}$2</style></head>|; \
         s|</body>|<script>document.title='height='+(document.querySelector('main').getBoundingClientRect().bottom+16\|0)+';'</script></body>|" \
        "$report" >"$page"
    height=$(browse --window-size=1000,1000 --dump-dom "file://$page" | sed -n 's/.*<title>height=\([0-9]*\);.*/\1/p')
    browse --window-size="1000,$height" --screenshot="$work/$1.png" "file://$page" >/dev/null
    if command -v pngquant >/dev/null; then pngquant --force --output "$pictures/$1.png" 32 "$work/$1.png"; else cp "$work/$1.png" "$pictures/$1.png"; fi
}

only() { printf 'main>:not(%s){display:none}' "$1"; }

cut report-short "$(only 'h1,.lead,#short')"
cut report-coefficients "$(only '#effects')#effects>:not(h2,figure){display:none}"
cut report-predictions "$(only '#predictions')#predictions>:not(h2,.pair){display:none}"
cut report-rounds "$(only '#predictions')#predictions>:not(figure){display:none}"
cut report-budget "$(only '#privacy')#privacy>.note{display:none}"
