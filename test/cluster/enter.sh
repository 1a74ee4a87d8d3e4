#!/bin/sh
# Makes the root folder $1 the root of this mount namespace, which is the caller's alone, and runs a command in folder $2
# there; $3 lists folders of the host to be seen beside its /proc, /sys, /dev and accounts, separated by colons; $4 is "own"
# where nobody else uses the folder. What is running there then is in no chroot: its paths read like the host's. The mounts
# go with the namespace's last process.
set -eu
root=$1 folder=$2 binds=/proc:/sys:/dev:$3 used=$4
shift 4
mount --rbind "$root" "$root"
# Nothing is written to a folder which others use too: no mount point, no log, nothing at a hook's default place.
if [ "$used" != own ]; then
	for dir in run var/log var/lib; do mount -t tmpfs -o mode=0755 none "$root/$dir"; done
fi
IFS=:
for dir in $binds; do
	mkdir -p "$root$dir"
	mount --rbind "$dir" "$root$dir"
done
unset IFS
for file in passwd group hosts hostname; do
	[ -e "/etc/$file" ] || continue
	[ -e "$root/etc/$file" ] || : >"$root/etc/$file"
	mount --bind "/etc/$file" "$root/etc/$file"
done
cd "$root"
pivot_root . .
umount -l . # the host's own tree, which is on top
exec env -C "$folder" "$@"
