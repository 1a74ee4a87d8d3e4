#!/bin/sh
# Before the files go: Debian's prerm and RPM's %preun. On an upgrade nothing is to be done: each file is replaced in one step.
set -e

@hooks@

@stubs@

# aside lets dpkg remove HOOK.removed in HOOK's place, so that at HOOK there is always something that slurmd can start.
aside() {
	for hook in $hooks; do
		[ -e "$hook" ] || continue
		ln -f "$hook" "$hook.removed"
		dpkg-divert --quiet --local --no-rename --divert "$hook.removed" --add "$hook"
		stub "$hook"
	done
}

# keep: rpm would remove what nobody changed in /etc, but slurm.conf may still include it.
keep() {
	[ ! -d /etc/bookend/slurm ] || cp -a /etc/bookend/slurm /etc/bookend/slurm.kept
}

case "$1" in
remove) aside ;;
0) keep ;;
*) exit 0 ;;
esac
if command -v systemctl >/dev/null; then
	# Where a job's task hook still uses it, it stays until a reboot.
	systemctl --quiet disable run-bookend-drop.mount 2>/dev/null || true
	[ ! -d /run/systemd/system ] || systemctl stop run-bookend-drop.mount || true
fi
