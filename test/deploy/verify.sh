#!/bin/sh
# Checks the files in deploy/ with systemd's own programs; installs the package where they are missing (as root, on Debian
# and Ubuntu). Nothing is started, and nothing outside a scratch folder is made.
set -eu
cd "$(dirname "$0")/../.."

if ! command -v systemd-analyze >/dev/null || ! command -v systemd-tmpfiles >/dev/null; then
	echo "verify: installing systemd" >&2
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends systemd >&2
fi

failed=0
fail() {
	echo "verify: $*" >&2
	failed=1
}

# systemd-analyze ends with 0 where it ignores a key: anything that it says counts.
for unit in deploy/systemd/*.mount; do
	said=$(systemd-analyze verify --man=no "$unit" 2>&1) || fail "$unit is refused"
	[ -z "$said" ] || fail "$unit: $said"
done

root=$(mktemp -d)
trap 'rm -r "$root"' EXIT
mkdir "$root/etc"
cp /etc/passwd /etc/group "$root/etc"
for snippet in deploy/tmpfiles.d/*.conf; do
	said=$(systemd-tmpfiles --create --root="$root" "$PWD/$snippet" 2>&1) || fail "$snippet is refused"
	[ -z "$said" ] || fail "$snippet: $said"
	while read -r kind path mode user group _; do
		[ "$kind" = d ] || continue
		made=$(stat -c '%04a %U %G' "$root$path" 2>&1) || true
		[ "$made" = "$mode $user $group" ] || fail "$snippet: $path: made $made, want $mode $user $group"
	done <"$snippet"
done

# The check itself must notice a mistake.
sed 's/^Type=/Typ=/' deploy/systemd/run-bookend-drop.mount >"$root/run-bookend-drop.mount"
[ -n "$(systemd-analyze verify --man=no "$root/run-bookend-drop.mount" 2>&1)" ] || fail "a misspelt key was not noticed"

[ "$failed" = 0 ] && echo "verify: deploy/ is well"
exit "$failed"
