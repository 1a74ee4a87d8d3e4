#!/bin/sh
# Prints the changelog that Debian wants in its own form: what changed is told by CHANGELOG.md.
#
# usage: changelog.sh VERSION EPOCH
set -eu
cat <<END
bookend ($1) unstable; urgency=medium

  * What changed is told in /usr/share/doc/bookend/changelog.gz.

 -- The Bookend maintainers <bookend@localhost>  $(LC_ALL=C date -u -R -d "@$2")
END
