#!/bin/sh
# After the files are gone: Debian's postrm and RPM's %postun. A removed package leaves a stub at the path of each hook, which
# ends well: slurm.conf may still name it, also on nodes and controllers that this one knows nothing of.
set -e

@hooks@

@stubs@

@giveback@

# is_stub: only what a removal has written is taken away.
is_stub() { [ -f "$1" ] && head -n 2 "$1" | grep -q '^# Left by the removal of Bookend'; }

leave() {
	for hook in $hooks; do
		[ ! -e "$hook.stub" ] || mv -f "$hook.stub" "$hook"
		[ -e "$hook" ] || stub "$hook"
	done
}

tell() {
	[ ! -d /run/systemd/system ] || systemctl daemon-reload || true
	cat >&2 <<-END
		bookend: a stub that does nothing stays at the path of each hook, so that no node drains while slurm.conf names one.
		bookend: once slurm.conf names nothing of Bookend's, take away what is left: $1
	END
}

# undivert: preremove had dpkg remove another name.
undivert() {
	for hook in $hooks; do
		dpkg-divert --quiet --local --no-rename --remove "$hook"
		rm -f "$hook.removed" # of a stub that was there before: no package's, so dpkg leaves it
	done
}

# purge takes away what the hooks made, too; what others put beside it in /etc, as the site's own hooks in prolog.d, it leaves.
# Threat: below /run/bookend/drop are folders of users: rm follows no link, and leaves no file system.
purge() {
	for hook in $hooks; do
		! is_stub "$hook" || rm -f "$hook"
	done
	rmdir /usr/libexec/bookend 2>/dev/null || true
	for unit in slurmd.service.wants/run-bookend-drop.mount timers.target.wants/bookend-healthcheck.timer; do
		rm -f "/etc/systemd/system/$unit"
	done
	umount /run/bookend/drop 2>/dev/null || umount -l /run/bookend/drop 2>/dev/null || true
	for folder in /run/bookend /var/lib/bookend /var/log/bookend; do
		# A file system of the site's own may be mounted there.
		rm -rf --one-file-system "$folder" || echo "bookend: $folder could not be taken away" >&2
	done
	find /etc/bookend -depth -type d -exec rmdir {} + 2>/dev/null || true
	left=$(find /etc/bookend ! -type d 2>/dev/null | head -n 5 | paste -sd ' ' -)
	[ -z "$left" ] || echo "bookend: what is left in /etc/bookend is not the package's: $left" >&2
	for conf in /etc/slurm/*.conf /etc/slurm-llnl/*.conf /run/slurm/conf/*.conf; do
		! grep -Eqs '^[^#]*(/usr/libexec|/etc)/bookend/' "$conf" ||
			echo "bookend: $conf still names what is gone now: Slurm's commands and daemons fail at such an Include, and the next job drains the node: take it out, or install bookend again" >&2
	done
}

case "$1" in
remove)
	leave
	undivert
	tell "apt-get purge bookend"
	;;
0)
	leave
	give_back
	tell "rm -r /usr/libexec/bookend /etc/bookend /var/lib/bookend /var/log/bookend"
	;;
purge) purge ;;
esac
