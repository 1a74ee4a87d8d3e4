#!/bin/sh
# Provides Slurm for the tests that run a private cluster (test/cluster). Nothing is started or configured.
#
# usage: install-slurm.sh [--version 22.05|24.11|26.05] [--chroot] [FOLDER]
#
# Slurm 22.05, the default: where it is on the host already, nothing is done; on Debian 12 its packages are installed;
# anywhere else, or with --chroot, a Debian 12 with Slurm is made in FOLDER (default build/slurm-22.05, 300 MB).
# The others are Debian 13's and the next Debian's, made in FOLDER (default /var/cache/bookend-test/slurm-VERSION).
# A folder that is whole already is used as it is; test/chroot/make.sh makes it.
# The last line printed is the setting that the tests need: BOOKEND_SLURM_ROOT=/ or =FOLDER.
#
# BOOKEND_DEBIAN_MIRROR names the mirror for FOLDER; default: apt's own on Debian, else debootstrap's.
# BOOKEND_DEBOOTSTRAP_FLAGS adds flags, such as --no-check-gpg behind a mirror that signs nothing.
set -eu

version=22.05
packages="slurmctld slurmd slurm-client munge"
programs="munged slurmctld slurmd slurmstepd sbatch srun scontrol sinfo squeue scancel"
policy=/usr/sbin/policy-rc.d

say() { echo "install-slurm: $*" >&2; }
die() {
	say "$*"
	exit 1
}

# missing_in ROOT: names what is not there, or the wrong version. Links of "alternatives" lead astray from outside ROOT.
missing_in() {
	for program in $programs; do
		found=
		for folder in usr/local/sbin usr/local/bin usr/sbin usr/bin; do
			file=${1%/}/$folder/$program
			if [ -x "$file" ] || { [ "$1" != / ] && [ -L "$file" ]; }; then found=yes; fi
		done
		[ -n "$found" ] || echo "$program"
	done
	[ "$1" != / ] || ! command -v slurmd >/dev/null || slurmd -V | grep -q " $version\." ||
		echo "slurmd $version (found: $(slurmd -V))"
}

done_with() {
	echo "BOOKEND_SLURM_ROOT=$1"
	exit 0
}

need_root() {
	[ "$(id -u)" -ne 0 ] || return 0
	command -v sudo >/dev/null && sudo -n true 2>/dev/null ||
		die "missing: $(echo $lacking). Run this script as root, or allow it sudo without a password."
	exec sudo -n --preserve-env=BOOKEND_DEBIAN_MIRROR,BOOKEND_DEBOOTSTRAP_FLAGS "$self" "$@"
}

# While packages are installed, policy-rc.d forbids their scripts to start services. What was there before
# comes back, also after a run that was killed.
forbid_services() {
	[ ! -e "$policy.before-bookend" ] || mv -f "$policy.before-bookend" "$policy"
	trap allow_services EXIT
	trap 'exit 1' HUP INT TERM
	if [ -e "$policy" ]; then mv -f "$policy" "$policy.before-bookend"; fi
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 0755 "$policy"
}

allow_services() {
	rm -f "$policy"
	if [ -e "$policy.before-bookend" ]; then mv -f "$policy.before-bookend" "$policy"; fi
	trap - EXIT
}

# apt_install PACKAGE...: the package lists are fetched only when the ones at hand do not do.
apt_install() {
	export DEBIAN_FRONTEND=noninteractive
	forbid_services
	apt-get -o DPkg::Lock::Timeout=600 install -q -y --no-install-recommends "$@" >&2 ||
		{ apt-get -o DPkg::Lock::Timeout=600 update -q >&2 && apt-get -o DPkg::Lock::Timeout=600 install -q -y --no-install-recommends "$@" >&2; } ||
		die "apt-get could not install: $*"
	allow_services
}

is_debian_12() {
	[ -r /etc/os-release ] && (
		. /etc/os-release
		[ "${ID:-}" = debian ] && [ "${VERSION_ID:-}" = 12 ]
	)
}

# has_other_slurm: an installation that packages of ours would replace or shadow.
has_other_slurm() { command -v slurmd >/dev/null && ! slurmd -V | grep -q " $version\."; }

# suite: the Debian whose Slurm it is.
suite() {
	case "$version" in
	22.05) echo bookworm ;;
	24.11) echo trixie ;;
	26.05) echo forky ;;
	*) die "no Debian has Slurm $version for us: 22.05, 24.11 or 26.05" ;;
	esac
}

self=$(realpath "$0")
force=
while :; do
	case "${1:-}" in
	--version) version=${2:?--version wants 22.05, 24.11 or 26.05} && shift 2 ;;
	--chroot) force=--chroot && shift ;;
	*) break ;;
	esac
done
suite=$(suite)
kept=$(dirname "$self")/../build
[ "$version" = 22.05 ] || { force=--chroot && kept=/var/cache/bookend-test; }
folder=$(realpath -m "${1:-$kept/slurm-$version}")

if [ -z "$force" ]; then
	lacking=$(missing_in /)
	[ -n "$lacking" ] || done_with /
fi
if [ -d "$folder" ]; then
	lacking=$(missing_in "$folder")
	[ -n "$lacking" ] || done_with "$folder"
fi
say "missing: $(echo ${lacking:-$folder})"
need_root --version "$version" $force "$folder"
if [ -z "$force" ] && is_debian_12 && ! has_other_slurm; then
	apt_install $packages
	lacking=$(missing_in /)
	[ -z "$lacking" ] || die "installed $packages, but missing: $(echo $lacking)"
	done_with /
fi
say "making a Debian with Slurm $version in $folder: some minutes, 300 MB"
"$(dirname "$self")/chroot/make.sh" "$suite" "$folder" $packages
lacking=$(missing_in "$folder")
[ -z "$lacking" ] || die "made $folder, but missing: $(echo $lacking)"
done_with "$folder"
