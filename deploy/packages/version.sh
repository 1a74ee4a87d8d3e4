#!/bin/sh
# Prints the version of the packages, which is one for dpkg and rpm alike. The file VERSION has the release that the tree is to
# become: "1.2.3~COMMITS.gHASH" sorts before it. At the tag v1.2.3 it is "1.2.3", at v1.2.3-rc1 "1.2.3~rc1"; five commits after
# the release, while VERSION still has it, "1.2.3+5.g0123456". Changes that are in no commit add ".dirty".
#
# usage: version.sh [COMMIT]     default: the tree as it lies here
set -eu
cd "$(dirname "$0")/../.."

commit=${1:-HEAD}
next=$(git show "$commit:VERSION" 2>/dev/null || echo 0.0.0) # a commit from before the file
hash=$(git rev-parse --short=7 "$commit")
if tag=$(git describe --tags --exact-match --match 'v[0-9]*' "$commit" 2>/dev/null); then
	version=$(echo "${tag#v}" | sed 's/-/~/; s/-/./g')
elif git merge-base --is-ancestor "v$next" "$commit" 2>/dev/null; then
	version=$next+$(git rev-list --count "v$next..$commit").g$hash
else
	version=$next~$(git rev-list --count "$commit").g$hash
fi
if [ $# -eq 0 ] && [ -n "$(git status --porcelain --untracked-files=no)" ]; then
	case "$version" in *.g*) version=$version.dirty ;; *) version=$version+dirty ;; esac
fi
echo "$version" | grep -Ex '[0-9][A-Za-z0-9.+~]*' || {
	echo "version: $version is no version for dpkg and rpm" >&2
	exit 1
}
