package cluster

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// start starts the daemons and waits for the nodes. The record is written first: whatever happens from here
// on, Sweep finds what was started.
func (c *Cluster) start() error {
	if err := c.writeRecord(); err != nil {
		return err
	}
	if err := c.startMunged(); err != nil {
		return err
	}
	if err := c.startDaemon("slurmctld", c.daemonEnv(), "slurmctld", "-c", "-i"); err != nil {
		return err
	}
	env, err := c.slurmdEnv()
	if err != nil {
		return err
	}
	var where []string
	if c.options.Configless {
		if env, where, err = c.fromController(env); err != nil {
			return err
		}
	}
	for _, n := range c.options.Nodes {
		if err := c.startDaemon("slurmd-"+n.Name, env, append([]string{"slurmd", "-N", n.Name},
			where...)...); err != nil {
			return err
		}
	}
	return c.awaitIdle()
}

func (c *Cluster) writeRecord() error {
	o := c.options
	if o.Track != LinuxProc {
		locks, err := lockNames(o.Track, o.Nodes, 5*o.Patience) // the other's story may be a long one
		c.locks = locks
		if err != nil {
			return err
		}
	}
	if err := c.cgroups.prepareCgroups(o.Track, o.Nodes); err != nil {
		return err
	}
	c.record = record{Daemons: o.daemons(), Cgroups: c.cgroups.folders(o.Track, o.Nodes)}
	return c.record.write(c.paths.dir)
}

func (c *Cluster) startMunged() error {
	// Whoever knows the key is root to slurmd.
	key := make([]byte, 1024)
	if _, err := rand.Read(key); err != nil {
		return err
	}
	if err := os.WriteFile(c.paths.in("munge", "munge.key"), key, 0o600); err != nil {
		return err
	}
	return c.startDaemon("munged", c.daemonEnv(), "munged",
		"--key-file="+c.paths.in("munge", "munge.key"),
		"--socket="+c.paths.socket(),
		"--pid-file="+c.paths.pidFile("munged"),
		"--log-file="+c.paths.log("munged"),
		"--seed-file="+c.paths.in("munge", "munge.seed"),
		"--num-threads=2")
}

func (c *Cluster) daemonEnv() []string {
	return []string{"PATH=" + searchPath, "SLURM_CONF=" + c.paths.conf(), mark + "=" + c.paths.dir}
}

func (c *Cluster) slurmdEnv() ([]string, error) {
	env := c.daemonEnv()
	if c.options.Track != CgroupV2 || !c.cgroups.hybrid {
		return env, nil
	}
	shim, err := buildShim(c.paths.in("etc"))
	if err != nil {
		return nil, err
	}
	return append(env, "LD_PRELOAD="+shim), nil
}

// fromController has slurmd ask slurmctld for its configuration: it is told of no file, and finds munge where it is by
// default.
func (c *Cluster) fromController(env []string) (without, args []string, err error) {
	if !c.elsewhere() {
		return nil, nil, errors.New("configless: Slurm has no root directory of its own, and would leave its " +
			"configuration in this machine's /run")
	}
	proc, err := c.namespace()
	if err != nil {
		return nil, nil, err
	}
	folder := proc + "/root/run/munge"
	if err := errors.Join(os.MkdirAll(folder, 0o755), os.Symlink(c.paths.socket(),
		folder+"/munge.socket.2")); err != nil {
		return nil, nil, err
	}
	without = slices.DeleteFunc(env, func(s string) bool { return strings.HasPrefix(s, "SLURM_CONF=") })
	return without, []string{"--conf-server", fmt.Sprintf("%s:%d", c.address, c.ports[0])}, nil
}

// startDaemon runs a daemon, which goes to the background by itself; what it says before lies in
// log/NAME.start. A file, not a pipe: whoever inherits a pipe would keep its reader waiting.
func (c *Cluster) startDaemon(name string, env []string, argv ...string) error {
	out, err := os.Create(c.paths.in("log", name+".start"))
	if err != nil {
		return err
	}
	defer out.Close()
	cmd, err := c.daemon(argv[0], argv[1:]...)
	if err != nil {
		return err
	}
	cmd.Env, cmd.Stdout, cmd.Stderr = env, out, out
	if err := c.runBounded(cmd); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	return nil
}

// awaitIdle asks until every node is idle. A daemon's "fatal:" ends the wait at once.
func (c *Cluster) awaitIdle() error {
	var states string
	for deadline := time.Now().Add(c.options.Patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if line := c.fatalLine(); line != "" {
			return fmt.Errorf("a daemon gave up: %s", line)
		}
		// An error is normal while slurmctld starts.
		states, _ = c.run("", "sinfo", "--noheader", "--Node", "--partition=main", "--format=%N %T")
		if strings.Count(states, " idle\n") == len(c.options.Nodes) {
			return nil
		}
	}
	return fmt.Errorf("nodes are not idle after %v: %q", c.options.Patience, states)
}

func (c *Cluster) fatalLine() string {
	for _, name := range c.options.daemons() {
		text, err := os.ReadFile(c.paths.log(name))
		if err != nil {
			continue
		}
		for _, line := range strings.Split(string(text), "\n") {
			if strings.Contains(line, "] fatal: ") {
				return name + ": " + line
			}
		}
	}
	return ""
}

// Logs returns the last lines of every daemon's log, each under its name.
func (c *Cluster) Logs(lines int) string {
	var b strings.Builder
	for _, name := range c.options.daemons() {
		for _, file := range []string{c.paths.in("log", name+".start"), c.paths.log(name)} {
			text, err := os.ReadFile(file)
			if err != nil || len(text) == 0 {
				continue
			}
			all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
			fmt.Fprintf(&b, "== %s\n%s\n", filepath.Base(file), strings.Join(all[max(0, len(all)-lines):], "\n"))
		}
	}
	return b.String()
}
