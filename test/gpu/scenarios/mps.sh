#!/bin/sh
# An MPS daemon of the calling user's own, with everything it writes in one folder. nvidia-cuda-mps-control comes
# from the PATH: NVIDIA's, or in a rehearsal the fake vendor's. The folder's path must be shorter than 90 bytes, for
# a socket lies in it.
# usage: . mps.sh; mps_up FOLDER; mps_down           what this shell starts meanwhile are clients
#        mps.sh mps-up FOLDER                        prints "ready pid=PID", the daemon's
#        mps.sh mps-run FOLDER PROGRAM [WORD...]     becomes PROGRAM, a client; the first one brings up the server
#        mps.sh mps-server FOLDER                    prints "ready pid=PID", the server's; fails while there is none
#        mps.sh mps-down FOLDER                      ends server and daemon, and waits until the daemon is gone

mps_in() {
	CUDA_MPS_PIPE_DIRECTORY=$1/pipe CUDA_MPS_LOG_DIRECTORY=$1/log
	export CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
	PATH=$PATH:/usr/local/nvidia/bin
}

mps_pid() { cat "$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid"; }

mps_up() {
	mps_in "$1"
	mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY" || return
	nvidia-cuda-mps-control -d </dev/null >"$1/started" 2>&1 || { cat "$1/started" >&2; return 1; }
	echo "ready pid=$(mps_pid)"
}

mps_server() {
	set -- "$(echo get_server_list | nvidia-cuda-mps-control)"
	case $1 in
	'' | *[!0-9]*) echo "mps: one server expected, not \"$1\"" >&2; return 1 ;;
	esac
	echo "ready pid=$1"
}

# A daemon that is told to quit says so at once and ends some time later.
mps_down() {
	set -- "$(mps_pid)"
	echo quit | nvidia-cuda-mps-control || return
	for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
		[ -e "/proc/$1/fd" ] || break
		case $(cat "/proc/$1/stat" 2>/dev/null) in *') Z '* | '') break ;; esac
		sleep 0.5
	done
	unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
}

case ${1:-} in
mps-up) mps_up "$2" ;;
mps-run)
	mps_in "$2"
	shift 2
	exec "$@"
	;;
mps-server) mps_in "$2" && mps_server ;;
mps-down) mps_in "$2" && mps_down ;;
esac
