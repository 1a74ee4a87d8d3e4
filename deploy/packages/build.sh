#!/bin/sh
# Makes the packages: bookend_VERSION-1_ARCH.deb, bookend-VERSION-1.ARCH.rpm and SHA256SUMS. The same tree makes the same bytes,
# in whatever folder and whenever.
#
# usage: build.sh [ARCH...]      amd64 and arm64; default: both
#
# OUT      where to put them, and what is made on the way (default build/packages)
# VERSION  theirs (default: version.sh's)
# MAINTAINER  who maintains these packages: "NAME <ADDRESS>", to whom users report
# SOURCE_DATE_EPOCH  the time of all files in them (default: the commit's)
set -eu
umask 022
cd "$(dirname "$0")/../.."
top=$PWD here=deploy/packages
$here/needs.sh go make gcc git curl readelf xz
out=$(realpath -m "${OUT:-build/packages}")
sysroots=$top/build/sysroots
newest_glibc=2.28 # RHEL 8's
VERSION=${VERSION:-$($here/version.sh)}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
MAINTAINER=${MAINTAINER:-The Bookend maintainers <bookend@localhost>}
export VERSION MAINTAINER SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC

die() {
	echo "packages: $*" >&2
	exit 1
}

# triplet ARCH: as C compilers call it.
triplet() {
	case "$1" in
	amd64) echo x86_64-linux-gnu ;;
	arm64) echo aarch64-linux-gnu ;;
	*) die "architecture $1: want amd64 or arm64" ;;
	esac
}

# need_compiler TRIPLET: Debian's is installed where it is missing.
need_compiler() {
	! command -v "$1-gcc" >/dev/null || return 0
	package=gcc-$(echo "$1" | tr _ -)
	[ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null || die "missing: $1-gcc (Debian, Ubuntu: $package)"
	export DEBIAN_FRONTEND=noninteractive
	apt-get install -q -y --no-install-recommends "$package" >&2 ||
		{ apt-get update -q >&2 && apt-get install -q -y --no-install-recommends "$package" >&2; } || die "no $package"
}

# compile ARCH: all programs; the backend against an old C library, and with none of its functions that came later.
compile() {
	for=$(triplet "$1")
	need_compiler "$for"
	$here/sysroot.sh "$1" "$sysroots/$1"
	# Named again by -B and -L: gcc looks beside itself before it looks into a sysroot.
	libraries=$sysroots/$1/usr/lib/$for
	GOARCH=$1 CC="$for-gcc --sysroot=$sysroots/$1 -B$libraries -L$libraries" \
		make --no-print-directory build BIN="$work/bin" VERSION="$VERSION"
	$here/glibc.sh "$newest_glibc" "$work/bin/bookend-gpu" "$work/bin/bookend-hip"
}

# man FILE...: where man looks for them.
man() {
	for page in "$@"; do
		[ -e "$page" ] || continue
		section=${page##*.}
		install -d "$stage/usr/share/man/man$section"
		gzip -9n <"$page" >"$stage/usr/share/man/man$section/${page##*/}.gz"
	done
}

# shells: completions, as the program itself tells them, built for the machine that builds.
shells() {
	native=$out/native
	"$native" completion bash >/dev/null 2>&1 || return 0
	install -d "$stage/usr/share/bash-completion/completions" "$stage/usr/share/zsh/vendor-completions" \
		"$stage/usr/share/zsh/site-functions" "$stage/usr/share/fish/vendor_completions.d"
	"$native" completion bash >"$stage/usr/share/bash-completion/completions/bookend"
	"$native" completion zsh >"$stage/usr/share/zsh/vendor-completions/_bookend"
	cp "$stage/usr/share/zsh/vendor-completions/_bookend" "$stage/usr/share/zsh/site-functions/_bookend"
	"$native" completion fish >"$stage/usr/share/fish/vendor_completions.d/bookend.fish"
}

# licences: of every module that is linked into a program, as most of them ask for.
licences() {
	go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}' ./prolog ./epilog ./admin ./cuda ./rocm $(hookfolders) |
		sort -u | while read -r module folder; do
		for file in "$folder"/LICENSE* "$folder"/NOTICE*; do
			[ ! -e "$file" ] || install -D -m 0644 "$file" "$1/licences/$(echo "$module" | tr / _)/${file##*/}"
		done
	done
	install -D -m 0644 "$(go env GOROOT)/LICENSE" "$1/licences/go/LICENSE"
}
hookfolders() { [ ! -d healthcheck ] || echo ./healthcheck; }

# put together the tree as it will be installed.
put_together() {
	install -d "$stage"
	for program in "$work"/bin/*; do
		folder=/usr/libexec/bookend
		[ "${program##*/}" != bookend ] || folder=/usr/bin
		install -D -m 0755 -t "$stage$folder" "$program"
	done
	install -D -m 0644 -t "$stage/etc/bookend" configs/bookend.yaml
	install -D -m 0644 deploy/logrotate/bookend "$stage/etc/logrotate.d/bookend"
	install -D -m 0644 -t "$stage/usr/lib/tmpfiles.d" deploy/tmpfiles.d/*.conf
	for unit in deploy/systemd/*.mount deploy/systemd/*.service deploy/systemd/*.timer; do
		[ ! -e "$unit" ] || install -D -m 0644 -t "$stage/usr/lib/systemd/system" "$unit"
	done
	[ ! -d deploy/slurm ] || cp -RL deploy/slurm "$stage/etc/bookend/slurm" # a link is no configuration file to dpkg: it would go with the package
	man deploy/man/*.[1-8]
	shells
	documents "$stage/usr/share/doc/bookend"
	install -D -m 0644 -t "$stage/usr/share/licenses/bookend" LICENSE
	install -D -m 0644 $here/lintian-overrides "$stage/usr/share/lintian/overrides/bookend"
}

documents() {
	install -D -m 0644 -t "$1" README.md SECURITY.md $here/copyright
	install -D -m 0644 -t "$1/docs" docs/*.md
	install -D -m 0644 -t "$1/deploy" deploy/*.md
	for example in prometheus grafana nhc nvsentinel examples; do
		[ ! -d "deploy/$example" ] || cp -R "deploy/$example" "$1/$example"
	done
	gzip -9n <CHANGELOG.md >"$1/changelog.gz"
	$here/changelog.sh "$VERSION-1" "$SOURCE_DATE_EPOCH" "$MAINTAINER" | gzip -9n >"$1/changelog.Debian.gz"
	licences "$1"
}

# contents lists the tree for nfpm: what lies in /etc is the admin's; folders are ours where nobody else has them.
contents() {
	echo "contents:"
	(cd "$stage" && find . \( -type f -o -type l \) | sort) | sed 's/^\.//' | while read -r path; do
		mode=$(stat -c %04a "$stage$path") kind=
		case "$path" in
		/etc/*) kind="type: config|noreplace, " ;;
		*/zsh/vendor-completions/* | */lintian/* | *.Debian.gz) kind="packager: deb, " ;;
		/usr/share/licenses/*) kind="type: license, packager: rpm, " ;;
		*/zsh/site-functions/*) kind="packager: rpm, " ;;
		/usr/share/doc/* | /usr/share/man/*) kind="type: doc, packager: rpm, " ;;
		esac
		if [ -L "$stage$path" ]; then
			echo "  - {src: '$(readlink "$stage$path")', dst: '$path', type: symlink, file_info: {mtime: $date}}"
		else
			file="src: '$stage$path', dst: '$path', file_info: {mode: $mode, owner: root, group: root, mtime: $date}"
			echo "  - {$kind$file}"
			# To rpm documents are a kind of their own, to dpkg they are files.
			case "$kind" in "type: doc"*) echo "  - {packager: deb, $file}" ;; esac
		fi
	done
	(cd "$stage" && find etc/bookend usr/libexec/bookend usr/share/doc/bookend -type d | sort) | while read -r path; do
		echo "  - {dst: '/$path', type: dir, file_info: {mode: 0755, owner: root, group: root, mtime: $date}}"
	done
}

# scripts puts the shared parts where the scripts name them.
scripts() {
	install -d "$work/scripts"
	for script in postinstall preremove postremove; do
		awk -v folder="$here/scripts/" '
			function put(file, line) { while ((getline line <file) > 0) if (match(line, /^@[a-z.]+@$/)) place(line); else print line; close(file) }
			function place(line) { put(folder substr(line, 2, length(line) - 2) (line ~ /\.sh@$/ ? "" : ".sh")) }
			/^@[a-z.]+@$/ { place($0); next }
			{ print }' "$here/scripts/$script.sh" >"$work/scripts/$script"
		chmod 0755 "$work/scripts/$script"
		sh -n "$work/scripts/$script"
	done
}

package() { # ARCH
	work=$out/$1 stage=$out/$1/root
	rm -rf "$work"
	mkdir -p "$work"
	compile "$1"
	put_together
	scripts
	find "$stage" -exec chmod u+rwX,go+rX,go-w {} + -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
	date=$(date -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
	{
		cat $here/nfpm.yaml
		printf 'version: "%s"\narch: %s\nmaintainer: "%s"\nmtime: %s\n' "$VERSION" "$1" "$MAINTAINER" "$date"
		contents
	} >"$work/nfpm.yaml"
	for packager in deb rpm; do
		(cd "$work" && "$out/nfpm" package --config nfpm.yaml --packager "$packager" --target "$out")
	done
}

rm -rf "$out"
mkdir -p "$out"
CGO_ENABLED=0 go build -trimpath -buildvcs=false -o "$out/native" ./admin
CGO_ENABLED=0 go build -modfile=$here/tools/go.mod -o "$out/nfpm" github.com/goreleaser/nfpm/v2/cmd/nfpm
[ $# -gt 0 ] || set -- amd64 arm64
for arch in "$@"; do
	package "$arch"
done
cd "$out"
rm -f nfpm native
sha256sum -- *.deb *.rpm >SHA256SUMS
cat SHA256SUMS
