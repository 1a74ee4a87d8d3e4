#!/bin/sh
# Prints the changelog in Debian's form. CHANGELOG.md says what changed.
#
# usage: changelog.sh VERSION EPOCH MAINTAINER
set -eu
cat <<END
bookend ($1) unstable; urgency=medium

  * Changes: /usr/share/doc/bookend/changelog.gz.

 -- $3  $(LC_ALL=C date -u -R -d "@$2")
END
