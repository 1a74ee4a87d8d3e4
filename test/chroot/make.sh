#!/bin/sh
# Makes a Debian of its own in a folder, for tests that need another release than the host's, or a fresh one.
#
# usage: test/chroot/make.sh SUITE FOLDER [PACKAGE...]       makes FOLDER, or leaves it where it is whole already
#        test/chroot/make.sh --fresh SUITE FOLDER [PACKAGE...]   FOLDER anew: a copy of a kept one
#        test/chroot/make.sh --mount FOLDER [BIND...]        /proc, /sys, /dev, a tmpfs on /run, and BINDs from the host
#        test/chroot/make.sh --remove FOLDER                 takes mounts and folder away
#
# SUITE is bullseye, bookworm, trixie, forky or sid. With no recommended packages, and no service started: neither now nor
# by packages that are installed in it later. Nothing is mounted when it ends, but by --mount. apt works inside
# ("chroot FOLDER apt-get install ..."), where the host's does. Only one process makes a FOLDER at a time; others wait.
# What --fresh copies is kept in BOOKEND_CHROOTS (default build/chroots), by suite and packages: the second is quick.
#
# BOOKEND_DEBIAN_MIRROR names the mirror; default: apt's own on Debian, else debootstrap's. BOOKEND_DEBOOTSTRAP_FLAGS adds
# flags, such as --no-check-gpg behind a mirror that signs nothing. Runs as root. What it says goes to stderr.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
kept=$(realpath -m "${BOOKEND_CHROOTS:-$here/../../build/chroots}") # as the kernel names it: mounts are found by it

say() { echo "chroot: $*" >&2; }
die() {
	say "$*"
	exit 1
}
usage() {
	sed -n 's/^# \{0,1\}//; /^usage:/,/--remove/p' "$0" >&2
	exit 2
}

# A folder that something is mounted in is never removed: the host's own files could lie behind the mount.
unmount() {
	awk -v folder="$1/" 'index($2, folder) == 1 { print $2 }' /proc/self/mounts | sort -r | while read -r place; do
		umount "$place" 2>/dev/null || umount -l "$place"
	done
	! awk -v folder="$1/" 'index($2, folder) == 1 { found = 1 } END { exit !found }' /proc/self/mounts || die "$1: still mounted below"
}

remove() {
	[ -e "$1" ] || return 0
	unmount "$1"
	rm -rf --one-file-system "$1"
}

# mirror: where this Debian gets its own packages from; nothing elsewhere.
mirror() {
	if [ -n "${BOOKEND_DEBIAN_MIRROR:-}" ]; then
		echo "$BOOKEND_DEBIAN_MIRROR"
	elif command -v apt-get >/dev/null; then
		apt-get indextargets --format '$(REPO_URI) $(LABEL)' 'Created-By: Packages' 2>/dev/null | sed -n 's/ Debian$//p' | head -n 1
	fi
}

need_debootstrap() {
	command -v debootstrap >/dev/null && return 0
	command -v apt-get >/dev/null || die "missing: debootstrap"
	say "installing debootstrap"
	export DEBIAN_FRONTEND=noninteractive
	apt-get -o DPkg::Lock::Timeout=600 install -q -y --no-install-recommends debootstrap >&2 ||
		{ apt-get -o DPkg::Lock::Timeout=600 update -q >&2 && apt-get -o DPkg::Lock::Timeout=600 install -q -y --no-install-recommends debootstrap >&2; } ||
		die "apt-get could not install debootstrap"
}

# script SUITE: the newest releases are made as sid is, where debootstrap does not know them yet.
script() {
	[ -e "/usr/share/debootstrap/scripts/$1" ] || echo /usr/share/debootstrap/scripts/sid
}

# as_asked FOLDER SUITE PACKAGE...: a folder is whole only when its last file is written.
stamp() { echo "$*"; }
as_asked() {
	folder=$1
	shift
	[ "$(cat "$folder/etc/bookend-chroot" 2>/dev/null)" = "$(stamp "$@")" ]
}

make() { # FOLDER SUITE PACKAGE...
	new=$1.new suite=$2 folder=$1
	shift 2
	need_debootstrap
	remove "$new"
	mkdir -p "$new"
	from=$(mirror)
	trap 'unmount "$new"' EXIT
	say "making $suite in $folder"
	# Flags, and mirror with script, are lists of words; a script is named only behind a mirror.
	debootstrap --variant=minbase --include=ca-certificates ${BOOKEND_DEBOOTSTRAP_FLAGS:-} \
		"$suite" "$new" $from ${from:+$(script "$suite")} >"$folder.log" 2>&1 || {
		tail -n 20 "$folder.log" "$new/debootstrap/debootstrap.log" >&2 || true
		die "debootstrap failed; all it said is in $folder.log"
	}
	settle "$new"
	[ $# -eq 0 ] || add "$new" "$@"
	stamp "$suite" "$@" >"$new/etc/bookend-chroot"
	remove "$folder"
	mv "$new" "$folder"
	trap - EXIT
}

# settle FOLDER: nothing starts in it, names are found as on the host, and its apt reaches what the host's reaches.
settle() {
	unmount "$1"
	rm -rf "$1"/var/cache/apt/archives/*.deb
	printf '#!/bin/sh\nexit 101\n' >"$1/usr/sbin/policy-rc.d"
	chmod 0755 "$1/usr/sbin/policy-rc.d"
	cp /etc/resolv.conf /etc/hosts "$1/etc/" 2>/dev/null || true
	{
		echo 'APT::Install-Recommends "false";'
		# A mirror may lag behind. debootstrap accepts an old list, and so must apt, or the next Debian cannot be made.
		echo 'Acquire::Check-Valid-Until "false";'
		apt-config dump 2>/dev/null | grep -i '^Acquire::.*Proxy' || true
		case " ${BOOKEND_DEBOOTSTRAP_FLAGS:-} " in *" --no-check-gpg "*)
			echo 'Acquire::AllowInsecureRepositories "true";'
			echo 'APT::Get::AllowUnauthenticated "true";'
			;;
		esac
	} >"$1/etc/apt/apt.conf.d/90bookend"
}

# add FOLDER PACKAGE...: by apt, which knows more of the order of things than debootstrap does.
add() {
	root=$1
	shift
	mount -t proc proc "$root/proc"
	chroot "$root" env DEBIAN_FRONTEND=noninteractive sh -c 'apt-get -q update && apt-get -q -y install "$@" && apt-get clean' - "$@" \
		>>"$folder.log" 2>&1 || {
		tail -n 20 "$folder.log" >&2
		die "apt-get failed in $root; all it said is in $folder.log"
	}
	unmount "$root"
}

# locked FOLDER COMMAND...: one process at a time makes a folder. The lock goes with the process.
locked() {
	mkdir -p "$(dirname "$1")"
	exec 9>"$1.lock"
	flock 9
	shift
	"$@"
	exec 9>&-
}

once() { # FOLDER SUITE PACKAGE...
	as_asked "$@" || make "$@"
}

fresh() { # SUITE FOLDER PACKAGE...
	suite=$1 target=$2
	shift 2
	base=$kept/$suite-$(stamp "$@" | cksum | cut -d' ' -f1)
	locked "$base" once "$base" "$suite" "$@"
	remove "$target"
	mkdir -p "$(dirname "$target")"
	cp -ax --reflink=auto "$base" "$target"
}

mount_all() { # FOLDER BIND...
	for place in /proc /sys /dev; do
		mount --rbind "$place" "$1$place"
		mount --make-rslave "$1$place"
	done
	mount -t tmpfs -o mode=0755,nosuid,nodev,size=256M tmpfs "$1/run"
	root=$1
	shift
	for place in "$@"; do
		mkdir -p "$root$place"
		mount --bind "$place" "$root$place"
	done
}

case "${1:-}" in
--remove) [ $# -eq 2 ] || usage ;;
--mount) [ $# -ge 2 ] || usage ;;
--fresh) [ $# -ge 3 ] || usage ;;
-* | "") usage ;;
*) [ $# -ge 2 ] || usage ;;
esac
[ "$(id -u)" -eq 0 ] || die "needs root"
case "$1" in
--remove) remove "$(realpath -m "$2")" ;;
--mount)
	folder=$(realpath -e "$2")
	shift 2
	mount_all "$folder" "$@"
	;;
--fresh)
	suite=$2 folder=$(realpath -m "$3")
	shift 3
	fresh "$suite" "$folder" "$@"
	;;
*)
	suite=$1 folder=$(realpath -m "$2")
	shift 2
	locked "$folder" once "$folder" "$suite" "$@"
	;;
esac
