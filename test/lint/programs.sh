#!/bin/sh
# Looks at built programs: they must be static, which lets them run on any node, whatever its libc, and link little:
# hooks start for every job.
#
#   programs.sh PROGRAM ...
#
# Exit codes: 0 all is well, 1 something is not, which is said.
wrong=0
complain() {
	echo "$1: $2" >&2
	wrong=1
}

# What hooks may link beside Go's own packages, and what of those would cost them at every start.
modules='bookend|github\.com/sirupsen/logrus|golang\.org/x/sys|gopkg\.in/yaml\.v3'
heavy='net|net/http|crypto/tls|os/user|text/template|html/template|go/parser|log/syslog'

for program; do
	headers=$(readelf -lW "$program") || exit 1
	case $headers in *INTERP*) complain "$program" "needs a dynamic loader" ;; esac
	package=$(go version -m "$program" | awk '$1 == "path" { print $2 }')
	# cgo is on, as without it cgo files would not be listed.
	list=$(CGO_ENABLED=1 go list -deps \
		-f '{{.ImportPath}} {{.Standard}} {{len .CgoFiles}} {{with .Module}}{{.Path}}{{end}}' "$package") || exit 1
	for cgo in $(echo "$list" | awk '$2 == "false" && $3 > 0 { print $1 }'); do
		complain "$program" "$cgo has cgo files, which a static build leaves out in silence"
	done
	[ "$package" != bookend/admin ] || continue
	for dependency in $(echo "$list" | awk '{ print $1 }' | grep -xE "$heavy"); do
		complain "$program" "$dependency is too heavy for what starts at every job"
	done
	for module in $(echo "$list" | awk '{ print $4 }' | sort -u | grep -vxE "$modules|"); do
		complain "$program" "$module is a module no hook may link"
	done
done
exit $wrong
