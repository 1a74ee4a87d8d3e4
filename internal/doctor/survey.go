package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/backend"
	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/inventory"
	"bookend/internal/operation"
	"bookend/internal/routine"
	"bookend/internal/safefile"
	"bookend/internal/slurmcmd"
	"bookend/internal/slurmconf"
	"bookend/internal/stage"
	"bookend/internal/state"
	"bookend/internal/wire"
)

// Survey is what was found out about the node before any file was looked at: each part in a child of its own, as each
// may hang for reasons of its own.
type Survey struct {
	Slurm  Slurm
	Driver Driver `json:"-"`
	// Backend is the driver's answer to one question as a hook asks it; Skipped is why it was not asked.
	Backend struct {
		Skipped string
		Answer  backend.Answer
	} `json:"-"`
	// Open is who has the driver open, once the backend's own question is over.
	Open attrib.Scan `json:"-"`
	// Numbers is what Slurm's GPU numbers mean, as a hook that began now would find.
	Numbers slurmconf.List `json:"-"`
}

// Slurm is Slurm's configuration as it is on the node.
type Slurm struct {
	// Tried are the places that were looked at; Conf is what the first that exists says, nil if it could not be read,
	// as Unread says, or if there is none.
	Tried  []string
	Conf   *slurmconf.Conf
	Unread string
	// Gres and Cgroup are the files next to it; nil if there are none. Plugins are the lines of plugstack.conf.
	Gres, Cgroup *slurmconf.Conf
	Plugins      []string
	// Version is what slurmd says of its version, Silent why it does not.
	Version, Silent string
}

// Driver is the driver as its own /proc and /sys tell it, without asking it.
type Driver struct {
	Absent  bool // it is not loaded
	Problem string
	Cards   []gpu.Card
	// Silent says why nothing asks it: its files do not answer, or a child of Bookend's is stuck in it.
	Silent string
}

// The operations of the children that look.
const (
	opCheck  = "doctor-check"
	opSlurm  = "doctor-slurm"
	opDriver = "doctor-driver"
)

// Operations are what the children of a program with doctor in it serve.
func Operations() operation.Others {
	return operation.Others{
		opCheck:  operation.Served(request.check),
		opSlurm:  operation.Served(request.slurm),
		opDriver: operation.Served(request.driver),
	}
}

// survey looks at the node: what its configuration and the driver say, and then what follows.
func survey(s Site, patience time.Duration) (v Survey) {
	bare := request{Site: s}
	together(
		func() {
			var err error
			if v.Slurm, err = operation.Ask[Slurm](opSlurm, bare, patience); err != nil {
				v.Slurm.Unread = err.Error()
			}
		},
		func() {
			var err error
			if v.Driver, err = operation.Ask[Driver](opDriver, bare, patience); err != nil {
				v.Driver.Silent = "its files in /proc do not answer: " + err.Error()
			}
		},
	)
	s.Survey = v
	together(
		func() { v.Backend.Skipped, v.Backend.Answer = askDriver(s) },
		func() { v.Numbers = askNumbers(s) },
	)
	if s.Config.NVIDIA.DriverProc == "" {
		v.Driver.listed(v.Backend.Answer)
	}
	if !v.Driver.Absent {
		v.Open = operation.Holdings(operation.Readers{Config: s.Config, Clock: s.Clock})
	}
	return v
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

// slurm reads Slurm's configuration from where it may be: where Bookend's says, else SLURM_CONF, else where a hook was
// last told that it is, else where slurmd looks.
func (r request) slurm() (s Slurm, _ error) {
	c, conf, slurmd := r.Site.Config, r.Site.SlurmConf, ""
	if kept := state.PeekNumbering(c.Paths.Run, r.Site.NodeName); kept != nil {
		slurmd, conf = kept.Key.Slurmd.Path, cmp.Or(conf, kept.Key.Conf)
	}
	for _, files := range slurmconf.Find(c.Slurm.GresConf, conf) {
		s.Tried = append(s.Tried, files.Slurm)
		conf, err := slurmcmd.Read(files.Slurm)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			s.Conf = &conf
			err = s.readBeside(files)
		}
		if err != nil {
			s.Conf, s.Unread = nil, err.Error()
			break
		}
		beside := filepath.Join(filepath.Dir(filepath.Dir(c.Slurm.Scontrol)), "sbin/slurmd")
		s.askSlurmd(append([]string{c.Slurm.Slurmd, slurmd, beside}, config.SlurmdPrograms()...))
		break
	}
	return s, nil
}

// readBeside reads the files next to slurm.conf.
func (s *Slurm) readBeside(files slurmconf.Files) error {
	var wrong []error
	read := func(name string) *slurmconf.Conf {
		conf, err := slurmcmd.Read(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err == nil && conf.Doubt() != "":
			err = errors.New(conf.Doubt())
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", filepath.Base(name), err))
		}
		return &conf
	}
	folder := filepath.Dir(files.Slurm)
	s.Gres, s.Cgroup = read(files.Gres), read(filepath.Join(folder, "cgroup.conf"))
	plugstack := filepath.Join(folder, "plugstack.conf")
	if v, ok := s.Conf.Get("PlugStackConfig"); ok {
		plugstack = v.Text
	}
	if conf, err := slurmcmd.ReadPlugins(plugstack); err == nil { // "required|optional PLUGIN [ARGUMENTS]": no pairs
		for _, l := range conf.Lines {
			s.Plugins = append(s.Plugins, l.Rest+l.Include)
		}
	}
	return errors.Join(wrong...)
}

// askSlurmd asks the first slurmd that exists for its version, with SLURM_CONF: without it, it would ask the network
// where that is. Threat: it runs as root; one that a user could have written is not started.
func (s *Slurm) askSlurmd(programs []string) {
	const patience, maxVersion = 3 * time.Second, 4 << 10
	for _, path := range programs {
		if _, err := os.Stat(path); err != nil {
			continue
		}
		if err := safefile.Trusted(path); err != nil {
			s.Silent = "not started: " + err.Error()
			return
		}
		res := child.Run(child.Spec{Path: path, Args: []string{"-V"}, Env: []string{"SLURM_CONF=" + s.Conf.Path},
			MaxOutput: maxVersion, Timeout: patience})
		if res.Outcome != child.Exited || res.ExitCode != 0 {
			s.Silent = fmt.Sprintf("%s: %s, exit %d: %.200s", path, res.Outcome, res.ExitCode, res.Stderr)
		}
		text, _, _ := strings.Cut(string(res.Stdout), "\n")
		s.Version = strings.TrimSpace(text)
		return
	}
	s.Silent = "slurmd is missing: slurm.slurmd can say where it is"
}

func (r request) driver() (d Driver, err error) {
	c := r.Site.Config
	stuck := state.PeekStuck(c.Paths.Run, r.Site.NodeName)
	if stuck != nil && child.Alive(c.Paths.Proc, stuck.PID, stuck.StartTicks) {
		d.Silent = operation.StuckText(*stuck, stuck.Since.Truncate(time.Second).String()+" after boot")
	}
	if c.NVIDIA.DriverProc == "" { // the backend lists the GPUs
		return d, nil
	}
	switch d.Cards, err = inventory.Read(c.NVIDIA.DriverProc); {
	case errors.Is(err, inventory.ErrNoDriver):
		d.Absent = true
	case err != nil:
		d.Problem = err.Error()
	}
	return d, nil
}

// listed takes the GPUs that the backend lists, for a driver that shows them in no folder of /proc, as hooks do.
func (d *Driver) listed(a backend.Answer) {
	for _, s := range a.Snapshots {
		for _, r := range s.Readings {
			if r.Device.Parent == "" {
				d.Cards = append(d.Cards, gpu.Card{Device: r.Device})
			}
		}
	}
	if len(d.Cards) == 0 {
		d.Problem = "the backend lists no GPU"
	}
}

// askNumbers does as a hook does, and keeps nothing.
func askNumbers(s Site) slurmconf.List {
	if s.Survey.Slurm.Conf == nil {
		return slurmconf.Unclear("slurm.conf could not be read")
	}
	env := operation.Env{EUID: os.Geteuid(), Clock: s.Clock, Getenv: func(string) string { return "" }}
	return stage.ReadNumbering(env, s.Config, s.NodeName, s.Survey.Slurm.Conf.Path)
}

// askDriver asks the driver once, as a prolog does, with its deadline. While a child of Bookend's is stuck in it, or
// the driver's own files did not answer, it is not asked.
func askDriver(s Site) (skipped string, a backend.Answer) {
	if d := s.Survey.Driver; d.Silent != "" || d.Absent {
		return cmp.Or(d.Silent, "no driver is loaded"), a
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
