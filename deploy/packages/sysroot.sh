#!/bin/sh
# Makes a folder with the C library of Debian 11 (glibc 2.31) to build the backend against, which is started on systems older
# than the one that builds. Downloads and unpacks packages; nothing is installed, and root is not needed.
#
# usage: sysroot.sh ARCH FOLDER      ARCH is amd64 or arm64; a whole FOLDER is left as it is
#
# BOOKEND_DEBIAN_MIRROR names the mirror; default: apt's own on Debian. BOOKEND_DEBOOTSTRAP_FLAGS=--no-check-gpg is for one
# that signs nothing.
set -eu
arch=${1:?usage: sysroot.sh ARCH FOLDER}
folder=$(realpath -m "${2:?usage: sysroot.sh ARCH FOLDER}")
suite=bullseye
packages="libc6 libc6-dev linux-libc-dev"

say() { echo "sysroot: $*" >&2; }

mkdir -p "$(dirname "$folder")"
exec 9>"$folder.lock"
flock 9
[ ! -s "$folder/packages" ] || exit 0
command -v apt-get >/dev/null || {
	say "needs apt-get, as on Debian and Ubuntu"
	exit 1
}
mirror=${BOOKEND_DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI) $(LABEL)' 'Created-By: Packages' 2>/dev/null |
	sed -n 's/ Debian$//p' | head -n 1)}
[ -n "$mirror" ] || {
	say "name a mirror of Debian: BOOKEND_DEBIAN_MIRROR"
	exit 1
}

# An apt of its own: its lists, its architecture, nothing of the host's but the keys.
say "fetching the C library of $suite for $arch"
new=$folder.new
rm -rf "$new"
mkdir -p "$new/apt/lists/partial" "$new/apt/cache/archives/partial" "$new/apt/etc" "$new/debs"
: >"$new/apt/status"
trusted=
case " ${BOOKEND_DEBOOTSTRAP_FLAGS:-} " in *" --no-check-gpg "*) trusted="[trusted=yes]" ;; esac
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ -n "$trusted" ] || [ ! -e "$keys" ] || trusted="[signed-by=$keys]"
echo "deb $trusted $mirror $suite main" >"$new/apt/etc/sources.list"
fetch() {
	apt-get -q -o Dir::State="$new/apt" -o Dir::State::status="$new/apt/status" -o Dir::Cache="$new/apt/cache" \
		-o Dir::Etc::sourcelist="$new/apt/etc/sources.list" -o Dir::Etc::sourceparts=- -o APT::Sandbox::User= \
		-o APT::Architecture="$arch" -o APT::Architectures="$arch" -o Acquire::Languages=none "$@" >&2
}
fetch update
(cd "$new/debs" && fetch download $packages)
for deb in "$new"/debs/*.deb; do
	dpkg-deb -x "$deb" "$new"
	dpkg-deb -W "$deb" >>"$new/apt/packages"
done
# Links from one folder of libraries to another begin at the root: here they must begin at the folder.
find "$new" -type l -lname '/*' | while read -r link; do
	ln -sfn "$(realpath -m --relative-to="$(dirname "$link")" "$new$(readlink "$link")")" "$link"
done
mv "$new/apt/packages" "$new/packages" # last: what has it is whole
rm -rf "$folder" "$new/apt" "$new/debs"
mv "$new" "$folder"
