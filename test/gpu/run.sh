#!/bin/bash
# Runs the GPU lane: Bookend under a real Slurm on this machine's real GPUs, judged by machine. It needs root, the
# GPUs for itself, and Slurm 22.05 or later: where none is installed, the one that test/gpu/carry.sh packed is
# unpacked into /usr and /opt/bookend-lane (for machines that are thrown away afterwards).
# usage: run.sh --check               is there a GPU?
#        run.sh [FOLDER [FLAG...]]    records go to FOLDER (default build/gpu-records); flags as gpu-lane has them:
#                                    --only base (who left what), --only why,probe (out of memory, test allocations),
#                                    each some eight minutes; together they do not fit into one run;
#                                    --only check --runs 1 (the health check), a minute and a half
# Exit codes: 0 all right, 1 something was wrong or could not be run, 3 no GPU on this machine, 4 this machine
# cannot run the lane, 64 usage.
set -euo pipefail
tree=$(cd "$(dirname "$0")/../.." && pwd)
carried=$tree/build/lane
limit=590 # seconds for everything; the lane begins no run after nine minutes

unpack_slurm() {
	echo "gpu lane: no Slurm here: unpacking $carried/slurm.tar.xz"
	local temporary
	temporary=$(mktemp -d)
	tar -xJf "$carried/slurm.tar.xz" -C "$temporary"
	# Files alone: folders that exist keep their owners and modes.
	(cd "$temporary/root" && find usr ! -type d -print0 | tar --null -cf - -T -) | tar -xf - -C / --skip-old-files
	# Only the libraries this machine lacks, and behind its own.
	mkdir -p /opt/bookend-lane/lib
	for library in "$temporary"/libs/*; do
		ldconfig -p | grep -qF "	${library##*/} " || cp "$library" /opt/bookend-lane/lib/
	done
	rm -rf "$temporary"
	echo /opt/bookend-lane/lib >/etc/ld.so.conf.d/zz-bookend-lane.conf
	ldconfig
}

if [ -z "$(find /proc/driver/nvidia/gpus -name information 2>/dev/null)" ] && [[ " $* " != *" --fake "* ]]; then
	echo "gpu lane: no GPU on this machine: /proc/driver/nvidia/gpus shows none" >&2
	exit 3
fi
[ "${1:-}" != --check ] || exit 0
if [ "$(id -u)" -ne 0 ]; then
	echo "gpu lane: needs root: slurmd starts jobs as their users" >&2
	exit 4
fi
programs=$tree/bin
[ -x "$programs/gpu-lane" ] || programs=$carried/bin
if ! command -v slurmd >/dev/null; then
	if [ ! -r "$carried/slurm.tar.xz" ]; then
		echo "gpu lane: no slurmd on this machine, and no $carried/slurm.tar.xz: install Slurm 22.05 or later, or" \
			"run test/gpu/carry.sh on Debian 12 and bring its folder along" >&2
		exit 4
	fi
	unpack_slurm
fi
slurmd -V
out=${1:-$tree/build/gpu-records}
mkdir -p "$out"
exec timeout --kill-after=30 "$limit" "$programs/gpu-lane" --out "$out" --programs "$programs" "${@:2}"
