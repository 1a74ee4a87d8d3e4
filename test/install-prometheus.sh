#!/bin/sh
# Provides prometheus, promtool, prometheus-node-exporter and shellcheck for "make check-deploy", from the packages of Debian
# and Ubuntu (as root). Nothing is started or configured.
set -eu

lacking=
for program in prometheus promtool prometheus-node-exporter shellcheck; do
	command -v "$program" >/dev/null || lacking="$lacking $program"
done
[ -n "$lacking" ] || exit 0
command -v apt-get >/dev/null || { echo "install-prometheus: missing:$lacking; install them, there is no apt-get here" >&2; exit 1; }

# While packages are installed, policy-rc.d forbids their scripts to start services. One that is there already stays.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
	trap 'rm -f "$policy"' EXIT
	trap 'exit 1' HUP INT TERM
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 0755 "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
packages="prometheus prometheus-node-exporter shellcheck"
# The packages' names are a list of words.
# shellcheck disable=SC2086
apt-get -o DPkg::Lock::Timeout=300 install -q -y --no-install-recommends $packages >&2 ||
	{ apt-get update -q >&2 && apt-get -o DPkg::Lock::Timeout=300 install -q -y --no-install-recommends $packages >&2; }
