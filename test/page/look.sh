#!/bin/sh
# What "make page-look" runs: a report page of records that the real hooks wrote on fake GPUs, and pictures of it in
# build/page: at desk and phone width, light and dark; a page of bookend fleet; and what axe-core finds wrong with both.
# Installs chromium where it is missing (as root, by apt). Without npm axe-core is not asked.
# usage: test/page/look.sh [--docs]    --docs: also renews docs/images
set -eu
cd "$(dirname "$0")/../.."
out=$PWD/build/page

command -v chromium >/dev/null || {
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
}
go test -count=1 -run Week ./test/page -args -out "$out"
go run ./admin fleet --nodes n9 --html "$out/fleet.html" --force <test/page/fleet.txt
profile=$(mktemp -d)
trap 'rm -rf "$profile"' EXIT

# picture NAME WIDTH HEIGHT light|dark
picture() {
	preferred=1
	[ "$4" = dark ] && preferred=0
	chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --user-data-dir="$profile" \
		--blink-settings=preferredColorScheme=$preferred --window-size="$2,$3" --screenshot="$out/$1.png" "file://$out/page.html" 2>/dev/null
	echo "$out/$1.png"
}

for scheme in light dark; do
	picture week-1440-$scheme 1440 1240 $scheme
	picture week-390-$scheme 390 1460 $scheme
done
if command -v npm >/dev/null; then
	mkdir -p build/axe && cp test/page/axe/* build/axe
	(cd build/axe && npm ci --ignore-scripts --no-audit --no-fund >/dev/null && node check.mjs "$out/page.html" "$out/fleet.html")
else
	echo "no npm: accessibility was not checked" >&2
fi
if [ "${1:-}" = --docs ]; then
	mkdir -p docs/images
	cp "$out/week-1440-light.png" docs/images/report.png
	cp "$out/week-390-dark.png" docs/images/report-phone.png
fi
