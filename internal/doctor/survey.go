package doctor

import (
	"cmp"
	"os"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/backend"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/numbering"
	"bookend/internal/operation"
	"bookend/internal/routine"
	"bookend/internal/session"
	"bookend/internal/slurmconf"
	"bookend/internal/wire"
)

// Survey is what was found out about the node before any file was looked at: each part in a child of its own, as each
// may hang for reasons of its own. A part that could not be looked at has Unknown.
type Survey struct {
	// Node is what Slurm calls this node, as well as that can be told.
	Node   string
	Slurmd []Daemon
	Slurm  Slurm
	Driver Driver
	// SlurmdSays is what slurmd says of its version.
	SlurmdSays Answer
	// Backend is the driver's answer to one question as a hook asks it; Skipped is why it was not asked.
	Backend struct {
		Skipped string
		Answer  backend.Answer
	}
	// Open is who has the driver open, once the backend's own question is over.
	Open attrib.Scan
	// Numbers is what Slurm's GPU numbers mean, as a hook that began now would find.
	Numbers numbering.List
}

// Daemon is a slurmd that runs here.
type Daemon struct {
	PID int    `json:"pid"`
	Exe string `json:"exe,omitempty"` // empty if it is not told, or deleted
	// Node and Conf are the node's name and slurm.conf as it was told; may be empty.
	Node string `json:"node,omitempty"`
	Conf string `json:"conf,omitempty"`
}

// Slurm is Slurm's configuration as it is on the node.
type Slurm struct {
	Unknown string `json:"unknown,omitempty"`
	// Tried are the places that were looked at; Conf is what the first that exists says, nil if it could not be read,
	// as Unread says, or if there is none.
	Tried  []string        `json:"tried,omitempty"`
	Conf   *slurmconf.Conf `json:"conf,omitempty"`
	Unread string          `json:"unread,omitempty"`
	// Gres and Cgroup are the files next to it; nil if there are none. Plugins are the lines of plugstack.conf.
	Gres    *slurmconf.Conf `json:"gres,omitempty"`
	Cgroup  *slurmconf.Conf `json:"cgroup,omitempty"`
	Plugins []string        `json:"plugins,omitempty"`
	// Beside is what is wrong with the reading of one of these.
	Beside string `json:"beside,omitempty"`
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
	// Stuck says which child of Bookend's is stuck in the driver; then nothing asks it.
	Stuck string `json:"stuck,omitempty"`
}

// listed takes the GPUs that the backend lists, for a driver that shows them in no folder of /proc, as hooks do.
func (d *Driver) listed(a backend.Answer) {
	for _, s := range a.Snapshots {
		d.Version = cmp.Or(d.Version, s.Driver.Version)
		for _, r := range s.Readings {
			if r.Device.Parent == "" {
				d.Cards = append(d.Cards, gpu.Card{Device: r.Device})
			}
		}
	}
	if len(d.Cards) == 0 {
		d.Problem = cmp.Or(d.Problem, "the backend listed no GPU")
	}
}

// Answer is what a program says of its version.
type Answer struct {
	Unknown string `json:"unknown,omitempty"` // why it did not answer
	Missing bool   `json:"missing,omitempty"`
	Text    string `json:"text,omitempty"` // its first line
}

// survey looks at the node, in three rounds: what runs; what its configuration and the driver say; and what follows.
func survey(s Site, patience time.Duration) Survey {
	v := Survey{Node: s.NodeName}
	v.Slurmd, _ = operation.Ask[[]Daemon](opDaemons, daemonsRequest{s.Config.Paths.Proc}, patience)
	s.Survey.Slurmd = v.Slurmd
	slurmd, _ := s.slurmd()
	v.Node = cmp.Or(slurmd.Node, v.Node)
	s.NodeName = v.Node
	together(
		func() { v.Slurm = askSlurm(s, patience) },
		func() { v.Driver = readDriver(s, patience) },
	)
	if c := v.Slurm.Conf; c != nil && !c.Node(v.Node).Found {
		v.Node = cmp.Or(c.NodeOn(v.Node), v.Node)
	}
	s.Survey, s.NodeName = v, v.Node
	together(
		func() { v.SlurmdSays = askSlurmd(s, patience) },
		func() { v.Backend.Skipped, v.Backend.Answer = askDriver(s) },
		func() { v.Numbers = askNumbers(s) },
	)
	if s.Config.NVIDIA.DriverProc == "" {
		v.Driver.listed(v.Backend.Answer)
	}
	if s.Config.Look.Holders && !v.Driver.Absent {
		v.Open = operation.Holdings(operation.Readers{Config: s.Config, Clock: s.Clock})
	}
	return v
}

// askSlurm reads Slurm's configuration from where it may be: where Bookend's says, else SLURM_CONF, else where slurmd
// was told, else where it looks.
func askSlurm(s Site, patience time.Duration) Slurm {
	d, _ := s.slurmd()
	places := slurmconf.Find(s.Config.Slurm.GresConf, cmp.Or(s.SlurmConf, d.Conf))
	found, err := operation.Ask[Slurm](opSlurm, places, patience)
	if err != nil {
		found.Unknown = err.Error()
	}
	return found
}

func readDriver(s Site, patience time.Duration) Driver {
	request := driverRequest{s.Config.Paths, s.Config.NVIDIA.DriverProc, s.NodeName}
	d, err := operation.Ask[Driver](opDriver, request, patience)
	if err != nil {
		d.Unknown = err.Error()
	}
	return d
}

// askNumbers does as a hook of the node's slurmd does, and keeps nothing.
func askNumbers(s Site) numbering.List {
	if s.Survey.Slurm.Conf == nil || s.Clock.Boot == nil {
		return numbering.Unclear("slurm.conf could not be read")
	}
	d, _ := s.slurmd()
	env := operation.Env{PID: d.PID, EUID: os.Geteuid(), Clock: s.Clock, Getenv: func(string) string { return "" }}
	return session.ReadNumbering(env, s.Config, s.NodeName, s.Survey.Slurm.Conf.Path)
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

// slurmd is the one that runs here: of several the one with this SLURM_CONF and node.
func (s Site) slurmd() (Daemon, bool) {
	for _, d := range s.Survey.Slurmd {
		if s.SlurmConf == "" || d.Conf == s.SlurmConf && (d.Node == "" || d.Node == s.NodeName) {
			return d, true
		}
	}
	return Daemon{}, false
}

// askDriver asks the driver once, as a prolog does, with its deadline. While a child of Bookend's is stuck in it, or
// the driver's own files did not answer, it is not asked.
func askDriver(s Site) (skipped string, a backend.Answer) {
	switch d := s.Survey.Driver; {
	case d.Unknown != "":
		return "the driver's files in /proc did not answer: " + d.Unknown, a
	case d.Stuck != "":
		return d.Stuck, a
	case d.Absent:
		return "no driver is loaded", a
	}
	limit := s.driverLimit()
	answers := make(chan backend.Answer, 1)
	routine.Go(func(p *routine.Panic) { answers <- backend.Answer{Panic: p} }, func() {
		answers <- backend.Ask(backend.Params{Path: s.Config.Backend, Root: true}, wire.Request{
			Op: wire.Snapshot, All: true, DeadlineMillis: limit.Milliseconds(),
			Options: s.Config.NVIDIA.ForLooks(),
		})
	})
	select {
	case a := <-answers:
		return "", a
	case <-time.After(limit + time.Second):
		return "the backend's file system does not answer: " + s.Config.Backend, a
	}
}

// driverLimit is what a prolog gives the driver.
func (s Site) driverLimit() time.Duration { return time.Duration(s.Config.Deadlines.Prolog.Driver) }

// askSlurmd asks slurmd for its version. Without slurm.conf it would ask the network where that is: then it is not
// started.
func askSlurmd(s Site, patience time.Duration) (answer Answer) {
	conf := s.Survey.Slurm.Conf
	if conf == nil {
		return answer
	}
	programs := config.SlurmdPrograms()
	if d, ok := s.slurmd(); ok && d.Exe != "" {
		programs = []string{d.Exe}
	}
	answer, err := operation.Ask[Answer](opVersion, versionRequest{programs, conf.Path}, patience)
	if err != nil {
		answer.Unknown = err.Error()
	}
	return answer
}
