package doctor

import (
	"cmp"
	"os"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/backend"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/gresconf"
	"bookend/internal/numbering"
	"bookend/internal/routine"
	"bookend/internal/slurmconf"
	"bookend/internal/stage"
	"bookend/internal/wire"
)

// Survey is what was found out about the node before any file was looked at: each part in a child of its own, as each
// may hang for reasons of its own. A part that nobody could look at has Unknown.
type Survey struct {
	// Node is what Slurm calls this node, as well as that can be told.
	Node    string
	Daemons Daemons
	Slurm   Slurm
	Driver  Driver
	System  System
	// Programs is what each program said of its version: prolog, epilog and the like by the names of their rules, slurmd,
	// scontrol.
	Programs map[string]Said
	Backend  Asked
	// Open is who has the driver open, once the backend's own question is over.
	Open attrib.Scan
	// Numbers is what Slurm's GPU numbers mean, as a hook that began now would find.
	Numbers numbering.List
	// Deadline is what a hook gives the driver.
	Deadline time.Duration
}

// Daemons are the processes on the node that matter here.
type Daemons struct {
	Unknown  string   `json:"unknown,omitempty"`
	Slurmd   []Daemon `json:"slurmd,omitempty"`
	Exporter []Daemon `json:"exporter,omitempty"` // node_exporter
}

// Daemon is one of them. What it says of itself is its own claim.
type Daemon struct {
	PID  int      `json:"pid"`
	UID  uint32   `json:"uid"`
	Exe  string   `json:"exe,omitempty"`  // empty where it is not told, or deleted
	Args []string `json:"args,omitempty"` // the first is its name
	Conf string   `json:"conf,omitempty"` // SLURM_CONF in its environment
}

// Slurm is Slurm's configuration as it lies on the node.
type Slurm struct {
	Unknown string `json:"unknown,omitempty"`
	// Tried are the places that were looked at; Conf is what the first of them that is there says, nil where it could
	// not be read, as Unread says, or where there is none.
	Tried  []string        `json:"tried,omitempty"`
	Conf   *slurmconf.Conf `json:"conf,omitempty"`
	Unread string          `json:"unread,omitempty"`
	// Gres, Cgroup and Container are the files beside it; nil where there is none. Plugins are the lines of plugstack.conf.
	Gres      *slurmconf.Conf `json:"gres,omitempty"`
	Cgroup    *slurmconf.Conf `json:"cgroup,omitempty"`
	Container *slurmconf.Conf `json:"container,omitempty"`
	Plugins   []string        `json:"plugins,omitempty"`
	// Beside is what is wrong with the reading of one of these, by its name.
	Beside map[string]string `json:"beside,omitempty"`
	// Real is where the folder of slurm.conf leads to.
	Real string `json:"real,omitempty"`
}

// Driver is the driver as its own /proc and /sys tell it, without asking it.
type Driver struct {
	Unknown string     `json:"unknown,omitempty"`
	Absent  bool       `json:"absent,omitempty"` // it is not loaded
	Problem string     `json:"problem,omitempty"`
	Cards   []gpu.Card `json:"cards,omitempty"`
	Version string     `json:"version,omitempty"` // of the loaded module
	NVML    string     `json:"nvml,omitempty"`    // version in the name of the library's real file
	CUDA    string     `json:"cuda,omitempty"`
	// Strangers are NVIDIA cards on the PCI bus that the driver does not list, with the driver that has them.
	Strangers []string `json:"strangers,omitempty"`
	// Stuck says which child of Bookend's is stuck in the driver; then nobody asks it anything.
	Stuck string `json:"stuck,omitempty"`
}

// System is what else of the node matters.
type System struct {
	Unknown string `json:"unknown,omitempty"`
	// Cgroup is "v1", "v2" or "hybrid"; empty where it cannot be told.
	Cgroup string `json:"cgroup,omitempty"`
	// SSH are the modules that sshd's PAM configuration names, in their order; NoSSH: it has none.
	SSH   []string `json:"ssh,omitempty"`
	NoSSH bool     `json:"no_ssh,omitempty"`
	// Lingerers are the users whose processes systemd keeps without a login.
	Lingerers []string `json:"lingerers,omitempty"`
	// Unsynced: the kernel says that nobody keeps its clock.
	Unsynced bool   `json:"unsynced,omitempty"`
	ClockWhy string `json:"clock_why,omitempty"` // why it cannot be told
	// Package is what this very program came with.
	Package Package `json:"package,omitempty"`
}

// Said is what a program answered.
type Said struct {
	Unknown string `json:"unknown,omitempty"`
	Missing bool   `json:"missing,omitempty"`
	Refused string `json:"refused,omitempty"` // why it was not started: others could have written it
	Text    string `json:"text,omitempty"`    // its first line
	Failed  string `json:"failed,omitempty"`
}

// Asked is what came of asking the driver once, as a hook does.
type Asked struct {
	Skipped string // why it was not asked
	Answer  backend.Answer
}

// survey looks at the node, in three rounds: what runs; what its configuration, the driver and the system say; and what
// follows from these.
func survey(s Site, patience time.Duration) Survey {
	v := Survey{Deadline: time.Duration(s.Config.Deadlines.Prolog.Driver)}
	v.Daemons = asked(opDaemons, daemonsRequest{s.Config.Paths.Proc}, patience, func(why string) Daemons { return Daemons{Unknown: why} })
	s.Survey.Daemons = v.Daemons
	v.Node = s.NodeName
	if d, ok := s.slurmd(); ok && d.node() != "" {
		v.Node = d.node()
	}
	s.NodeName = v.Node
	together(
		func() {
			v.Slurm = asked(opSlurm, slurmRequest{places(s)}, patience, func(why string) Slurm { return Slurm{Unknown: why} })
		},
		func() {
			v.Driver = asked(opDriver, driverRequestOf(s), patience, func(why string) Driver { return Driver{Unknown: why} })
		},
		func() {
			v.System = asked(opSystem, systemRequest{s.Root, s.Config.Paths.Sys, s.Self}, patience, func(why string) System { return System{Unknown: why} })
		},
	)
	if c := v.Slurm.Conf; c != nil && !c.Node(v.Node).Found {
		v.Node = cmp.Or(c.NodeOn(v.Node), v.Node)
	}
	s.Survey, s.NodeName = v, v.Node
	together(
		func() { v.Programs = versions(s, patience) },
		func() { v.Backend = askDriver(s) },
		func() { v.Numbers = askNumbers(s) },
	)
	if s.Config.Look.Holders && !v.Driver.Absent {
		v.Open = stage.Holdings(stage.Readers{Config: s.Config, Clock: s.Clock})
	}
	return v
}

// askNumbers does as a hook of the node's slurmd does, and keeps nothing.
func askNumbers(s Site) numbering.List {
	if s.Survey.Slurm.Conf == nil || s.Clock.Boot == nil {
		return numbering.Unclear("slurm.conf could not be read")
	}
	d, _ := s.slurmd()
	env := stage.Env{PID: d.PID, EUID: os.Geteuid(), Clock: s.Clock, Getenv: func(string) string { return "" }}
	return stage.ReadNumbering(env, s.Config, s.NodeName, s.Survey.Slurm.Conf.Path)
}

// asked is a child's answer, or that there is none.
func asked[Rep any](op string, req any, patience time.Duration, failed func(why string) Rep) Rep {
	rep, err := stage.Ask[Rep](op, req, patience)
	if err != nil {
		return failed(err.Error())
	}
	return rep
}

// together runs all at once and waits for all. Each bounds itself; of one that fails inside, nothing is known.
func together(all ...func()) {
	done := make(chan struct{}, len(all))
	for _, f := range all {
		routine.Go(func(*routine.Panic) { done <- struct{}{} }, func() {
			f()
			done <- struct{}{}
		})
	}
	for range all {
		<-done
	}
}

// places are where slurm.conf may be: where the configuration says, else SLURM_CONF, else where slurmd was told, else
// where it looks.
func places(s Site) []gresconf.Files {
	conf := s.SlurmConf
	if d, ok := s.slurmd(); conf == "" && ok {
		conf = d.confFile()
	}
	return gresconf.Find(s.Config.Slurm.GresConf, conf)
}

// slurmd is the one that runs here: of several the one with this SLURM_CONF and node.
func (s Site) slurmd() (Daemon, bool) {
	all := s.Survey.Daemons.Slurmd
	for _, d := range all {
		if s.SlurmConf != "" && d.confFile() == s.SlurmConf && (d.node() == "" || d.node() == s.NodeName) {
			return d, true
		}
	}
	if s.SlurmConf != "" || len(all) == 0 {
		return Daemon{}, false
	}
	return all[0], true
}

// confFile is the slurm.conf that slurmd was told to use; empty where it looks itself.
func (d Daemon) confFile() string {
	if path := d.option("-f", ""); path != "" {
		return path
	}
	return d.Conf
}

// node is what slurmd was told to be; empty where it goes by the host's name.
func (d Daemon) node() string { return d.option("-N", "") }

// option is the value of an option: "-f FILE", "-fFILE", "--long FILE" or "--long=FILE".
func (d Daemon) option(short, long string) string {
	for i := 1; i < len(d.Args); i++ {
		switch arg := d.Args[i]; {
		case arg == short && short != "" || arg == long && long != "":
			if i+1 < len(d.Args) {
				return d.Args[i+1]
			}
		case long != "" && len(arg) > len(long) && arg[:len(long)+1] == long+"=":
			return arg[len(long)+1:]
		case short != "" && len(arg) > len(short) && arg[:len(short)] == short && (len(arg) < 2 || arg[1] != '-'):
			return arg[len(short):]
		}
	}
	return ""
}

// askDriver asks the driver once, as a prolog does, with its deadline. While a child of Bookend's is stuck in it, or the
// driver's own files did not answer, nobody starts another.
func askDriver(s Site) Asked {
	switch d := s.Survey.Driver; {
	case d.Unknown != "":
		return Asked{Skipped: "the driver's files in /proc did not answer: " + d.Unknown}
	case d.Stuck != "":
		return Asked{Skipped: d.Stuck}
	case d.Absent:
		return Asked{Skipped: noDriver}
	}
	limit := s.Survey.Deadline
	answers := make(chan backend.Answer, 1)
	routine.Go(func(p *routine.Panic) { answers <- backend.Answer{Panic: p} }, func() {
		answers <- backend.Ask(backend.Params{Path: s.Config.Backend, Root: true}, wire.Request{
			Op: wire.Snapshot, All: true, Health: true, Accounting: true, DeadlineMillis: limit.Milliseconds(),
			Options: wire.Options{NVMLLibrary: s.Config.NVIDIA.NVMLLibrary},
		})
	})
	select {
	case a := <-answers:
		return Asked{Answer: a}
	case <-time.After(limit + time.Second):
		return Asked{Skipped: "where the backend lies does not answer: " + s.Config.Backend}
	}
}

const noDriver = "no driver is loaded"

// versions asks each program for its version, all at once.
func versions(s Site, patience time.Duration) map[string]Said {
	wanted := programsOf(s)
	all := make([]Said, len(wanted))
	var asks []func()
	for i, w := range wanted {
		asks = append(asks, func() {
			all[i] = asked(opVersion, w, patience, func(why string) Said { return Said{Unknown: why} })
		})
	}
	together(asks...)
	said := map[string]Said{}
	for i, w := range wanted {
		said[w.Name] = all[i]
	}
	return said
}

// programsOf are the programs that say their version: the hooks, and Slurm's.
func programsOf(s Site) (wanted []versionRequest) {
	for _, r := range Rules() {
		if r.place == "programs" {
			wanted = append(wanted, versionRequest{r.Name, r.Paths(s), "--version", ""})
		}
	}
	slurmd := config.SlurmdPrograms()
	if d, ok := s.slurmd(); ok && d.Exe != "" {
		slurmd = []string{d.Exe}
	}
	conf := s.Survey.Slurm.Conf
	if conf == nil { // without it Slurm's programs ask the network where their configuration is
		return wanted
	}
	return append(wanted, versionRequest{"scontrol", []string{s.Config.Slurm.Scontrol}, "-V", conf.Path}, versionRequest{"slurmd", slurmd, "-V", conf.Path})
}
