#!/bin/sh
# Makes a release in build/release: the packages, for each architecture a tarball of the same files for other systems, and
# SHA256SUMS, signed where a key is given. The same commit makes the same bytes.
#
# usage: release.sh [ARCH...]    amd64 and arm64; default: both
#
# RELEASE_KEY  the key of gpg that signs: SHA256SUMS.asc
set -eu
umask 022
cd "$(dirname "$0")/../.."
here=deploy/packages out=$PWD/build/release
VERSION=${VERSION:-$($here/version.sh)}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export VERSION SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC

case "$VERSION" in
*+* | *.g*) echo "release: $VERSION is no release: tag the commit v1.2.3, and leave no change uncommitted" >&2 && exit 1 ;;
"$(cat VERSION)" | "$(cat VERSION)~"*) ;;
*) echo "release: $VERSION is tagged, but the file VERSION has $(cat VERSION)" >&2 && exit 1 ;;
esac
grep -q "^## \[$VERSION\] - " CHANGELOG.md || {
	echo "release: CHANGELOG.md has no section [$VERSION]" >&2
	exit 1
}
[ $# -gt 0 ] || set -- amd64 arm64
OUT=$out $here/build.sh "$@"
cd "$out"
for arch in "$@"; do
	name=bookend-$VERSION-linux-$arch
	tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
		--transform="s,^\./,$name/," -C "$arch/root" . | gzip -9n >"$name.tar.gz"
	rm -rf "$arch"
done
sha256sum -- *.deb *.rpm *.tar.gz >SHA256SUMS
[ -z "${RELEASE_KEY:-}" ] || gpg --batch --yes --local-user "$RELEASE_KEY" --armor --detach-sign SHA256SUMS
cat SHA256SUMS
