// Package slurmd asks the node's own slurmd program what Slurm's GPU numbers mean, and finds the daemon that runs.
// Package numbering decides what follows from its answer.
package slurmd

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/child"
	"bookend/internal/gresconf"
	"bookend/internal/numbering"
	"bookend/internal/safefile"
)

// maxOutput bounds an answer: 256 GPUs take 50 KiB, and what slurmd logs before them several times as much.
const maxOutput = 1 << 20

// Command is slurmd as this site runs it.
type Command struct {
	Path    string // absolute
	Conf    string // slurm.conf, absolute
	Node    string
	Root    bool // this process is root: the program must be trusted
	Timeout time.Duration
}

// List runs `slurmd -G`, which takes 0.1 s and asks no controller; with AutoDetect it asks the driver, and may hang
// there. The result tells what became of the process, whether or not there is an error.
func (c Command) List() ([]gresconf.GPU, child.Result, error) {
	// Threat: whoever can write slurmd runs as root here.
	if c.Root {
		if err := safefile.Trusted(c.Path); err != nil {
			return nil, child.Result{}, fmt.Errorf("slurmd -G: %w", err)
		}
	}
	res := child.Run(child.Spec{
		// Under another name, such as Debian's slurmd-wlm, it does not take itself for slurmd and lists nothing.
		Path: c.Path, Name: "slurmd",
		// -v: later versions print the list only to those who log at least at that level (SlurmdDebug).
		Args: []string{"-f", c.Conf, "-N", c.Node, "-v", "-G"},
		// Threat: none beyond slurmd's own: it runs as root by this very file. INVOCATION_ID, which systemd sets, keeps it
		// from moving itself into the daemon's cgroup.
		Env:       []string{"SLURM_CONF=" + c.Conf, "INVOCATION_ID=bookend"},
		MaxOutput: maxOutput, MaxStderr: maxOutput, Timeout: c.Timeout,
	})
	switch {
	case res.Outcome == child.NotStarted:
		return nil, res, fmt.Errorf("slurmd -G: %w", res.Err)
	case res.Outcome == child.Hung || res.Outcome == child.Abandoned:
		return nil, res, fmt.Errorf("slurmd -G: no answer within %v", c.Timeout.Round(time.Millisecond))
	case res.Outcome != child.Exited || res.ExitCode != 0:
		return nil, res, fmt.Errorf("slurmd -G: %s, exit %d: %.200q", res.Outcome, res.ExitCode, lastLine(res.Stderr))
	case len(res.Stdout)+len(res.Stderr) >= maxOutput:
		return nil, res, fmt.Errorf("slurmd -G: more than %d bytes of output", maxOutput)
	}
	gpus, err := gresconf.ParseListed(string(res.Stdout) + "\n" + string(res.Stderr))
	if err != nil {
		err = fmt.Errorf("slurmd -G: %w", err)
	}
	return gpus, res, err
}

func lastLine(text []byte) []byte {
	lines := bytes.Split(bytes.TrimSpace(text), []byte{'\n'})
	return lines[len(lines)-1]
}

// Running finds the slurmd that started a hook: its highest ancestor of that name, as later versions start hooks by a
// slurmd of their own. PID 0 is none: a hook under PrologFlags=RunInJob, or a program started by something else.
func Running(proc string, hook int) numbering.Daemon {
	const generations = 8
	var found numbering.Daemon
	for pid, depth := hook, 0; pid > 1 && depth < generations; depth++ {
		parent, ticks, err := readStat(proc, pid)
		if err != nil {
			return found
		}
		// Threat: a user's program may be called slurmd, but is no ancestor of root's hook; what is started is checked again.
		exe, err := os.Readlink(filepath.Join(proc, strconv.Itoa(pid), "exe"))
		exe = strings.TrimSuffix(exe, " (deleted)")
		name := filepath.Base(exe) // on Debian slurmd-wlm
		switch is := err == nil && (name == "slurmd" || strings.HasPrefix(name, "slurmd-")); {
		case is:
			found = numbering.Daemon{PID: pid, Ticks: ticks, Exe: exe}
		case found.PID != 0:
			return found
		}
		pid = parent
	}
	return found
}

// readStat reads a process's parent and start.
func readStat(proc string, pid int) (parent int, ticks uint64, err error) {
	// Threat: a process may choose a name with brackets and blanks: the fields are counted behind the last bracket.
	text, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, 0, fmt.Errorf("read process %d: %w", pid, err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 {
		return 0, 0, fmt.Errorf("read process %d: %d fields", pid, len(fields))
	}
	parent, err1 := strconv.Atoi(fields[1])
	ticks, err2 := strconv.ParseUint(fields[19], 10, 64)
	if err1 != nil || err2 != nil {
		return 0, 0, fmt.Errorf("read process %d: parent %.20q, start %.20q", pid, fields[1], fields[19])
	}
	return parent, ticks, nil
}

// Identify describes a file behind all its links; Inode 0 where there is none.
func Identify(path string) (numbering.FileID, error) {
	id := numbering.FileID{Path: path}
	var st unix.Stat_t
	// Threat: none, nothing is opened; who can change these files can change what slurmd runs as root.
	err := unix.Stat(path, &st)
	switch {
	case err == unix.ENOENT || err == unix.ENOTDIR:
		return id, nil
	case err != nil:
		return id, &os.PathError{Op: "check", Path: path, Err: err}
	}
	id.Dev, id.Inode, id.Size, id.Written, id.Changed = st.Dev, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano()
	return id, nil
}
