# The Debian parts of show.sh, which has what these stand on: shows, must, debian, inside, stubbed, programs, later.
# shellcheck shell=bash disable=SC2034,SC2154

known= # what Bookend's log may say of a finding
drop_wanted=/etc/systemd/system/slurmd.service.wants/run-bookend-drop.mount
timer_wanted=/etc/systemd/system/timers.target.wants/bookend-healthcheck.timer
hooks=(/usr/libexec/bookend/bookend-prolog /usr/libexec/bookend/bookend-epilog) # slurmd must always find something there

# ask WORD...: a request to stand.go; what it answers is in $answer.
ask() {
	[ "$#" -eq 0 ] || echo "$*" >&3
	read -r how answer <&4
	echo "$* $how $answer"
	[ "$how" = ok ]
}

# plug gives the part two fake GPUs and a log daemon; Slurm is not up yet. The GPUs' libraries are built for the oldest
# Debian, too, with what build.sh took for the backend.
plug() {
	local old libraries
	old=$PWD/build/sysroots/$arch libraries=("$PWD/build/sysroots/$arch"/usr/lib/*-linux-gnu)
	mkdir -p "$scratch/$part-stand"
	coproc stand { CC="gcc --sysroot=$old -B${libraries[0]} -L${libraries[0]}" exec "$INSTALL_STAND" stand "$scratch/$part-stand" "$root"; }
	exec 3>&"${stand[1]}" 4<&"${stand[0]}"
	exec {stand[1]}>&-
	stand_pid=$stand_PID
	ask && binds=("$scratch/$part-stand/world")
}
unplug() {
	[ -n "${stand_pid-}" ] || return 0
	exec 3>&-
	! grep '^error' <&4
	local code=$?
	wait "$stand_pid"
	stand_pid=
	return "$code"
}

# begin SUITE PACKAGE...: a Debian with Slurm's programs and GPUs, in which the package is installed as an admin does.
begin() {
	included=/etc/bookend/slurm/bookend.conf # by slurm.conf; start may know better
	must "make fake GPUs" plug && must "make a fresh $1" debian "$1" slurmctld slurmd slurm-client munge logrotate "${@:2}" || return
	deb=$(basename "$packages"/bookend_*_"$arch".deb)
	shows "apt install ./bookend_*.deb" inside "apt-get install -y ./$deb && dpkg-query -W -f '\${Status}' bookend | grep 'install ok installed'" || return
	shows "all files are as packaged" intact
	shows "bookend version: $(inside "bookend version")" inside "bookend version"
}
# intact: all files are as the package has them, but for the admin's.
intact() {
	local said
	said=$(inside "dpkg --verify bookend") && ! grep -v ' c /etc/' <<<"$said" | grep .
}
# dpkg_i DEB: keeps the admin's configuration, as automation does.
dpkg_i() { cp "$1" "$root/root" && inside "dpkg -i --force-confold ${1##*/}"; }

# says FILE PIECE...: a text has all pieces, and none that begins with "!".
says() {
	local piece
	for piece in "${@:2}"; do
		case $piece in
		!*) ! grep -F -- "${piece#!}" "$1" ;;
		*) grep -qF -- "$piece" "$1" ;;
		esac && continue
		echo "$piece: not so in:"
		cat "$1"
		return 1
	done
}
# answers COMMAND PIECE...: it succeeds and says them.
answers() { inside "$1" >"$scratch/answer" 2>&1 && says "$scratch/answer" "${@:2}"; }
absent() {
	local path
	for path in "$@"; do [ ! -e "$root$path" ] && [ ! -L "$root$path" ] || { echo "$path is there" && return 1; }; done
}
present() {
	local path
	for path in "$@"; do [ -e "$root$path" ] || [ -L "$root$path" ] || { echo "$path is not there" && return 1; }; done
}
undiverted() { silent inside 'dpkg-divert --list "*bookend*"'; }

# configure MODE: what an admin would: where the driver is. Whatever is found would drain.
configure() {
	printf 'version: 1\nmode: %s\non_unknown: drain\n' "$1" | cat - "$scratch/$part-stand/driver.yaml" >"$root/etc/bookend/bookend.yaml"
}
doctors_without() {
	inside "bookend doctor" >"$scratch/doctor" 2>&1
	grep -i driver "$scratch/doctor"
}
doctors_with() {
	must "configure" configure enforce && shows "bookend doctor is content with the fake libraries" devices_alone
}
devices_alone() { # this Slurm's jobs can use all GPUs: doctor says that, and nothing else is wrong
	inside "bookend doctor" >"$scratch/doctor" 2>&1
	says "$scratch/doctor" "ERROR devices: " && ! grep '^ERROR' "$scratch/doctor" | grep -v '^ERROR devices: '
}

# start [setup]: Slurm comes up. Its slurm.conf has one line about Bookend: it includes the package's lines, or setup's.
start() {
	ask slurm || return
	local conf=$answer
	env=("SLURM_CONF=$conf" SLURMD_NODENAME=n1)
	include "$conf" "$@" || return
	ask go || return
	# What the unit mounts where systemd runs.
	mkdir -p -m 0711 "$root/run/bookend/drop" &&
		mount -t tmpfs -o "$(sed -n 's/^Options=//p' "$root/usr/lib/systemd/system/run-bookend-drop.mount")" tmpfs "$root/run/bookend/drop"
}
include() { # commands in the chroot find slurm.conf where an admin has it
	local dir name
	dir=$(dirname "$1")
	rm -rf "$root/etc/slurm" && mkdir -p "$root/etc/slurm" "$root${dir%/etc}" && mount --bind "${dir%/etc}" "$root${dir%/etc}" || return
	for name in slurm gres cgroup; do ln -s "$dir/$name.conf" "$root/etc/slurm/" || return; done
	[ "$#" -eq 1 ] || included=$(inside "bookend setup --write" | sed -n 's/^    Include //p')
	[ -n "$included" ] && echo "Include $included" >>"$1"
}
starts() {
	local version
	version=$(inside "slurmd -V")
	shows "Slurm ${version#slurm-wlm } starts with one line about Bookend" start "$@"
}

# submit SCRIPT: a job with a GPU; its id is in $id. It can be let end where it looks for a file.
submit() {
	echo "$1" >"$scratch/job" && rm -f "$scratch/$part-stand"/slurm/home/*/go && ask submit "$scratch/job" && id=$answer
}
cuda() { echo "$scratch/$part-stand/world/fakecuda alloc --mib 2000 --sleep 0"; }
begins() {
	submit "$(cuda)
echo ready
while [ ! -e go ]; do sleep 0.1; done" && until_so "the job is ready" prints ready
}
prints() { ask output "$id" && [ -e "$answer" ] && grep -qx "$1" "$answer"; }
tells() { # lets a job's program end
	local home=("$scratch/$part-stand"/slurm/home/*)
	touch "${home[@]/%//go}"
}
until_so() { # WHAT COMMAND...
	local end=$((SECONDS + 120))
	until "${@:2}" >/dev/null; do
		[ "$SECONDS" -lt "$end" ] || { echo "not within 120 s: $1" && return 1; }
		sleep 0.02
	done
}
is_up() { ask node && [ "$answer" = IDLE ]; }

# ends: the job has, epilog included, and what everybody then sees: an idle node, a whole record, both reports in the job's
# log, a line for each end in Bookend's own, and no finding in any of them.
ends() {
	ask ends "$id" && [ "$answer" = COMPLETED ] && is_up &&
		answers "bookend show --node n1 $id" start: end: '!BKD-' '!unknown' || return
	ask output "$id" && says "$answer" "| bookend: " "GPU 0" clean || return # an older release has other words
	local program
	while grep -qsz -e '--dis[k]' /proc/[0-9]*/cmdline; do sleep 0.02; done # no hook waits for the disk
	for program in bookend-prolog bookend-epilog; do
		grep -E "(^| )job=$id( |\$)" "$root/var/log/bookend/bookend.log" | grep -E "(^| )program=$program( |\$)" >"$scratch/lines" || return
		! grep BKD- "$scratch/lines" | grep -vF -- "${known:-nothing}" || return
	done
}
runs_job() {
	shows "a job starts" begins || return
	must "let it end" tells || return
	shows "it ends: node idle, record whole, both reports in its log, both ends in bookend.log" ends
	shows "its metrics" says "$root/var/lib/bookend/bookend.prom" 'bookend_last_run_timestamp_seconds{hook="prolog"} 1' \
		'bookend_last_run_timestamp_seconds{hook="epilog"} 1' 'bookend_drains_total{hook="epilog"} 0'
}

part_debian12() {
	begin bookworm || return
	shows "bookend doctor says that there is no driver" doctors_without
	sets_up
	starts || return
	doctors_with || return
	is_mended
	runs_job || return
	shows "logrotate moves bookend.log aside" inside "logrotate --force /etc/logrotate.d/bookend && ls /var/log/bookend/bookend.log.1"
	goes_up_and_down || return
	meets_older || return
	shows "a removal that is cut short leaves stubs" cut_short
	shows "installing again puts the programs back, whatever language dpkg speaks" installs_again LC_ALL=C.UTF-8 LANGUAGE=de
	is_removed
}

part_debian13() {
	begin trixie systemd || return
	is_enabled || return
	shows "bookend doctor says that there is no driver" doctors_without
	starts setup || return
	doctors_with || return
	runs_job || return
	shows "apt remove" inside "apt-get remove -y bookend" || return
	shows "a stub is at each hook's path; it ends with 0, says so, and is silent in a user's task" stubbed
	shows "a job runs with the stubs, and the node stays up" runs_with_stubs
	shows "apt purge takes stubs, configuration, records and logs away, where something is still in use, too; a hook of the site's own it leaves" \
		purges_in_use
}
runs_with_stubs() { begins && tells && ask ends "$id" && is_up; }

part_debian11() {
	begin bullseye || return
	shows "the backend starts under glibc $(inside "dpkg-query -W -f '\${Version}' libc6")" answers "/usr/libexec/bookend/bookend-gpu --version" bookend-gpu
	shows "bookend doctor says that there is no driver" doctors_without
	must "configure" configure observe || return
	shows "it reads two fake GPUs there" answers "bookend snapshot" nvidia0 nvidia1 "0 MiB used"
	# Its Slurm is not started, but configured, as far as doctor asks.
	printf 'ClusterName=old\nSlurmctldHost=localhost\nNodeName=localhost CPUs=1\nPartitionName=main Nodes=localhost\nInclude %s\n' \
		"$included" >"$root/etc/slurm/slurm.conf"
	env=(SLURM_CONF=/etc/slurm/slurm.conf) # not that of a slurmd of this machine's, which /proc shows too
	shows "bookend doctor says that Slurm 20.11 is not supported" refuses_slurm
	shows "apt remove" inside "apt-get remove -y bookend" || return
	shows "a stub is at each hook's path; it ends with 0, says so, and is silent in a user's task" stubbed
	shows "apt purge" inside "apt-get purge -y bookend"
	shows "stubs, configuration, records and logs are gone" absent /usr/libexec/bookend /etc/bookend /var/lib/bookend /var/log/bookend
}
refuses_slurm() {
	inside "bookend doctor" >"$scratch/doctor" 2>&1
	grep -F 20.11 "$scratch/doctor"
}

# sets_up: what setup makes of each kind of site; TestSetup tries the same under real Slurms.
sets_up() {
	local conf=/srv/site/slurm.conf
	mkdir -p "$root/srv/site"
	shows "setup: own Prolog, and what of it has to go before 24.05" own_prolog
	shows "setup: a pattern before 24.05 gets a link, later a line of its own" pattern_prolog
	shows "setup: NHC keeps its place" plans HealthCheckProgram=/usr/sbin/nhc 24.11 'HealthCheckProgram is taken' '!HealthCheckProgram='
	shows "setup: pyxis without and with a TaskProlog" pyxis
	shows "setup: configless, and --configless yes where it is not" configless
	shows "setup: RunInJob is left, with what it costs" plans PrologFlags=RunInJob 24.11 'Note: PrologFlags has RunInJob' '!Alloc'
	shows "setup: under umask 077 users can run the task hooks" masked
	shows "a misspelt partition is named, with the one that is meant" misspelt
}
# plans LINE VERSION[ OPTION...] PIECE...: what setup says of a site with this line in slurm.conf.
plans() {
	printf 'ClusterName=lab\n%s\n' "$1" >"$root$conf"
	answers "bookend setup --slurm-conf $conf --slurm $2" "${@:3}"
}
own_prolog() {
	plans Prolog=/site/prolog 24.05 "runs after your own Prolog" '!Note: Remove' &&
		plans Prolog=/site/prolog 23.11 'Prolog=/srv/site/bookend/prolog.d/*.sh' "Note: Remove Prolog=/site/prolog (slurm.conf line 2)"
}
pattern_prolog() {
	plans 'Prolog=/site/p.d/*.sh' 23.11 'ln -sf /srv/site/bookend/prolog /site/p.d/00-bookend.sh ' &&
		plans 'Prolog=/site/p.d/*.sh' 24.05 '!ln -sf' 'Prolog=/srv/site/bookend/prolog'
}
pyxis() {
	plans PrologFlags=Alloc "24.11 --pyxis yes" "No task hooks with pyxis" '!TaskProlog=' &&
		plans TaskProlog=/site/tp "24.11 --pyxis yes" "Note: Remove TaskProlog=/site/tp (slurm.conf line 2): tasks in a container fail" &&
		plans TaskProlog=/site/tp "24.11 --pyxis no" "then your /site/tp" "Note: Remove TaskProlog=/site/tp (slurm.conf line 2)"
}
configless() {
	plans SlurmctldParameters=enable_configless 24.11 Prolog=bookend-prolog.sh "Include bookend.conf" &&
		plans SlurmctldParameters=enable_configless "24.11 --configless no" Prolog=/srv/site/bookend/prolog "Include bookend.conf" &&
		! plans PrologFlags=Alloc "24.11 --configless yes" && says "$scratch/answer" "has no SlurmctldParameters=enable_configless"
}
masked() {
	printf 'ClusterName=lab\n' >"$root$conf"
	inside "umask 077 && bookend setup --slurm-conf $conf --slurm 24.11 --pyxis no --write &&
		setpriv --reuid 65534 --regid 65534 --clear-groups sh -c '/srv/site/bookend/task-prolog && /srv/site/bookend/task-epilog'"
}
misspelt() {
	printf 'ClusterName=lab\nPartitionName=debug Nodes=ALL\n' >"$root$conf"
	printf 'policy: {partitions: {dbug: {mode: enforce}}}\n' >"$root/srv/site/bookend.yaml"
	inside "SLURM_CONF=$conf bookend config check /srv/site/bookend.yaml" >"$scratch/answer" 2>&1 # 1: there is no driver
	says "$scratch/answer" 'slurm.conf has no partition "dbug"' "did you mean debug?"
}

# is_mended: what doctor says of a package's file can be done word for word.
is_mended() {
	local fix
	chmod 0775 "$root/usr/libexec/bookend/bookend-epilog"
	fix=$(inside "bookend doctor" | sed -n '/^ERROR programs: /,/^[^ ]/ { s/^  fix: //p; s/^       //p; }')
	shows "doctor's fix for a hook that others could write: $fix" mends "$fix"
}
mends() { [ -n "$1" ] && inside "set -e; $1" && intact && devices_alone; }

# watched COMMAND...: meanwhile each hook is there and may be started, at each look.
watched() {
	local looks=0 missed=0 hook code
	"$@" &
	while kill -0 $! 2>/dev/null; do
		for hook in "${hooks[@]}"; do
			looks=$((looks + 1))
			[ -x "$root$hook" ] || missed=$((missed + 1))
		done
	done
	wait $!
	code=$?
	echo "in $missed of $looks looks a hook could not have been started"
	[ "$code" -eq 0 ] && [ "$missed" -eq 0 ] && [ "$looks" -ge 1000 ]
}

# changes DEB: another version is installed, and slurmd would always have found something to start.
changes() {
	local want
	want=$(dpkg-deb -f "$1" Version) && watched dpkg_i "$1" && inside "dpkg-query -W -f '\${Status} \${Version}' bookend" >"$scratch/have" &&
		[ "$(cat "$scratch/have")" = "install ok installed $want" ] && whole
}
whole() { # as packaged, and dpkg has forgotten what a removal told it
	intact && programs && undiverted && absent "${hooks[@]/%/.removed}" "${hooks[@]/%/.new}"
}

# goes_up_and_down: an upgrade and a downgrade between the ends of a job, and while a hook runs.
goes_up_and_down() {
	local way from to when
	must "build a later version" later || return
	for way in upgrade downgrade; do
		from=$packages/$deb to=$(echo "$scratch"/next/*.deb)
		[ "$way" = upgrade ] || { to=$from from=$(echo "$scratch"/next/*.deb); }
		for when in job prolog epilog; do
			must "install what it begins with" dpkg_i "$from" || return
			shows "$way while the $when runs: record whole, both reports, node idle" "during_$when" "$to"
		done
	done
	shows "the admin's configuration is kept" says "$root/etc/bookend/bookend.yaml" "on_unknown: drain"
}
during_job() { begins && changes "$1" && tells && ends; }
during_prolog() {
	slowly && submit "$(cuda)" && replaces prolog "$1"
	local code=$?
	ask driver on.nvmlInit_v2 && [ "$code" -eq 0 ] && ends
}
during_epilog() {
	begins && slowly && tells && replaces epilog "$1"
	local code=$?
	ask driver on.nvmlInit_v2 && [ "$code" -eq 0 ] && ends
}
slowly() { ask driver on.nvmlInit_v2 sleep 2000; } # so late that a hook can be replaced while it runs

# runs FILE: a process has this executable. The path is that in its own namespace; this machine runs none.
runs() { [ -n "$(find /proc/[0-9]*/exe -maxdepth 0 -lname "*$1" 2>/dev/null)" ]; }
# replaces HOOK DEB: a version is installed while a hook runs, and it was so.
replaces() {
	local file=/usr/libexec/bookend/bookend-$1 ran=no code
	until_so "the $1 runs" runs "$file" || return
	changes "$2" &
	while kill -0 $! 2>/dev/null; do
		if runs "$file (deleted)"; then ran=yes; fi
		sleep 0.02
	done
	wait $!
	code=$?
	[ "$ran" = yes ] || echo "no $1 ran on when its file was replaced"
	[ "$code" -eq 0 ] && [ "$ran" = yes ]
}

# meets_older: the same with the code of an earlier commit, whose records the later one finds and the other way round.
meets_older() {
	must "build commit $INSTALL_OLDER" older || return
	# One from before counters of later releases were kept says that it does not know them, and counts anew.
	known="counts are damaged"
	shows "downgrade to the code of $INSTALL_OLDER while a job runs: record whole, both reports, node idle" during_job "$scratch/older.deb"
	shows "upgrade from the code of $INSTALL_OLDER while a job runs: the same" during_job "$packages/$deb"
	known=
}
# older makes older.deb of a package: the programs and the configuration of a commit in their places. What the commit has no
# program for stays away.
older() (
	set -e
	tree=$scratch/older-tree files=$scratch/older-files
	mkdir "$tree" && dpkg-deb -R "$packages/$deb" "$files"
	git archive "$INSTALL_OLDER" | tar -x -C "$tree"
	make -C "$tree" build VERSION=older
	cd "$files"
	for path in usr/libexec/bookend/* usr/bin/bookend; do
		if [ -e "$tree/bin/${path##*/}" ]; then cp "$tree/bin/${path##*/}" "$path"; else rm "$path"; fi
	done
	cp "$tree/configs/bookend.yaml" etc/bookend/bookend.yaml
	sed -i 's/^Version: .*/Version: 0.0.0~older-1/' DEBIAN/control
	find usr -type f -exec md5sum {} + >DEBIAN/md5sums
	dpkg-deb --root-owner-group -b . ../older.deb
)

# What a removal leaves half done, the next installation ends.
cut_short() { inside "sh /var/lib/dpkg/info/bookend.prerm remove" && stubbed; }
installs_again() { # SETTING...: of the environment, for an admin who is not told things in English
	local before=("${env[@]}")
	env+=("$@")
	watched dpkg_i "$packages/$deb"
	local code=$?
	env=("${before[@]}")
	[ "$code" -eq 0 ] && whole
}

# is_removed: what remains of a removed package while slurm.conf still names its hooks, and that a new installation and a
# purge are clean.
is_removed() {
	must "start a job" begins || return
	shows "dpkg -r while a job runs: at each moment slurmd could start each hook" watched inside "dpkg -r bookend" || return
	shows "a stub is at each hook's path; it ends with 0, says so, and is silent in a user's task" stubbed
	must "let the job end" tells || return
	shows "the job ends, the node stays up" ended
	shows "the stub told syslog and slurmd's log" stub_told
	shows "slurm.conf can still be read" inside "scontrol reconfigure"
	shows "the next job runs, the node stays up" runs_without_us
	shows "installing it again replaces the stubs" installs_again || return
	shows "the admin's configuration is still there" says "$root/etc/bookend/bookend.yaml" "mode: enforce"
	runs_job || return
	shows "dpkg -P warns that slurm.conf names what is gone now" answers "dpkg -P bookend" "still names what is gone now"
	shows "stubs, configuration, records and logs are gone" absent /usr/libexec/bookend /etc/bookend /var/lib/bookend /var/log/bookend /run/bookend
	shows "dpkg knows nothing of it any more" undiverted
}
ended() { ask ends "$id" && is_up; }
stub_told() {
	says "$scratch/$part-stand/slurm/log/slurmd-n1.log" "Bookend is not installed" &&
		says "$scratch/$part-stand/syslog" "bookend: Bookend is not installed, but slurm.conf still names /usr/libexec/bookend/bookend-epilog"
}
runs_without_us() {
	submit "echo done" && ended && ask output "$id" && [ "$(cat "$answer")" = "done" ]
}

# is_enabled: what is enabled stays so until a purge, and what the admin disabled, too. No systemd runs here, but systemctl
# works on its files.
is_enabled() {
	shows "the drop's mount is enabled, and the timer can be" enables
	shows "after removal and installation they still are" reinstalls
	shows "what the admin disables an installation does not enable" disables
	must "enable it again" inside "systemctl enable run-bookend-drop.mount"
}
enables() { inside "systemctl enable bookend-healthcheck.timer" && present "$drop_wanted" "$timer_wanted"; }
reinstalls() { inside "dpkg -r bookend" && dpkg_i "$packages/$deb" && present "$drop_wanted" "$timer_wanted"; }
disables() { inside "systemctl disable run-bookend-drop.mount" && dpkg_i "$packages/$deb" && absent "$drop_wanted"; }

# purges_in_use: a job's process is still in the drop, a file system of the site's own is where records are, and a hook of
# the site's own lies among Bookend's.
purges_in_use() {
	local own=/etc/bookend/slurm/prolog.d/50-own.sh kept=$root/var/lib/bookend code busy
	printf '#!/bin/sh\n' >"$root$own" && chmod 0755 "$root$own" && mount --bind "$kept" "$kept" || return
	(cd "$root/run/bookend/drop" && exec sleep 600) 3>&- 4<&- &
	busy=$!
	answers "apt-get purge -y bookend" "/var/lib/bookend could not be taken away" "what is left in /etc/bookend is not the package's: $own"
	code=$?
	kill "$busy"
	umount "$kept" && [ "$code" -eq 0 ] && [ -z "$(ls "$kept")" ] && ! inside "dpkg-query -W -f '\${Status}' bookend" | grep config-files &&
		present "$own" && absent /usr/libexec/bookend /etc/bookend/slurm/hooks /etc/bookend/bookend.yaml /var/log/bookend /run/bookend \
		"$drop_wanted" "$timer_wanted"
}
