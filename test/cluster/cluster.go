// Package cluster runs a private, real Slurm for tests: munged, slurmctld and several slurmd on one host,
// all below one folder, on free ports, without systemd or accounting. Two of them may run side by side.
//
//	Dir/etc     slurm.conf gres.conf cgroup.conf    Dir/munge   key and socket
//	Dir/log     one log a daemon                    Dir/spool   SlurmdSpoolDir of each node
//	Dir/hooks   Prolog= and the like                Dir/home    a folder a user: where jobs run
//	Dir/state   StateSaveLocation
//
// It must run as root. Slurm is taken from /usr, or from the root directory that BOOKEND_SLURM_ROOT names
// (see test/install-slurm.sh). Run with Slurm 22.05, 24.11 and 26.05.
package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"bookend/test/rig"
)

// Track is how Slurm finds a job's processes, and so what may outlive a job.
type Track string

// The ways to track. Tracks lists those this host can run.
const (
	LinuxProc Track = "linuxproc" // by parent and process group: what leaves both survives the job
	CgroupV1  Track = "cgroup/v1"
	CgroupV2  Track = "cgroup/v2"
)

// Node is one slurmd.
type Node struct {
	Name string
	// Devices are the node's GPUs in Slurm's order: block or character devices that exist. Nodes may share them.
	Devices []string
	// Gres and GresConf give out the devices otherwise: what slurm.conf says of the node's GPUs ("gpu:b:2,gpu:a:2"),
	// and the lines of gres.conf without NodeName.
	Gres     string
	GresConf []string
}

// Options describe a cluster. Dir and Nodes are required.
type Options struct {
	// Dir is made if missing. Every folder above it must be searchable by all, since jobs run as plain users: Scratch
	// makes a fitting one.
	Dir   string
	Nodes []Node
	Track Track // default: LinuxProc

	// Conf are further lines of slurm.conf: hooks (see WriteHook; they may be written after Up), partitions, timeouts; a
	// line wins over a default, or an earlier line, of the same key. SOCKET in AuthInfo stands for munge's. Configless
	// needs a Slurm in a root directory of its own: nodes keep their configuration at a fixed path.
	Conf []string
	// Before, if not nil, may change slurm.conf and what lies next to it before any daemon reads it.
	Before func(slurmConf string) error
	// CgroupConf are further lines of cgroup.conf.
	CgroupConf []string

	// Root is the root directory Slurm is installed in, default $BOOKEND_SLURM_ROOT or /. With another it is the root
	// of a mount namespace of the cluster's own, where Binds are seen beside Dir.
	Root  string
	Binds []string
	// OwnRoot: Root is this cluster's alone, with what is mounted in it, and hooks write to it. Else its /run,
	// /var/log and /var/lib are hidden by empty ones.
	OwnRoot bool

	Patience time.Duration // longest wait for one command or for the nodes to come up, default three minutes
}

// Configless is the line of slurm.conf by which the nodes get it from slurmctld.
const Configless = "SlurmctldParameters=enable_configless"

// Cluster is a running cluster.
type Cluster struct {
	options Options
	paths   paths
	ports   []int // slurmctld's, then one a node
	address string
	bound   bool // the daemons listen on address alone
	cgroups cgroupHost

	locks []*os.File // of the node names, see lockNames
}

// Up starts a cluster and returns when every node is idle. What an earlier, killed run left in Dir is ended
// first. With cgroups it waits until no other cluster has nodes of the same names. On failure nothing is left
// running and the error carries the tail of the daemons' logs.
func Up(o Options) (c *Cluster, err error) {
	if err := rig.Attempt(func() { c = prepare(o) }); err != nil {
		return nil, fmt.Errorf("prepare cluster in %q: %w", o.Dir, err)
	}
	if err := rig.Attempt(c.start); err != nil {
		err = fmt.Errorf("start cluster in %q: %w\n%s", o.Dir, err, c.Logs(40))
		return nil, errors.Join(err, c.Down())
	}
	return c, nil
}

// Dir returns the folder everything lies in.
func (c *Cluster) Dir() string { return c.paths.dir }

// ConfFile returns the path of slurm.conf: SLURM_CONF of every command that talks to this cluster.
func (c *Cluster) ConfFile() string { return c.paths.conf() }

// paths are the places below a cluster's directory.
type paths struct{ dir string }

func (p paths) in(parts ...string) string { return filepath.Join(append([]string{p.dir}, parts...)...) }
func (p paths) conf() string              { return p.in("etc", "slurm.conf") }
func (p paths) socket() string            { return p.in("munge", "munge.socket") }
func (p paths) log(daemon string) string  { return p.in("log", daemon+".log") }

func (p paths) pidFile(daemon string) string { return p.in(daemon + ".pid") }

// daemons lists the cluster's daemons in starting order, by the name of their log and pid file.
func (o Options) daemons() []string {
	names := []string{"munged", "slurmctld"}
	for _, n := range o.Nodes {
		names = append(names, "slurmd-"+n.Name)
	}
	return names
}

func prepare(o Options) *Cluster {
	o = complete(o)
	rig.Try(Sweep(o.Dir))
	c := &Cluster{options: o, paths: paths{o.Dir}, cgroups: findCgroups()}
	c.makeFolders()
	if !c.cgroups.can(o.Track) {
		panic(fmt.Errorf("this host has no hierarchy for %s", o.Track))
	}
	c.writeConf()
	if o.Before != nil {
		rig.Try(o.Before(c.ConfFile()))
	}
	return c
}

// complete fills in defaults and refuses what cannot work.
func complete(o Options) Options {
	if os.Geteuid() != 0 {
		panic(errors.New("a cluster needs root: slurmd starts jobs as their users"))
	}
	// munged's socket and slurmd's step sockets below Dir have to fit into 108 bytes.
	if !filepath.IsAbs(o.Dir) || len(o.Dir) > 64 || strings.ContainsAny(o.Dir, " \t\n,[]%'\"") {
		panic(fmt.Errorf("directory %q: want an absolute path of at most 64 plain characters", o.Dir))
	}
	o.Track, o.Root = cmp.Or(o.Track, LinuxProc), cmp.Or(o.Root, Root())
	o.Patience = cmp.Or(o.Patience, 3*time.Minute)
	return o
}

// makeFolders makes the tree. Root owns it and others cannot write to it: hooks and their configuration are
// read from here by root.
func (c *Cluster) makeFolders() {
	for _, old := range []string{"log", "state", "spool"} {
		rig.Try(os.RemoveAll(c.paths.in(old)))
	}
	for name, mode := range map[string]os.FileMode{
		"": 0o755, "etc": 0o755, "log": 0o755, "state": 0o700, "spool": 0o755, "home": 0o755,
		"munge": 0o711, "hooks": 0o755,
	} {
		makeFolder(c.paths.in(name), mode)
	}
	for _, n := range c.options.Nodes {
		for _, device := range n.Devices { // for a missing one slurmd would wait 20 s and then skip it
			rig.Have(os.Stat(device))
		}
	}
}

// makeFolder makes one, with this mode whatever the umask is.
func makeFolder(path string, mode os.FileMode) {
	rig.Try(os.MkdirAll(path, 0o755))
	rig.Try(os.Chmod(path, mode))
}

// HookFile returns the path of a hook in a cluster's directory. It may go into Options before the hook exists.
func HookFile(dir, name string) string { return paths{dir}.in("hooks", name) }

// WriteHook writes a hook of the given text to HookFile(dir, name), root's and executable by all, and returns
// its path. Slurm gives hooks neither arguments nor a PATH.
func WriteHook(dir, name, text string) (file string, err error) {
	err = rig.Attempt(func() {
		file = HookFile(dir, name)
		makeFolder(filepath.Dir(file), 0o755)
		rig.Try(rig.Write(file, []byte(text), 0o755))
	})
	return file, err
}
