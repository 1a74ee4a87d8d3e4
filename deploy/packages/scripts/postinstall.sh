#!/bin/sh
# After the files are there: Debian's postinst and RPM's %post. Harmless where no systemd runs, as in an image that is built.
set -e

@hooks@

@giveback@

drop=run-bookend-drop.mount

# restore puts back what a removal had moved aside, where that removal was given up, or cut short.
restore() {
	for hook in $hooks; do
		rm -f "$hook.stub"
	done
	command -v dpkg-divert >/dev/null || return 0
	for hook in $hooks; do
		# --list speaks the admin's language.
		[ "$(dpkg-divert --truename "$hook")" = "$hook.removed" ] || continue
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
	! first_time "$@" || echo "bookend: nothing calls it yet. Next, as root: bookend setup --write, then bookend doctor"
	! command -v systemd-tmpfiles >/dev/null || systemd-tmpfiles --create /usr/lib/tmpfiles.d/bookend.conf || true
	command -v systemctl >/dev/null || return 0
	[ ! -d /run/systemd/system ] || systemctl daemon-reload || true
	! first_time "$@" || systemctl --quiet enable "$drop" || true
	[ -d /run/systemd/system ] || return 0
	# A removal has stopped them.
	for unit in "$drop" bookend-healthcheck.timer; do
		! systemctl --quiet is-enabled "$unit" 2>/dev/null || systemctl start "$unit" ||
			# Without the drop all works, but one user can fill /run: "bookend doctor" tells.
			echo "bookend: $unit could not be started; see: systemctl status $unit" >&2
	done
}

case "$1" in
configure | 1 | 2)
	restore
	give_back
	begin "$@"
	;;
abort-remove) restore ;;
esac
