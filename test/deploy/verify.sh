#!/bin/sh
# Checks the files in deploy/ with systemd's own programs and ShellCheck; installs the packages where they are missing (as
# root, on Debian and Ubuntu). Nothing is started, and nothing outside a scratch folder is made.
set -eu
cd "$(dirname "$0")/../.."

if ! command -v systemd-analyze >/dev/null || ! command -v systemd-tmpfiles >/dev/null || ! command -v shellcheck >/dev/null; then
	echo "verify: installing systemd and shellcheck" >&2
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends systemd shellcheck >&2
fi

failed=0
fail() {
	echo "verify: $*" >&2
	failed=1
}

# systemd-analyze ends with 0 where it ignores a key: anything that it says counts.
root=$(mktemp -d)
trap 'rm -r "$root"' EXIT
mkdir "$root/units"
for unit in deploy/systemd/*.mount deploy/systemd/*.service deploy/systemd/*.timer; do
	# The program is not installed here, and a unit that starts a missing one is refused.
	sed 's|^ExecStart=/usr/libexec/bookend/[a-z-]*$|ExecStart=/bin/true|' "$unit" >"$root/units/${unit##*/}"
done
for unit in "$root"/units/*; do
	said=$(systemd-analyze verify --man=no "$unit" 2>&1) || fail "${unit##*/} is refused"
	[ -z "$said" ] || fail "${unit##*/}: $said"
done

# What slurm.conf names runs as root for each job, under any /bin/sh.
shellcheck --shell=sh deploy/slurm/hooks/* || fail "a hook in deploy/slurm/hooks"
shellcheck --shell=bash --exclude=SC2128 deploy/nhc/bookend.nhc || fail "deploy/nhc/bookend.nhc"
shellcheck test/install-prometheus.sh test/deploy/verify.sh test/monitoring/check.sh || fail "a script of the checks"

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
