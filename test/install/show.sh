#!/bin/bash
# Shows what build/packages holds, and what dpkg and rpm make of it: a line for each thing shown.
#
# usage: show.sh PACKAGES SCRATCH PART...      started by test/install; as root, in a mount namespace that goes afterwards
#
# INSTALL_STAND  the program that gives a Debian GPUs and Slurm (stand.go)
# INSTALL_OLDER  the commit of the project that plays the release before
set -uo pipefail
packages=$(realpath "$1") scratch=$(realpath "$2")
cd "$(dirname "$0")/../.." || exit
shift 2
began=$SECONDS arch=$(dpkg --print-architecture) shown=0 failed=()

# must WHAT COMMAND...: what is worth a line only where it fails. COMMAND is a function of this shell's, or a program.
must() {
	"${@:2}" >"$scratch/said" 2>&1 && return
	printf '%-9s FAIL %s: %s\n%s\n' "$part" "$1" "${*:2}" "$(tail -n 30 "$scratch/said")"
	failed+=("$part: $1")
	return 1
}
# shows WHAT COMMAND...: what COMMAND says does not matter where it succeeds.
shows() {
	must "$@" || return
	shown=$((shown + 1))
	printf '%-9s ok   %s\n' "$part" "$1"
}

sums() {
	(cd "$packages" && sha256sum --check --strict SHA256SUMS) || return
	for file in "$packages"/*.deb "$packages"/*.rpm; do
		grep -qF "  ${file##*/}" "$packages/SHA256SUMS" || { echo "not in SHA256SUMS: $file"; return 1; }
	done
}

# wanted: mode, owner and path of what must be in a package.
wanted() {
	printf -- '-rwxr-xr-x root/root ./usr/%s\n' bin/bookend libexec/bookend/bookend-{prolog,epilog,healthcheck,gpu}
	printf -- '-rw-r--r-- root/root ./%s\n' etc/bookend/bookend.yaml etc/bookend/slurm/bookend.conf etc/logrotate.d/bookend \
		usr/lib/tmpfiles.d/bookend.conf usr/lib/systemd/system/run-bookend-drop.mount \
		usr/share/{bash-completion/completions/bookend,zsh/vendor-completions/_bookend,fish/vendor_completions.d/bookend.fish} \
		usr/share/doc/bookend/{copyright,docs/findings.md,licences/go/LICENSE}
	for page in deploy/man/*.[1-8]; do
		echo "-rw-r--r-- root/root ./usr/share/man/man${page##*.}/${page##*/}.gz"
	done
}

holds() {
	local deb lacks
	for deb in "$packages"/*.deb; do
		lacks=$(comm -13 <(dpkg-deb --contents "$deb" | awk '{ print $1, $2, $6 }' | sort) <(wanted | sort))
		[ -z "$lacks" ] || { echo "$deb lacks $lacks"; return 1; }
	done
}

# again: a copy of the tree as it lies here, built in another directory, gives the same bytes.
again() {
	local tree=$scratch/a/copy file
	mkdir -p "$tree"
	git ls-files -z | xargs -0 cp --parents --no-dereference -t "$tree"
	OUT=$scratch/again VERSION=$(deploy/packages/version.sh) SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) \
		"$tree/deploy/packages/build.sh" "$arch" || return
	[ "$(find "$scratch/again" -maxdepth 1 -name 'bookend*' | wc -l)" -eq 2 ] || return
	for file in "$scratch"/again/bookend*; do
		cmp "$file" "$packages/${file##*/}" || return
	done
}

late() { # a program that needs a newer C library is refused
	printf '%s\n' '#include <math.h>' '#include <stdlib.h>' \
		'int main(int n, char **v) { return (int)exp(atof(v[n - 1])); }' >"$scratch/late.c"
	gcc -O0 -o "$scratch/late" "$scratch/late.c" -lm && ! deploy/packages/glibc.sh 2.28 "$scratch/late" >"$scratch/late.said" 2>&1 &&
		grep -q 'newer than 2.28' "$scratch/late.said"
}

# debian SUITE PACKAGE...: a fresh Debian in $root, with the folders of $binds mounted, and the packages in its /root.
debian() {
	test/chroot/make.sh --fresh "$1" "$root" "${@:2}" && test/chroot/make.sh --mount "$root" "${binds[@]}" &&
		cp "$packages"/*.deb "$packages"/*.rpm deploy/packages/rpmlint.toml "$root/root"
}
# inside COMMAND: a line of shell, as root in /root of the Debian; env has further settings.
inside() {
	chroot "$root" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C TZ=UTC \
		DEBIAN_FRONTEND=noninteractive "${env[@]}" sh -c "cd /root && $1"
}
silent() { # succeeds and says nothing
	local said
	said=$("$@" 2>&1) && [ -z "$said" ] && return
	echo "$said"
	return 1
}

part_made() {
	shows "SHA256SUMS names each package, and fits" sums
	shows "the .deb has what it must have, root's, with the right modes" holds
	shows "another directory, the same bytes" again
	shows "the backend needs glibc 2.28 at most" deploy/packages/glibc.sh 2.28 "$packages"/*/bin/bookend-gpu
	shows "a program that needs a newer one is refused" late
	shows "a Debian to look at them from" debian bookworm lintian rpmlint rpm cpio || return
	shows "lintian has no error and no warning" silent inside \
		'lintian --allow-root --fail-on error,warning --tag-display-limit 0 *.deb'
	shows "rpmlint has no error and no warning" inside \
		"rpmlint --config rpmlint.toml *.rpm | grep ' 0 errors, 0 warnings'"
	shows "rpm finds the digests right" inside "! rpm --checksig *.rpm | grep -v 'digests OK'"
}

# stubbed: at each hook's path is a small script of root's that says so, exits 0, and is silent in a user's task.
stubbed() {
	local hook path
	for hook in prolog epilog healthcheck; do
		path=/usr/libexec/bookend/bookend-$hook
		[ "$(stat -c '%F %a %u:%g' "$root$path")" = "regular file 755 0:0" ] &&
			grep -q '# Left by the removal of Bookend' "$root$path" &&
			inside "env -i SLURM_SCRIPT_CONTEXT=prolog_slurmd $path 2>&1" | grep -F "$path" | grep -q "Bookend is not installed" &&
			silent inside "env -i SLURM_SCRIPT_CONTEXT=prolog_task $path" && continue
		echo "$path is no stub"
		return 1
	done
}
# programs: at the path of each hook that drains is the program again.
programs() {
	for hook in bookend-prolog bookend-epilog; do
		inside "/usr/libexec/bookend/$hook --version" | grep "$hook" || return
	done
}
keeps() { # an upgrade keeps what the admin configured
	inside "rpm --nodeps -U $*" && grep 'mode: enforce' "$root/etc/bookend/bookend.yaml" && programs
}
remains() {
	local slurm=$root/etc/bookend/slurm
	grep Prolog= "$slurm/bookend.conf" && grep 'mode: enforce' "$root/etc/bookend/bookend.yaml.rpmsave" &&
		grep bookend-prolog "$slurm/prolog.d/00-bookend.sh" && grep '#!/bin/sh' "$slurm/prolog.d/50-own.sh" &&
		[ ! -e "$root/etc/bookend/slurm.kept" ] && [ ! -e "$slurm/old" ]
}

# later: the same code as a later version, in $scratch/next.
later() {
	local version
	[ ! -e "$scratch/next/SHA256SUMS" ] || return 0
	version=$(dpkg-deb -f "$packages"/bookend_*_"$arch".deb Version) && version=${version%-1}
	case $version in *+*) version+=.next ;; *) version+=+next ;; esac
	OUT=$scratch/next VERSION=$version deploy/packages/build.sh "$arch"
}

part_rpm() { # Debian's: there is no RHEL here
	local old new
	old="bookend-*.$(uname -m).rpm" new="next/bookend-*.$(uname -m).rpm" # for a shell in the chroot
	shows "a Debian with rpm" debian bookworm lintian rpmlint rpm cpio || return
	shows "a later version is built" later || return
	mkdir "$root/root/next" && cp "$scratch"/next/*.rpm "$root/root/next"
	shows "rpm --root installs it into an empty root (by Debian's rpm)" inside \
		"mkdir /empty && rpm --root /empty --initdb && rpm --root /empty --nodeps --noscripts -i $old" || return
	shows "rpm --verify finds all as packaged" silent inside "rpm --root /empty --nodeps -V bookend"
	shows "its configuration is marked as such" inside "rpm --root /empty -q --configfiles bookend >f &&
		grep /etc/bookend/bookend.yaml f && grep /etc/logrotate.d/bookend f"
	shows "its static programs start where nothing else is" inside \
		"chroot /empty /usr/bin/bookend version && chroot /empty /usr/libexec/bookend/bookend-epilog --version"
	shows "rpm -i, with its scripts" inside "rpm --nodeps -i $old" || return
	printf 'version: 1\nmode: enforce\n' >"$root/etc/bookend/bookend.yaml"
	shows "rpm -U keeps the admin's configuration" keeps "$new"
	shows "rpm -U --oldpackage, the same" keeps --oldpackage "$old"
	printf '#!/bin/sh\n' >"$root/etc/bookend/slurm/prolog.d/50-own.sh"
	chmod 755 "$root/etc/bookend/slurm/prolog.d/50-own.sh"
	mkdir -p "$root/etc/bookend/slurm.kept/old" # what a removal leaves that was cut short
	shows "rpm -e" inside "rpm -e bookend"
	shows "it leaves a stub at each hook's path" stubbed
	shows "and nothing of its programs" silent find "$root/usr/libexec/bookend" -name '*.*'
	shows "and what slurm.conf includes, and the admin's configuration" remains
	shows "rpm -i replaces the stubs" inside "rpm --nodeps -i $old"
	shows "by programs" programs
}

# leave takes away what the part made.
leave() {
	must "the GPUs and Slurm end" unplug
	must "take the Debian away" test/chroot/make.sh --remove "$root"
	root=$scratch/none
}
unplug() { :; }
# shellcheck source=test/install/debian.sh
. test/install/debian.sh

root=$scratch/none part=end env=() binds=()
trap leave EXIT
trap 'exit 1' HUP INT TERM
for part in "$@"; do
	root=$scratch/$part env=() binds=()
	printf '%-9s --\n' "$part"
	"part_$part"
	leave
done
[ "${#failed[@]}" -eq 0 ] || printf 'not shown: %s\n' "${failed[@]}"
echo "install-test: $shown things shown, ${#failed[@]} not, in $((SECONDS - began)) s"
[ "${#failed[@]}" -eq 0 ]
