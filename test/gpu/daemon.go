package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// daemon starts programs as container daemons do: it is root's, lives outside every job, and so does what it starts,
// though that runs as a user.
type daemon struct {
	programs map[string][]string // by name
	env      []string
	fake     bool
	mark     string // a setting in the environment of all it starts, by which that is found again
	started  []*holder
}

// contained is cudajob in a PID namespace of its own, which root makes for it as container daemons do.
const contained = "contained"

// inside is what the first process does of a PID namespace that the daemon made as container daemons do: it mounts a
// /proc of that namespace's own, without which CUDA does not start there, becomes the user and then the program.
const inside = `mount --make-rprivate /; mount -t proc -o nosuid,nodev,noexec proc /proc; uid=$0 gid=$1; shift
exec setpriv --reuid "$uid" --regid "$gid" --clear-groups "$@"`

const holderPatience = 60 * time.Second // PyTorch's first import takes some 20 s

// start runs a program on a card, empty for none, until it says that it is ready.
func (d *daemon) start(uid, gid uint32, card, program string, args ...string) *holder {
	argv := append(slices.Clone(d.programs[program]), args...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(slices.Clone(d.env), "CUDA_VISIBLE_DEVICES="+card, d.mark)
	cmd.Dir, cmd.Stderr = "/", os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	switch {
	case program != contained:
	case d.fake: // the fake driver learns a program's PID from the /proc of the host
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
	default:
		cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-ec", inside, fmt.Sprint(uid), fmt.Sprint(gid)}, argv...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	}
	out := must(cmd.StdoutPipe())
	h := &holder{cmd: cmd}
	try(cmd.Start())
	d.started = append(d.started, h)
	stop := time.AfterFunc(holderPatience, func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if stop.Stop(); err != nil || !strings.HasPrefix(line, "ready ") {
		panic(fmt.Errorf("the program was not ready: %q: %w", line, err))
	}
	h.ready(line, uid)
	return h
}

// killAll ends everything the daemon started, with all that came of it, and reaps what is its own.
func (d *daemon) killAll() {
	for _, h := range d.started {
		h.kill()
	}
	for _, pid := range marked(d.mark) {
		// Threat: the PID may be another's by now. A mark in the environment was read a moment ago, and nobody
		// but the lane's own programs has it.
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	d.started = nil
}
