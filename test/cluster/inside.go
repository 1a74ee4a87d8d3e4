package cluster

import (
	_ "embed"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"bookend/test/rig"
)

// Slurm in another root directory runs in one mount namespace a cluster, whose root that directory is. munged, the first
// daemon, makes it; the others join it. Commands see it through /proc/PID/root of munged, and their files are the
// daemons' own: what one has open another finds under the same path.

//go:embed enter.sh
var enterScript string

// elsewhere reports that Slurm has a root directory of its own.
func (c *Cluster) elsewhere() bool { return c.options.Root != "/" }

// daemon builds the command line of a daemon, which runs as root.
func (c *Cluster) daemon(name string, args ...string) *exec.Cmd {
	dir, path := c.paths.in("log"), lookUp(c.options.Root, name)
	switch {
	case !c.elsewhere():
		return c.direct(identity{}, dir, "", path, args)
	case name == "munged":
		used := "shared"
		if c.options.OwnRoot {
			used = "own"
		}
		binds := strings.Join(append([]string{c.paths.dir}, c.options.Binds...), ":")
		args = append([]string{"--mount", "--propagation=private", "/bin/sh", "-c", enterScript, "enter.sh",
			c.options.Root, dir, binds, used, path}, args...)
		return c.direct(identity{}, dir, "", "/usr/bin/unshare", args)
	}
	args = append([]string{"--mount=" + c.namespace() + "/ns/mnt", "--", "/usr/bin/env", "-C", dir, path}, args...)
	return c.direct(identity{}, dir, "", "/usr/bin/nsenter", args)
}

// command builds the command line of anybody's command.
func (c *Cluster) command(who identity, dir, name string, args ...string) *exec.Cmd {
	root := ""
	if c.elsewhere() {
		root = c.namespace() + "/root"
	}
	return c.direct(who, dir, root, lookUp(c.options.Root, name), args)
}

func (c *Cluster) direct(who identity, dir, root, path string, args []string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Setsid: true, Chroot: root}
	if who.uid != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: who.uid, Gid: who.gid, Groups: who.groups}
	}
	return cmd
}

// namespace is the folder in /proc of munged, in whose mount namespace Slurm runs.
func (c *Cluster) namespace() string {
	text := rig.Have(os.ReadFile(c.paths.pidFile("munged")))
	return "/proc/" + strings.TrimSpace(string(text))
}
