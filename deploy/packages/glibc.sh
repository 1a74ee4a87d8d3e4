#!/bin/sh
# Says which versions of the C library's functions a program needs, and fails where one is newer than allowed, or nothing can
# be told.
#
# usage: glibc.sh NEWEST PROGRAM...      NEWEST such as 2.28
set -eu
newest=${1:?usage: glibc.sh NEWEST PROGRAM...}
shift
for program in "$@"; do
	needed=$(readelf -W --version-info "$program" | sed -n 's/.*Name: GLIBC_\([0-9.]*\) .*/\1/p' | sort -uV)
	[ -n "$needed" ] || {
		echo "glibc: $program: needs none, or is no program" >&2
		exit 1
	}
	last=$(echo "$needed" | tail -n 1)
	[ "$(printf '%s\n' "$newest" "$last" | sort -V | tail -n 1)" = "$newest" ] || {
		echo "glibc: $program needs $last, newer than $newest:" >&2
		readelf -W --dyn-syms "$program" | grep -o "[^ ]*@GLIBC_$last" >&2 || true
		exit 1
	}
	echo "glibc: ${program##*/} needs $last at most; allowed is $newest"
done
