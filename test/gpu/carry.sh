#!/bin/bash
# Packs what the GPU lane needs into one folder, for a GPU machine that has neither Go nor Slurm nor a network:
# all programs, and this Debian machine's Slurm with the libraries it needs (test/gpu/run.sh unpacks it there).
# The folder is ignored by git. Put it and the tree on the GPU machine, then run test/gpu/run.sh there as root.
# usage: carry.sh [FOLDER]        (default build/lane, about 20 MB)
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-build/lane}
programs="munged slurmctld slurmd slurmstepd sbatch srun scontrol sinfo squeue scancel"
plugins=usr/lib/x86_64-linux-gnu/slurm-wlm
# The C library belongs to the machine the programs run on, as does what is built along with it.
not_ours='/(libc|libm|libdl|libpthread|librt|libresolv|libgcc_s|ld-linux-x86-64)[.-]'

make --no-print-directory build
test/gpu/build.sh bin
rm -rf "$out"
mkdir -p "$out/bin"
cp bin/bookend-prolog bin/bookend-epilog bin/bookend-healthcheck bin/bookend bin/bookend-gpu bin/bookend-amd bin/bookend-hip bin/gpu-lane bin/cudajob bin/bare bin/idle bin/bookend-gpu-plant bin/libslowcuda.so "$out/bin/"

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/root/usr/sbin" "$tree/root/usr/bin" "$tree/root/${plugins%/*}" "$tree/libs"
for program in $programs; do
	path=$(command -v "$program") || { echo "carry: no $program here: test/install-slurm.sh installs it on Debian 12" >&2; exit 1; }
	cp -L "$path" "$tree/root/usr/${path#/usr/}"
done
cp -a "/$plugins" "$tree/root/$plugins"
find "$tree/root" -type f -print0 | { xargs -0 ldd 2>/dev/null || true; } | awk '/=> \//{print $3}' | sort -u |
	{ grep -vE "$not_ours|slurm-wlm" || true; } | xargs -r cp -Ln --target-directory="$tree/libs"
# Files alone, no folders: unpacked into /, the machine's own folders keep their owners and modes.
(cd "$tree" && find root libs ! -type d | sort) | tar -C "$tree" --owner=0 --group=0 --no-recursion -cJf "$out/slurm.tar.xz" -T -
du -sh "$out" && ls -l "$out" "$out/bin"
