#!/bin/sh
# After the files are there: Debian's postinst and RPM's %post. Harmless where no systemd runs, as in an image that is built.
set -e

@hooks@

drop=run-bookend-drop.mount

# restore puts back what a removal had moved aside, where that removal was given up.
restore() {
	command -v dpkg-divert >/dev/null || return 0
	for hook in $hooks; do
		dpkg-divert --list "$hook" 2>/dev/null | grep -q "to $hook.removed" || continue
		[ ! -e "$hook.removed" ] || mv -f "$hook.removed" "$hook"
		dpkg-divert --quiet --local --no-rename --remove "$hook"
	done
}

# first_time: an admin who has switched the unit off is not overruled by an upgrade.
first_time() {
	case "$1" in
	configure) [ -z "${2:-}" ] ;;
	1) true ;;
	*) false ;;
	esac
}

begin() {
	! command -v systemd-tmpfiles >/dev/null || systemd-tmpfiles --create /usr/lib/tmpfiles.d/bookend.conf || true
	command -v systemctl >/dev/null || return 0
	[ ! -d /run/systemd/system ] || systemctl daemon-reload || true
	first_time "$@" || return 0
	systemctl --quiet enable "$drop" || true
	# Without it all works, but one user can fill /run: "bookend doctor" tells.
	[ ! -d /run/systemd/system ] || systemctl start "$drop" ||
		echo "bookend: $drop could not be started; see: systemctl status $drop" >&2
}

case "$1" in
configure | 1 | 2)
	restore
	begin "$@"
	;;
abort-remove) restore ;;
esac
