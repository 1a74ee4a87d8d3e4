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
# Without apt: these files and no others, by their checksums.
pinned() {
	while read -r name path sum; do
		case "$path" in *_"$arch".deb) ;; *) continue ;; esac
		curl -fsSL -o "$new/debs/$name.deb" "$mirror/pool/main/$path" && echo "$sum  $new/debs/$name.deb" | sha256sum --check --quiet
	done <<END
libc6 g/glibc/libc6_2.31-13+deb11u11_amd64.deb 05f7264da867b37f4c5ce49266b558ea1e81e05a9464f623152fca70f3550282
libc6-dev g/glibc/libc6-dev_2.31-13+deb11u11_amd64.deb e7f7b45d9c5cfcf37609f0b6efd3c645272c812144703af89dfd32218fcb0fd3
linux-libc-dev l/linux/linux-libc-dev_5.10.223-1_amd64.deb e3be603bd12377bb90fcfb0f2048ca3a81c886e49d6f09945b82159d1c54f7b2
libc6 g/glibc/libc6_2.31-13+deb11u11_arm64.deb baaa9aa184e2f21738c5819055e6740cc5b22f198e3f416e33f82b40ff6933d8
libc6-dev g/glibc/libc6-dev_2.31-13+deb11u11_arm64.deb 28d478134722dcd4b0bd2045a199301d18713bf95947b9fce66634e7aeacab2e
linux-libc-dev l/linux/linux-libc-dev_5.10.223-1_arm64.deb 8b6374a64412d33eac61d74f77b8f932da4b8a707ea8a614791e2a35b8917618
END
}
if command -v apt-get >/dev/null; then
	fetch update
	(cd "$new/debs" && fetch download $packages)
else
	pinned
fi
for deb in "$new"/debs/*.deb; do # an archive of ar's, which binutils has wherever there is a C compiler
	ar p "$deb" data.tar.xz | tar -xJ -C "$new"
	sha256sum "$deb" | cut -d' ' -f1 >>"$new/apt/packages"
done
# Links from one folder of libraries to another begin at the root: here they must begin at the folder.
find "$new" -type l -lname '/*' | while read -r link; do
	ln -sfn "$(realpath -m --relative-to="$(dirname "$link")" "$new$(readlink "$link")")" "$link"
done
mv "$new/apt/packages" "$new/packages" # last: what has it is whole
rm -rf "$folder" "$new/apt" "$new/debs"
mv "$new" "$folder"
