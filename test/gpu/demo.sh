#!/bin/sh
# What "make demo" runs: says what is missing, installs Slurm where it is, builds, and tells the story, on this machine's GPUs
# or else on fake ones.
# usage: test/gpu/demo.sh [flags of test/gpu]
set -eu
cd "$(dirname "$0")/../.."

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

make build
test/gpu/build.sh bin
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
exec $sudo env BOOKEND_SLURM_ROOT="$slurm" bin/gpu-lane --story --out build/demo $fake "$@"
