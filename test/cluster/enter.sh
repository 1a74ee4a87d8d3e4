#!/bin/sh
# Runs a command in the root folder $1 as user $2 (uid:gid) with supplementary groups $3, in folder $4; $5 lists
# folders to be seen there beside the host's /proc, /sys, /dev and accounts, separated by colons. Called in a
# mount namespace of its own: the mounts go when the command and its children are gone.
set -eu
root=$1 who=$2 groups=$3 folder=$4 binds=/proc:/sys:/dev:$5
shift 5
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
exec chroot --userspec="$who" --groups="$groups" "$root" env -C "$folder" "$@"
