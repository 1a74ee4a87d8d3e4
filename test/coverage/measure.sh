#!/bin/bash
# Measures which statements of the privileged and of the state code the tests reach, in every process that they start:
# test binaries, the built hooks, and the children that these start of themselves and turn into users.
#
#   measure.sh [--min PERCENT] [--out FILE] [--profile FILE] [SUITE ...]
#
# Runs as root. Suites are packages of tests, beside the measured packages' own; without any, test/faults, which runs
# the built hooks. --out keeps the profile, as go tool cover reads it; --profile judges an earlier one without a run.
# Every statement that was not reached must be explained in test/coverage/gaps.txt.
# Exit codes: 0 all is as it should be, 1 too little was reached, a gap is not explained or a test failed, 64 usage.
cd "$(dirname "$0")/../.." || exit 64

# What runs as root for every job, or keeps what hooks must remember.
measured=(internal/{child,joblog,safefile,state})
# Instrumented too, though not measured: a program whose main package is not writes nothing at all.
programs=(prolog epilog healthcheck admin)

usage() {
	sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2
	exit 64
}

least=95 out='' profile=''
while [[ $1 == -* ]]; do
	case $1 in
	--min | -min) least=$2 ;;
	--out | -out) out=$2 ;;
	--profile | -profile) profile=$2 ;;
	*) usage ;;
	esac
	shift 2 || usage
done
suites=("${@:-test/faults}")
wrong=0
work=$(mktemp -d /tmp/bookend-coverage-XXXXXX) || exit 64
trap 'rm -rf "$work"' EXIT

# A hook starts its children with an empty environment, as it must, so GOCOVERDIR cannot tell them where to write: the
# folder is built into Go's own package for such data, by an overlay. The measured code stays as it is.
overlay() {
	local theirs from='goCoverDir = os.Getenv("GOCOVERDIR")'
	theirs=$(go env GOROOT)/src/internal/coverage/cfile/emit.go
	if [ "$(grep -cF "$from" "$theirs")" != 1 ]; then
		echo "coverage: this version of Go has no line $from: adapt test/coverage/measure.sh" >&2
		exit 64
	fi
	sed "s,goCoverDir = os.Getenv(,goCoverDir = \"$work/data\"; _ = os.Getenv(," "$theirs" >"$work/emit.go"
	echo "{\"Replace\": {\"$theirs\": \"$work/emit.go\"}}" >"$work/overlay.json"
}

# Every user writes to the folder of the data: a child that has become the job's user reports from there. It has a name
# that nobody knows, and goes when the run ends.
measure() {
	chmod 0711 "$work" && mkdir "$work/data" && chmod 0777 "$work/data" || exit 64
	overlay
	local packages
	packages=$(printf 'bookend/%s,' "${measured[@]}" "${programs[@]}")
	# GOFLAGS, not arguments: it reaches the builds that tests do themselves. The tests that are left out plant a defect in
	# a hook by an overlay of their own, which would take the place of this one.
	GOFLAGS="$GOFLAGS -cover -covermode=set -coverpkg=${packages%,} -overlay=$work/overlay.json" \
		go test -count=1 -timeout=30m -skip='^TestPanicIn(Main|Goroutine)$' \
		"${measured[@]/#/./}" "${suites[@]/#/./}" -args -test.gocoverdir="$work/data" >&2 || wrong=1
	rm -f "$work"/data/tmp.* # of processes that were killed while they wrote
	profile=$work/profile
	go tool covdata textfmt -i="$work/data" -o="$profile" || exit 64
	[ -z "$out" ] || cp "$profile" "$out" || exit 64
}

[ -n "$profile" ] || measure
awk -v least="$least" -v measured="${measured[*]}" -f test/coverage/judge.awk test/coverage/gaps.txt "$profile" ||
	wrong=1
exit $wrong
