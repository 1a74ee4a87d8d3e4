// Package site puts a whole Bookend installation on a private Slurm: programs, a configuration for each node,
// hooks, and GPUs, fake or real. The end-to-end tests, the demonstration and the GPU lane all stand on it.
package site

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"bookend/deploy"
	"bookend/internal/gpu"
	"bookend/internal/nodefiles"
	"bookend/test/build"
	"bookend/test/cluster"
	"bookend/test/fakeamd"
	"bookend/test/fakegpu"
	"bookend/test/rig"
)

// Options describe a site. Only Programs is required.
type Options struct {
	Programs  string   // folder with the built programs
	Nodes     []string // default: n1
	GPUs      int      // of each node, default 2; ignored with Devices
	Devices   []string // real GPUs' device nodes: no fake world is made
	Mode      string   // default: observe
	Track     cluster.Track
	Config    string         // further sections of each node's configuration
	AMD       []fakeamd.Card // of each node, beside the others
	Conf      []string       // further lines of slurm.conf
	Cgroup    []string       // and of cgroup.conf
	Flags     string         // PrologFlags, default Alloc
	NoTask    bool           // no TaskProlog and TaskEpilog
	Dir       string         // default: a scratch folder of its own, removed by Down
	Constrain bool           // ConstrainDevices
	// Gres and GresConf give out the GPUs otherwise than one after another: what slurm.conf says of each node, and the
	// lines of gres.conf, in which DEV stands for the directory of their device files.
	Gres     string
	GresConf []string
	// Before, if not nil, may change slurm.conf before any daemon reads it.
	Before func(slurmConf string) error
	// Setup lets "bookend setup" write the lines and scripts; Conf is what the site has before. OWN in it stands for the
	// directory of the site's own scripts, and Plugins is its plugstack.conf while setup looks.
	Setup   bool
	Plugins string
}

// Site is a running installation.
type Site struct {
	*cluster.Cluster
	Dir    string
	Users  []string
	worlds map[string]*fakegpu.World
	amd    map[string]string // the /sys of nodes with AMD's cards
	made   bool              // Dir is ours to remove
}

// Up installs and starts a site.
func Up(o Options) (*Site, error) {
	if len(o.Nodes) == 0 {
		o.Nodes = []string{"n1"}
	}
	o.GPUs, o.Mode, o.Flags = cmp.Or(o.GPUs, 2), cmp.Or(o.Mode, "observe"), cmp.Or(o.Flags, "Alloc")
	s := &Site{Dir: o.Dir, worlds: map[string]*fakegpu.World{}, amd: map[string]string{}}
	if err := rig.Attempt(func() { s.install(o); s.start(o) }); err != nil {
		return nil, errors.Join(err, s.Down())
	}
	return s, nil
}

// install copies the programs to a folder that only root can write, and makes each node's world and config.
func (s *Site) install(o Options) {
	if s.Dir == "" {
		s.Dir, s.made = rig.Have(cluster.Scratch()), true
	}
	s.Users = cluster.Users(2)
	for _, dir := range []string{"libexec", "etc", "own"} {
		rig.Try(os.MkdirAll(filepath.Join(s.Dir, dir), 0o755))
	}
	for _, program := range build.Shipped {
		data := rig.Have(os.ReadFile(filepath.Join(o.Programs, program)))
		rig.Try(rig.Write(s.Program(program), data, 0o755))
	}
	for i, node := range o.Nodes {
		s.equip(o, i, node)
	}
}

func (s *Site) equip(o Options, number int, node string) {
	if len(o.Devices) == 0 {
		w := rig.Have(fakegpu.New(s.in("world-"+node), gpus(o.GPUs, number)...))
		s.worlds[node] = w
		rig.Try(w.StartKeeper())
	}
	if len(o.AMD) > 0 {
		s.equipAMD(o, node)
	}
	rig.Try(s.WriteConfig(node, o.Mode, o.Config))
}

// gpus are a node's own. All nodes are on one host here: a GPU of the same UUID would be the same GPU.
func gpus(n, node int) []fakegpu.Option {
	all := []fakegpu.Option{fakegpu.GPUs(n)}
	for i := range n {
		if node > 0 {
			uuid := fmt.Sprintf("GPU-%08x-77c1-4d0e-9b3a-5e2f%04x%04x", 0x9c000000+node, node, i)
			all = append(all, fakegpu.With(fmt.Sprintf("gpu%d.uuid", i), uuid))
		}
	}
	return all
}

// equipAMD gives a node cards of AMD's too: files of the kernel, and device nodes for Slurm to give out.
func (s *Site) equipAMD(o Options, node string) {
	w := fakeamd.New(s.in("amd-"+node), o.AMD...)
	s.amd[node] = w.Sys
	const module = "module/nvidia"
	rig.Try(os.CopyFS(filepath.Join(w.Sys, module), os.DirFS(filepath.Join(s.worlds[node].Sys(), module))))
	rig.Try(os.MkdirAll(filepath.Join(s.Dev(node), "dri"), 0o755))
	for _, c := range o.AMD {
		for _, minor := range append([]int{c.Minor}, c.Partitions...) {
			path := filepath.Join(s.Dev(node), fmt.Sprintf("dri/renderD%d", minor))
			const null = 1<<8 | 3
			if err := unix.Mknod(path, unix.S_IFCHR|0o666, null); !errors.Is(err, unix.EEXIST) {
				rig.Try(err)
			}
		}
	}
}

// WriteConfig gives a node a new configuration; sections may override nothing but what site does not set.
func (s *Site) WriteConfig(node, mode, sections string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "version: 1\nmode: %s\nbackend: %s\n", mode, s.Program("bookend-gpu"))
	fmt.Fprintf(&b, "paths:\n  run: %s\n  var: %s\n  log: %s\n", s.in("run"), s.Var(node), s.in("log-bookend"))
	if w := s.worlds[node]; w != nil {
		fmt.Fprintf(&b, "  sys: %s\n  dev: %s\nnvidia:\n  nvml_library: %s\n  cuda_library: %s\n  driver_proc: %s\n",
			cmp.Or(s.amd[node], w.Sys()), w.Dev(), w.NVML(), w.CUDA(), w.DriverProc())
	}
	// Last, so that sections can begin with further keys of it, indented.
	fmt.Fprintf(&b, "amd: {backend: %s}\nmetrics:\n  textfile: %s\n", s.Program("bookend-amd"), s.Metrics(node))
	b.WriteString(sections)
	return os.WriteFile(s.ConfigFile(node), []byte(b.String()), 0o644)
}

func (s *Site) start(o Options) {
	opts := cluster.Options{Dir: s.in("slurm"), Track: o.Track, CgroupConf: o.Cgroup,
		Binds: []string{s.Dir}} // where Slurm has a root folder of its own, hooks and jobs need what lies beside it
	if o.Constrain {
		opts.CgroupConf = append(opts.CgroupConf, "ConstrainDevices=yes")
	}
	if o.Setup {
		opts.Before = func(conf string) error { return rig.Attempt(func() { s.setUp(o, conf) }) }
	} else {
		opts.Before = o.Before
		s.writeHooks(o, &opts)
	}
	for _, line := range o.Conf {
		opts.Conf = append(opts.Conf, strings.ReplaceAll(line, "OWN", s.in("own")))
	}
	for _, node := range o.Nodes {
		devices := o.Devices
		if w := s.worlds[node]; w != nil {
			for i := range o.GPUs {
				devices = append(devices, w.Node(i))
			}
		}
		n := cluster.Node{Name: node, Devices: devices, Gres: o.Gres}
		for _, line := range o.GresConf {
			n.GresConf = append(n.GresConf, strings.ReplaceAll(line, "DEV", s.Dev(node)))
		}
		opts.Nodes = append(opts.Nodes, n)
	}
	s.Cluster = rig.Have(cluster.Up(opts))
}

// Device is a fake GPU of a node by the number in the name of its device file: the UUID that the driver has for it.
func (s *Site) Device(node string, minor int) (gpu.ID, error) {
	cards, err := nodefiles.Read(s.worlds[node].DriverProc(), "")
	for _, c := range cards {
		if c.Device.Minor != nil && *c.Device.Minor == minor {
			return c.Device.ID, nil
		}
	}
	return "", fmt.Errorf("no GPU of minor %d on node %q: %v", minor, node, err)
}

// Dev is the directory of a node's device files.
func (s *Site) Dev(node string) string {
	if w := s.worlds[node]; w != nil {
		return w.Dev()
	}
	return "/dev"
}

// writeHooks names the hooks in slurm.conf one by one: the scripts that deploy/slurm ships.
func (s *Site) writeHooks(o Options, opts *cluster.Options) {
	opts.Conf = []string{"PrologFlags=" + o.Flags}
	for key, name := range map[string]string{
		"Prolog": "prolog", "Epilog": "epilog", "TaskProlog": "task-prolog", "TaskEpilog": "task-epilog",
		"HealthCheckProgram": "healthcheck", // without HealthCheckInterval Slurm never runs it
	} {
		if !o.NoTask || !strings.HasPrefix(name, "task") {
			text := rig.Have(deploy.Hooks.ReadFile("slurm/hooks/" + name))
			opts.Conf = append(opts.Conf, key+"="+rig.Have(cluster.WriteHook(opts.Dir, name, s.local(text))))
		}
	}
}

// local has a shipped script start this site's programs. Each node has its own configuration, as each real node has its
// own /etc.
func (s *Site) local(script []byte) string {
	return strings.NewReplacer("/usr/libexec/bookend", s.in("libexec"),
		`#export BOOKEND_CONFIG="/etc/bookend/`, `export BOOKEND_CONFIG="`+s.in("etc/bookend-")).Replace(string(script))
}

func (s *Site) in(name string) string { return filepath.Join(s.Dir, name) }

// Program is the path of an installed program.
func (s *Site) Program(name string) string { return s.in("libexec/" + name) }

// ConfigFile is a node's configuration file.
func (s *Site) ConfigFile(node string) string { return s.in("etc/bookend-" + node + ".yaml") }

// World is a node's fake GPUs, nil where they are real.
func (s *Site) World(node string) *fakegpu.World { return s.worlds[node] }

// Run is the folder of a site's state (paths.run).
func (s *Site) Run() string { return s.in("run") }

// Var is the directory of a node's history and counters (paths.var), its own as on a node's own disk.
func (s *Site) Var(node string) string { return s.in("var-" + node) }

// Metrics is the file of a node's metrics, with those of all hooks that have ended.
func (s *Site) Metrics(node string) string {
	rig.Written(s.Run())
	return filepath.Join(s.Var(node), "bookend.prom")
}

// Log is what Bookend's own log says.
func (s *Site) Log() (string, error) {
	rig.Written(s.Run())
	data, err := os.ReadFile(s.in("log-bookend/bookend.log"))
	return string(data), err
}

// Bookend runs the command line as root with a node's configuration.
func (s *Site) Bookend(node string, args ...string) (string, error) {
	cmd := exec.Command(s.Program("bookend"), args...)
	if s.Cluster != nil && cluster.Root() != "/" {
		// where the scontrol that it asks is slurmctld's own
		var err error
		if cmd, err = s.Command("", s.Program("bookend"), args...); err != nil {
			return "", err
		}
	}
	cmd.Env = []string{"BOOKEND_CONFIG=" + s.ConfigFile(node), "TZ=UTC"}
	if s.Cluster != nil {
		cmd.Env = append(cmd.Env, "SLURM_CONF="+s.ConfFile())
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Down ends everything the site started, jobs' leftovers included, and removes it.
func (s *Site) Down() error {
	var errs []error
	if s.Cluster != nil {
		errs = append(errs, s.EndLeftovers(), s.Cluster.Down())
	}
	rig.EndRecorders(s.in("libexec"))
	for _, w := range s.worlds {
		errs = append(errs, w.Close())
	}
	if s.made {
		errs = append(errs, cluster.Remove(s.Dir))
	}
	return errors.Join(errs...)
}

// Own is the path of a script of the site's own, as OWN/NAME in a line of slurm.conf names it.
func (s *Site) Own(name string) string { return s.in("own/" + name) }

// Beside is the path of a script that setup wrote next to slurm.conf.
func (s *Site) Beside(name string) string { return s.in("slurm/etc/bookend/" + name) }

// setUp does what an admin does: setup, what its notes say of lines and links, then its Include line. The scripts get
// this site's paths.
func (s *Site) setUp(o Options, conf string) {
	version := rig.Have(cluster.VersionIn(cluster.Root()))
	dir := filepath.Dir(conf)
	plugins := filepath.Join(dir, "plugstack.conf")
	if o.Plugins != "" { // the plugin itself is not there
		rig.Try(os.WriteFile(plugins, []byte(o.Plugins), 0o644))
		defer os.Remove(plugins)
	}
	cmd := exec.Command(s.Program("bookend"), "setup", "--write", "--slurm-conf", conf, "--slurm", version.String())
	cmd.Env = []string{}
	said, err := cmd.CombinedOutput()
	_, rest, _ := strings.Cut(string(said), "\n    Include ")
	include, _, ok := strings.Cut(rest, "\n")
	if err != nil || !ok {
		panic(fmt.Errorf("bookend setup names no Include line: %v: %s", err, said))
	}
	lines := strings.Split(string(rig.Have(os.ReadFile(conf))), "\n")
	removes := regexp.MustCompile(`(?m)^Note: Remove \S+ \(slurm.conf line (\d+)\)`)
	for _, note := range removes.FindAllStringSubmatch(string(said), -1) {
		lines[rig.Have(strconv.Atoi(note[1]))-1] = ""
	}
	rig.Try(os.WriteFile(conf, []byte(strings.Join(lines, "\n")+"Include "+include+"\n"), 0o644))
	links := regexp.MustCompile(`(?m)^Note: .*: ln -sf (\S+) (\S+) `)
	for _, note := range links.FindAllStringSubmatch(string(said), -1) {
		rig.Try(os.Symlink(note[1], note[2]))
	}
	for _, pattern := range []string{"bookend-*.sh", "bookend/*", "bookend/*/*"} {
		scripts, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, script := range scripts {
			if text, err := os.ReadFile(script); err == nil { // else it is a directory
				rig.Try(rig.Write(script, []byte(s.local(text)), 0o755))
			}
		}
	}
}
