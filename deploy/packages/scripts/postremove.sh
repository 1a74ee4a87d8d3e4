#!/bin/sh
# After the files are gone: Debian's postrm and RPM's %postun. A removed package leaves a stub at the path of each hook, which
# ends well: slurm.conf may still name it, also on nodes and controllers that this one knows nothing of.
set -e

@hooks@

@stubs@

# is_stub: only what a removal has written is taken away.
is_stub() { [ -f "$1" ] && head -n 2 "$1" | grep -q '^# Left by the removal of Bookend'; }

leave() {
	for hook in $hooks; do
		[ -e "$hook" ] || stub "$hook"
	done
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

# give_back: rpm removes what nobody changed in /etc, but slurm.conf may still include it.
give_back() {
	[ -d /etc/bookend/slurm.kept ] || return 0
	mkdir -p /etc/bookend/slurm
	cp -an /etc/bookend/slurm.kept/. /etc/bookend/slurm
	rm -r /etc/bookend/slurm.kept
}

# purge takes away what the hooks made, too.
# Threat: below /run/bookend/drop are folders of users: rm follows no link, and leaves no file system.
purge() {
	for hook in $hooks; do
		! is_stub "$hook" || rm -f "$hook"
	done
	rmdir /usr/libexec/bookend 2>/dev/null || true
	umount /run/bookend/drop 2>/dev/null || true
	rm -rf --one-file-system /run/bookend /var/lib/bookend /var/log/bookend /etc/bookend
	for conf in /etc/slurm/slurm.conf /etc/slurm-llnl/slurm.conf; do
		! grep -Eqs '^[^#]*(/usr/libexec|/etc)/bookend/' "$conf" ||
			echo "bookend: $conf still names what is gone now: Slurm's commands and daemons fail at such an Include, and the next job drains the node: take it out, or install bookend again" >&2
	done
}

case "$1" in
remove)
	leave "apt-get purge bookend"
	undivert
	;;
0)
	give_back
	leave "rm -r /usr/libexec/bookend /etc/bookend /var/lib/bookend /var/log/bookend"
	;;
purge) purge ;;
esac
