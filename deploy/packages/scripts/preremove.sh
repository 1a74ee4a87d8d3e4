#!/bin/sh
# Before the files go: Debian's prerm and RPM's %preun. On an upgrade nothing is to be done: each file is replaced in one step.
set -e

@hooks@

@stubs@

# aside lets dpkg remove HOOK.removed in HOOK's place, so that at HOOK there is always something that slurmd can start.
aside() {
	for hook in $hooks; do
		[ -e "$hook" ] || continue
		ln -f "$hook" "$hook.removed" 2>/dev/null || cp -p "$hook" "$hook.removed"
		dpkg-divert --quiet --local --no-rename --divert "$hook.removed" --add "$hook"
		stub "$hook"
	done
}

# keep: rpm would remove what nobody changed in /etc, but slurm.conf may still include it. The stubs wait beside the hooks:
# rpm lets the package speak only after all files are gone, and then a name is all that is to be changed.
keep() {
	rm -rf /etc/bookend/slurm.kept
	[ ! -d /etc/bookend/slurm ] || cp -a /etc/bookend/slurm /etc/bookend/slurm.kept
	for hook in $hooks; do
		stub "$hook.stub"
	done
}

# stop stops what was started. dpkg's user may install it again, and then wants what he had enabled; rpm forgets.
stop() {
	command -v systemctl >/dev/null || return 0
	for unit in run-bookend-drop.mount bookend-healthcheck.timer; do
		[ "$1" != 0 ] || systemctl --quiet disable "$unit" 2>/dev/null || true
		# Where a job's task hook still uses the drop, it stays until a reboot.
		[ ! -d /run/systemd/system ] || systemctl stop "$unit" 2>/dev/null || true
	done
}

case "$1" in
remove) aside ;;
0) keep ;;
*) exit 0 ;;
esac
stop "$1"
