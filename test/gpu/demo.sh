#!/bin/sh
# What "make demo" runs: says what is missing, installs Slurm where it is, builds, and tells stories, on this machine's GPUs
# or else on fake ones.
# usage: test/gpu/demo.sh STORY,... [flags of test/gpu]; "" for the usual ones, "help" lists them
set -eu
cd "$(dirname "$0")/../.."
story=${1:-usual}
shift $(($# > 0))

deploy/packages/needs.sh go make gcc
host=$(uname -n)
host=${host%%.*}
getent hosts "$host" >/dev/null || {
	echo "demo: missing: an address of this machine's name, for slurmctld: echo 127.0.1.1 $host >>/etc/hosts" >&2
	exit 1
}
for flag in "$@"; do
	case "$flag" in -h | -help | --help) exec go run ./test/gpu -help ;; esac
done

[ "$story" = help ] || echo "Building, which takes some minutes the first time..."
test/gpu/build.sh bin
stories=$(bin/gpu-lane --story help)
for name in $(printf '%s' "$story" | tr , ' '); do
	printf '%s\n' "$stories" | grep -q "^  $name " && continue
	[ "$name" = help ] || echo "demo: no such story: $name; these are there:" >&2
	printf '%s\n' "$stories"
	[ "$name" = help ]
	exit
done
make -s build
found=$(test/install-slurm.sh)
slurm=$(printf '%s\n' "$found" | sed -n 's/^BOOKEND_SLURM_ROOT=//p')
fake=--fake=2
[ -z "$(find /proc/driver/nvidia/gpus -name information 2>/dev/null)" ] || fake=
sudo=
[ "$(id -u)" -eq 0 ] || {
	echo "demo: slurmd starts jobs as their users and needs root" >&2
	sudo=sudo
}
# shellcheck disable=SC2086 # none of them is empty by mistake
exec $sudo env BOOKEND_SLURM_ROOT="$slurm" NO_COLOR="${NO_COLOR:-}" bin/gpu-lane --story "$story" --out build/demo $fake "$@"
