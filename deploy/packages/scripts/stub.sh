#!/bin/sh
# Left by the removal of Bookend's package: slurm.conf may still name this path, and a Prolog or Epilog that is not there
# drains its node. It does nothing but say so, to syslog and slurmd's log. "purge" takes it away, a new installation
# replaces it.
case "${SLURM_SCRIPT_CONTEXT:-}" in *_task) exit 0 ;; esac # the user's job: its output is no place for this
trap 'exit 0' EXIT # for a shell that cannot fork
said="Bookend is not installed, but slurm.conf still names $0: take it out there, or install Bookend"
echo "$said" >&2
# Threat: a syslog that hangs would hold up every job. Hooks have no PATH.
PATH=/usr/bin:/bin timeout -s KILL 1 logger -t bookend -p daemon.warning -- "$said" </dev/null >/dev/null 2>&1
exit 0
