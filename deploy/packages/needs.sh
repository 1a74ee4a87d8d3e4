#!/bin/sh
# Says what is missing to build, all at once and before anything is done.
# usage: needs.sh PROGRAM...      exit code 1: something is missing
cd "$(dirname "$0")/../.." || exit 2
status=0
missing() {
	echo "missing: $*" >&2
	status=1
}
for program in "$@"; do
	command -v "$program" >/dev/null && continue
	case $program in
	go) ;;
	xz) missing "$program (Debian and Ubuntu: apt-get install xz-utils)" ;;
	readelf) missing "$program (Debian and Ubuntu: apt-get install binutils)" ;;
	*) missing "$program (Debian and Ubuntu: apt-get install $program)" ;;
	esac
	[ "$program" != gcc ] || headers=later
done
[ -n "${headers:-}" ] || echo '#include <stdlib.h>' | gcc -E - >/dev/null 2>&1 ||
	missing "headers of the C library (Debian and Ubuntu: apt-get install libc6-dev)"
# Since 1.21 an older go fetches the one that go.mod names.
want=$(sed -n 's/^go //p' go.mod) have=$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null) || have=
have=${have#go}
if [ -z "$have" ] || [ "$(printf '%s\n' 1.21 "$have" | sort -V | head -n 1)" != 1.21 ]; then
	missing "Go $want or later, and there is ${have:-none}: https://go.dev/doc/install (tar -C /usr/local -xzf go*.tar.gz; PATH=/usr/local/go/bin:\$PATH)"
fi
exit $status
