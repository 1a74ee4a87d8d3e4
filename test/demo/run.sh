#!/bin/sh
# What "make demo" runs: says what is missing, installs Slurm where it is, builds, and tells the story.
# usage: test/demo/run.sh [flags of test/demo]
set -eu
cd "$(dirname "$0")/../.."

missing=
for program in go make gcc; do
	command -v "$program" >/dev/null || missing="$missing $program"
done
if [ -n "$missing" ]; then
	echo "demo: missing:$missing" >&2
	case "$missing" in *make* | *gcc*) echo "demo: Debian and Ubuntu: apt-get install make gcc libc6-dev" >&2 ;; esac
	case "$missing" in *go*) echo "demo: Go 1.26 or later: https://go.dev/doc/install" >&2 ;; esac
	exit 1
fi
host=$(uname -n)
host=${host%%.*}
getent hosts "$host" >/dev/null || {
	echo "demo: missing: an address of this machine's name, for slurmctld: echo 127.0.1.1 $host >>/etc/hosts" >&2
	exit 1
}

for flag in "$@"; do
	case "$flag" in -h | -help | --help) exec go run ./test/demo -help ;; esac
done

make build
found=$(test/install-slurm.sh)
slurm=$(printf '%s\n' "$found" | sed -n 's/^BOOKEND_SLURM_ROOT=//p')
go build -o build/demo ./test/demo
if [ "$(id -u)" -eq 0 ]; then
	BOOKEND_SLURM_ROOT=$slurm exec build/demo "$@"
fi
echo "demo: slurmd starts jobs as their users and needs root: sudo build/demo" >&2
exec sudo BOOKEND_SLURM_ROOT="$slurm" build/demo "$@"
