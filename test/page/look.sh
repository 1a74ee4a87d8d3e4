#!/bin/sh
# What "make page-look" runs: report pages of records that the real hooks wrote on fake GPUs, and pictures of them in
# build/page: at desk and phone width, light and dark. Installs chromium where it is missing (as root, by apt).
# usage: test/page/look.sh [--docs]    --docs: also renews docs/images
set -eu
cd "$(dirname "$0")/../.."
out=$PWD/build/page

command -v chromium >/dev/null || {
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
}
go run ./test/page -out "$out"
profile=$(mktemp -d)
trap 'rm -rf "$profile"' EXIT

# picture PAGE NAME WIDTH HEIGHT light|dark
picture() {
	preferred=1
	[ "$5" = dark ] && preferred=0
	chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --user-data-dir="$profile" \
		--blink-settings=preferredColorScheme=$preferred --window-size="$3,$4" --screenshot="$out/$2.png" "file://$out/$1/page.html" 2>/dev/null
	echo "$out/$2.png"
}

for page in week one crowd; do
	for scheme in light dark; do
		picture $page $page-1440-$scheme 1440 1240 $scheme
		picture $page $page-390-$scheme 390 1460 $scheme
	done
done
if [ "${1:-}" = --docs ]; then
	mkdir -p docs/images
	cp "$out/week-1440-light.png" docs/images/report.png
	cp "$out/week-390-dark.png" docs/images/report-phone.png
fi
