#!/bin/sh
# Looks for known vulnerabilities in what the programs really call, with the Go project's govulncheck.
#
#   vulns.sh [PACKAGE ...]
#
# VULNDB is the database: a URL, or a folder with a copy of it; without VULNDB it is the public one. Where that cannot
# be reached this says so and passes, unless CHECK_VULNERABILITIES=must.
# Exit codes: 0 none was found, or nothing could be checked, 1 one was found, 2 the check failed or was not made.
cd "$(dirname "$0")/.." || exit 2

db=${VULNDB:-https://vuln.go.dev}
case $db in
*://*) db=${db%/} ;;
*) db=file://$(realpath -m "$db") ;;
esac

# A database that takes connections and does not answer must not hold up the build: the check itself takes ten seconds.
out=$(timeout 2m go tool -modfile=test/tools/go.mod govulncheck -db "$db" "${@:-./...}" 2>&1)
status=$?
case $status:$out in
0:*)
	echo "no known vulnerability is called, says $db"
	;;
3:*)
	echo "$out"
	exit 1
	;;
124:* | *"fetching vulnerabilities"* | *"creating client"*)
	printf '\n*** vulnerabilities NOT checked: %s\n%s\n' "$db cannot be reached" "$out"
	printf '*** Set VULNDB to a copy of https://vuln.go.dev (a URL, or a folder) to have them checked without it.\n\n'
	[ "$CHECK_VULNERABILITIES" != must ] || exit 2
	;;
*)
	echo "$out"
	exit 2
	;;
esac
