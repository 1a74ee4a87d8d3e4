#!/bin/bash
# Runs every fuzz target of the tree, each for a bounded time: go test takes one at a time. It finds them by itself.
#
#   fuzz.sh [--time 10s] [--jobs 2] [--only TEXT] [--list]
#
# --only takes the targets whose package and name contain TEXT. go test keeps an input that fails below testdata/fuzz of
# its package, where every later run tries it again; its path is printed.
# Exit codes: 0 no target failed and each executed something, 1 one did not, 64 usage.
cd "$(dirname "$0")/.." || exit 64

usage() {
	sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2
	exit 64
}

# one fuzzes a target with one worker. An input is shrunk for 100 runs only: unbounded that takes most of the time.
# Files are written in memory: Go ends a target of which one execution takes 10 s, and a busy disk can take so long.
one() {
	local package=$1 name=$2 result=ok out status executions
	[ -d /dev/shm ] && export GOTMPDIR="${GOTMPDIR:-${TMPDIR:-/tmp}}" TMPDIR=/dev/shm
	out=$(go test -run='^$' -fuzz="^$name\$" -fuzztime="$time" -fuzzminimizetime=100x -parallel=1 "$package" 2>&1)
	status=$?
	executions=$(sed -n 's/^fuzz: elapsed: .*, execs: \([0-9]*\) .*/\1/p' <<<"$out" | tail -n 1)
	if [ $status != 0 ] && ! ended_late "$out"; then
		result=FAILED
	elif [ "${executions:-0}" = 0 ]; then
		result="EXECUTED NOTHING"
	fi
	printf '%-26s %-26s %12s  %s\n' "$package" "$name" "${executions:-0}" "$result"
	[ "$result" = ok ] && return
	grep -v '^fuzz: ' <<<"$out" | tail -n 40 | sed 's/^/    /'
	return 1
}

# ended_late: Go before 1.27 may take the end of a target's time for a failure. It then says this and nothing else.
ended_late() {
	grep -A 2 '^--- FAIL' <<<"$1" | tr '\n' ' ' | grep -qE '^--- FAIL: \S+ \(\S+\) +context deadline exceeded FAIL $'
}

export time=10s
jobs=2 only='' list=
while [ $# -gt 0 ]; do
	case $1 in
	--list) list=yes ;;
	--time) time=$2 && shift ;;
	--jobs) jobs=$2 && shift ;;
	--only) only=$2 && shift ;;
	*) usage ;;
	esac
	shift
done

# "./internal/slurm FuzzFromEnv", a line each. One in a file that is not built here executes nothing, and fails.
targets=$(grep -roE --include='*_test.go' --exclude-dir={shared,testdata,build} '^func Fuzz\w*\(\w+ \*testing\.F\)' . |
	sed -E 's,^(.*)/[^/]*:func (Fuzz\w*)\(.*,\1 \2,' | sort | grep -F -- "$only")
if [ -z "$targets" ]; then
	echo "fuzz: no target's package and name contain \"$only\"" >&2
	exit 64
fi
if [ -n "$list" ]; then
	echo "$targets"
	exit
fi
export -f one ended_late
printf '%-26s %-26s %12s  %s\n' package target executions result
xargs -P "$jobs" -L 1 bash -c 'one "$@"' fuzz <<<"$targets" && echo "all well, $time each" || exit 1
