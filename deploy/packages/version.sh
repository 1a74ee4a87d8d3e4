#!/bin/sh
# Prints the version of the packages, which is one for dpkg and rpm alike: of the tag v1.2.3 "1.2.3", of v1.2.3-rc1 what sorts
# before it, "1.2.3~rc1"; five commits later "1.2.3+5.g0123456"; without any tag "0.0.0+COMMITS.gHASH". Changes that are in no
# commit add ".dirty".
#
# usage: version.sh [COMMIT]     default: the tree as it lies here
set -eu
cd "$(dirname "$0")/../.."

commit=${1:-HEAD}
hash=$(git rev-parse --short=7 "$commit")
if tag=$(git describe --tags --abbrev=0 --match 'v[0-9]*' "$commit" 2>/dev/null); then
	version=$(echo "${tag#v}" | sed 's/-/~/; s/-/./g')
	after=$(git rev-list --count "$tag..$commit")
	[ "$after" = 0 ] || version=$version+$after.g$hash
else
	version=0.0.0+$(git rev-list --count "$commit").g$hash
fi
if [ $# -eq 0 ] && [ -n "$(git status --porcelain --untracked-files=no)" ]; then
	case "$version" in *+*) version=$version.dirty ;; *) version=$version+dirty ;; esac
fi
echo "$version" | grep -Ex '[0-9][A-Za-z0-9.+~]*' || {
	echo "version: $version is no version for dpkg and rpm" >&2
	exit 1
}
