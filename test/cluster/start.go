package cluster

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"bookend/test/rig"
)

// start starts the daemons and waits for the nodes. The record is written first: whatever happens from here
// on, Sweep finds what was started.
func (c *Cluster) start() {
	c.writeRecord()
	c.startMunged()
	c.startDaemon("slurmctld", c.daemonEnv(), "slurmctld", "-c", "-i")
	env, where := c.slurmdEnv(), []string(nil)
	if slices.Contains(c.options.Conf, Configless) {
		env, where = c.fromController(env)
	}
	for _, n := range c.options.Nodes {
		c.startDaemon("slurmd-"+n.Name, env, append([]string{"slurmd", "-N", n.Name}, where...)...)
	}
	c.awaitIdle()
}

func (c *Cluster) writeRecord() {
	o := c.options
	if o.Track != LinuxProc {
		c.lockNames(5 * o.Patience) // the other's story may be a long one
	}
	c.cgroups.prepareCgroups(o.Track, o.Nodes)
	text := rig.Have(json.Marshal(record{Daemons: o.daemons(), Cgroups: c.cgroups.folders(o.Track, o.Nodes)}))
	rig.Try(os.WriteFile(recordFile(c.paths.dir), text, 0o600))
}

func (c *Cluster) startMunged() {
	// Whoever knows the key is root to slurmd.
	key := make([]byte, 1024)
	rig.Have(rand.Read(key))
	rig.Try(os.WriteFile(c.paths.in("munge", "munge.key"), key, 0o600))
	c.startDaemon("munged", c.daemonEnv(), "munged",
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

func (c *Cluster) slurmdEnv() []string {
	env := c.daemonEnv()
	if c.options.Track == CgroupV2 && c.cgroups.hybrid {
		env = append(env, "LD_PRELOAD="+buildShim(c.paths.in("etc")))
	}
	return env
}

// fromController has slurmd ask slurmctld for its configuration: it is told of no file, and finds munge where it is by
// default.
func (c *Cluster) fromController(env []string) (without, args []string) {
	if !c.elsewhere() {
		panic(errors.New("configless: Slurm has no root directory of its own, and would leave its " +
			"configuration in this machine's /run"))
	}
	folder := c.namespace() + "/root/run/munge"
	rig.Try(os.MkdirAll(folder, 0o755))
	rig.Try(os.Symlink(c.paths.socket(), folder+"/munge.socket.2"))
	without = slices.DeleteFunc(env, func(s string) bool { return strings.HasPrefix(s, "SLURM_CONF=") })
	return without, []string{"--conf-server", fmt.Sprintf("%s:%d", c.address, c.ports[0])}
}

// startDaemon runs a daemon, which goes to the background by itself; what it says before lies in
// log/NAME.start. A file, not a pipe: whoever inherits a pipe would keep its reader waiting.
func (c *Cluster) startDaemon(name string, env []string, argv ...string) {
	out := rig.Have(os.Create(c.paths.in("log", name+".start")))
	defer out.Close()
	cmd := c.daemon(argv[0], argv[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, out, out
	if err := c.runBounded(cmd); err != nil {
		panic(fmt.Errorf("start %s: %w", name, err))
	}
}

// awaitIdle asks until every node is idle. A daemon's "fatal:" ends the wait at once.
func (c *Cluster) awaitIdle() {
	var states string
	idle := until(c.options.Patience, func() bool {
		if line := c.fatalLine(); line != "" {
			panic(fmt.Errorf("a daemon gave up: %s", line))
		}
		// An error is normal while slurmctld starts.
		states, _ = c.run("", "sinfo", "--noheader", "--Node", "--partition=main", "--format=%N %T")
		return strings.Count(states, " idle\n") == len(c.options.Nodes)
	})
	if !idle {
		panic(fmt.Errorf("nodes are not idle after %v: %q", c.options.Patience, states))
	}
}

func (c *Cluster) fatalLine() string {
	for _, name := range c.options.daemons() {
		text, _ := os.ReadFile(c.paths.log(name))
		for line := range strings.Lines(string(text)) {
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
			text, _ := os.ReadFile(file)
			all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
			fmt.Fprintf(&b, "== %s\n%s\n", filepath.Base(file), strings.Join(all[max(0, len(all)-lines):], "\n"))
		}
	}
	return b.String()
}
