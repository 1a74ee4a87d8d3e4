// Package slurmcmd queries Slurm's own programs: slurmd for the meaning of GPU numbers, scontrol for this node. It
// finds the running slurmd, and reads its files. Package slurmconf draws the conclusions.
package slurmcmd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/child"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
)

// maxListing bounds an answer: 256 GPUs take 50 KiB, and slurmd logs several times as much before them.
const maxListing = 1 << 20

type Slurmd struct {
	Path    string   // absolute
	Conf    string   // slurm.conf, absolute
	Entries []string // the names in its directory
	Private string   // a directory on a local file system that only this user can write; empty: the temporary one
	Node    string
	Root    bool // this process is root: the program must be trusted
	Timeout time.Duration
}

// List runs `slurmd -G`, which takes 0.1 s and contacts no controller. With AutoDetect it queries the driver, and may
// hang. res describes the process, also with an error.
//
// Its cgroup plugin may lift the limits of its cgroup, which is the running slurmd's. So it reads a configuration copy
// that disables the plugin. Versions without that value exit: for them it is cgroup/v1, which changes nothing.
func (c Slurmd) List() (list slurmconf.List, res child.Result, err error) {
	defer func() {
		if err != nil {
			list, err = slurmconf.List{}, fmt.Errorf("slurmd -G: %w", err)
		}
	}()
	// Threat: a user who can write slurmd would run code as root here.
	if c.Root {
		if err := safefile.Trusted(c.Path); err != nil {
			return list, res, err
		}
	}
	left := c.Timeout
	for _, plugin := range []string{"disabled", "cgroup/v1"} {
		dir, err := c.copyConf(plugin)
		if err == nil {
			res = c.run(filepath.Join(dir, filepath.Base(c.Conf)), left)
			left = (left - res.Took) / 2 // for its version, and for another run
			err = os.RemoveAll(dir)
		}
		if err != nil {
			return list, res, err
		}
		if res.Outcome != child.Exited || res.ExitCode == 0 || len(res.Stderr) > 0 && !c.older(left) {
			break
		}
	}
	if err = failed(res, c.Timeout); err != nil {
		return list, res, err
	}
	if len(res.Stdout)+len(res.Stderr) >= maxListing {
		return list, res, fmt.Errorf("more than %d bytes of output", maxListing)
	}
	list, err = slurmconf.ParseListed(string(res.Stdout) + "\n" + string(res.Stderr))
	return list, res, err
}

// older reports a version that does not support the value: it may have warned of the configuration before it exited.
func (c Slurmd) older(within time.Duration) bool {
	text, _ := Version(c.Path, c.Conf, within)
	v, ok := slurm.ParseVersion(text)
	return ok && !v.Has(slurm.TaskHookFails)
}

// copyConf makes a configuration with another cgroup plugin. Its other files are links, as Includes may name them.
func (c Slurmd) copyConf(plugin string) (dir string, err error) {
	const cgroupConf = "cgroup.conf"
	dir = filepath.Join(cmp.Or(c.Private, os.TempDir()), fmt.Sprintf("slurmd-%d", os.Getpid()))
	if err := os.RemoveAll(dir); err != nil { // left by a hook that was killed
		return dir, err
	}
	// Threat: a directory that another user made here would lead slurmd to configuration of theirs: it must be new.
	if err := os.Mkdir(dir, 0o700); err != nil {
		return dir, err
	}
	// Threat: written through a link it would be the site's own file, so it is written before any link is made.
	err = os.WriteFile(filepath.Join(dir, cgroupConf), []byte("CgroupPlugin="+plugin+"\n"), 0o600)
	for _, name := range c.Entries {
		if err == nil && name != cgroupConf {
			err = os.Symlink(filepath.Join(filepath.Dir(c.Conf), name), filepath.Join(dir, name))
		}
	}
	return dir, err
}

func (c Slurmd) run(conf string, timeout time.Duration) child.Result {
	// Threat: none beyond slurmd's own: it runs as root by these very files.
	return child.Run(child.Spec{
		// Under another name, such as Debian's slurmd-wlm, it does not recognise itself as slurmd and lists nothing.
		Path: c.Path, Name: "slurmd",
		// -v: later versions print the list only at that log level (SlurmdDebug) or above.
		Args: []string{"-f", conf, "-N", c.Node, "-v", "-G"}, Env: []string{"SLURM_CONF=" + conf},
		MaxOutput: maxListing, MaxStderr: maxListing, Timeout: timeout,
	})
}

// Running returns the slurmd that started a hook: the highest ancestor of that name, as later versions start hooks by a
// second slurmd. PID 0 is none: a hook under PrologFlags=RunInJob, or a program that something else started.
func Running(proc string, hook int) slurmconf.Daemon {
	const generations = 8
	var found slurmconf.Daemon
	for pid, depth := hook, 0; pid > 1 && depth < generations; depth++ {
		d, parent, err := daemon(proc, pid)
		switch {
		case err != nil:
			return found
		case d.PID != 0:
			found = d
		case found.PID != 0:
			return found
		}
		pid = parent
	}
	return found
}

// daemon returns the process if it is a slurmd; otherwise its PID is 0.
func daemon(proc string, pid int) (d slurmconf.Daemon, parent int, err error) {
	parent, ticks, err := child.Parent(proc, pid)
	if err != nil {
		return d, 0, err
	}
	// Threat: a user's program may be called slurmd, but is no ancestor of root's hook; a slurmd is checked before use.
	exe, err := os.Readlink(filepath.Join(proc, strconv.Itoa(pid), "exe"))
	exe = strings.TrimSuffix(exe, " (deleted)")
	name := filepath.Base(exe) // slurmd-wlm on Debian
	if err == nil && (name == "slurmd" || strings.HasPrefix(name, "slurmd-")) {
		d = slurmconf.Daemon{PID: pid, Ticks: ticks, Exe: exe}
	}
	return d, parent, nil
}

// ByFile returns the slurmd whose PID is in a file (SlurmdPidFile), for a hook without that ancestor. PID 0 is none.
func ByFile(proc, path string) slurmconf.Daemon {
	const maxPID = 32
	// Threat: a file that another user can write could name a program of theirs.
	text, err := safefile.ReadTrusted(path, maxPID)
	if err != nil {
		return slurmconf.Daemon{}
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	var process unix.Stat_t
	if err != nil || unix.Stat(filepath.Join(proc, strconv.Itoa(pid)), &process) != nil || process.Uid != 0 {
		return slurmconf.Daemon{}
	}
	d, _, _ := daemon(proc, pid)
	return d
}

// Identify describes the file that a path leads to through links; Inode is 0 if it does not exist.
func Identify(path string) (slurmconf.FileID, error) {
	id := slurmconf.FileID{Path: path}
	var st unix.Stat_t
	// Threat: none, nothing is opened; a user who can change these files can change what slurmd runs as root.
	err := unix.Stat(path, &st)
	switch {
	case err == unix.ENOENT || err == unix.ENOTDIR:
		return id, nil
	case err != nil:
		return id, &os.PathError{Op: "check", Path: path, Err: err}
	}
	id.Dev, id.Inode, id.Changed = st.Dev, st.Ino, st.Ctim.Nano()
	return id, nil
}

// Read reads a configuration. The error is about its first file; errors of included files are in the lines. Slurm
// refuses to start with a pattern in an Include. The disk may not answer, so callers run this in a child.
func Read(path string) (slurmconf.Conf, error) { return read(path, false) }

// ReadFirst reads the first that exists; at is empty if none does. A missing gres.conf is valid, and empty.
func ReadFirst(places []slurmconf.Files) (at slurmconf.Files, slurm, gres slurmconf.Conf, err error) {
	for _, at = range places {
		if slurm, err = Read(at.Slurm); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			gres, err = Read(at.Gres)
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return at, slurm, gres, err
	}
	return slurmconf.Files{}, slurm, gres, nil
}

// Pyxis reports whether plugstack.conf, in which an include may be a pattern, loads pyxis.
func Pyxis(conf slurmconf.Conf) bool {
	file := filepath.Join(filepath.Dir(conf.Path), "plugstack.conf")
	if v, ok := conf.Get("PlugStackConfig"); ok {
		file = v.Text
	}
	stack, _ := read(file, true)
	return slices.ContainsFunc(stack.Lines, func(l slurmconf.Line) bool { // "required|optional PLUGIN [ARGUMENTS]"
		return strings.Contains(fmt.Sprint(l.Rest, l.Pairs, l.Include), "pyxis")
	})
}

func read(path string, patterns bool) (slurmconf.Conf, error) {
	text, err := ReadText(path)
	if err != nil {
		return slurmconf.Conf{}, err
	}
	return slurmconf.Parse(path, text, func(name string) (files []slurmconf.File) {
		names := []string{name}
		switch pattern := strings.ContainsAny(name, "*?["); {
		case pattern && !patterns:
			return []slurmconf.File{{Path: name, Unread: "Slurm takes no pattern here, and does not start with one"}}
		case pattern:
			names, _ = filepath.Glob(name) // in alphabetical order
		}
		for _, n := range names[:min(len(names), slurmconf.MaxIncluded)] {
			f := slurmconf.File{Path: n}
			f.Text, err = ReadText(n)
			if err != nil {
				f.Unread = err.Error()
			}
			files = append(files, f)
		}
		return files
	}), nil
}

// ReadText reads one file. Threat: a pipe or an endless file; only root can write slurmd's configuration.
func ReadText(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > slurmconf.MaxBytes {
		return nil, fmt.Errorf("read %q: not a file of at most %d bytes", path, slurmconf.MaxBytes)
	}
	return io.ReadAll(io.LimitReader(file, slurmconf.MaxBytes))
}
