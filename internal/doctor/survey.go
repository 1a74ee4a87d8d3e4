package doctor

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"bookend/internal/child"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/inventory"
	"bookend/internal/operation"
	"bookend/internal/routine"
	"bookend/internal/slurmcmd"
	"bookend/internal/slurmconf"
	"bookend/internal/stage"
	"bookend/internal/state"
)

// Survey is what was found out about the node before any file was looked at: each part in a child of its own, as each
// may hang for reasons of its own.
type Survey struct {
	Slurm  Slurm
	Driver Driver `json:"-"`
	// Glance is the driver's answer to one question as a hook asks it; Skipped is why it was not asked.
	Glance  stage.Glance `json:"-"`
	Skipped string       `json:"-"`
	// Open is who has the driver open, once the backend's own question is over.
	Open finding.Scan `json:"-"`
	// Numbers is what Slurm's GPU numbers mean, as a hook that began now would find.
	Numbers slurmconf.List `json:"-"`
}

type Slurm struct {
	// Tried are the places for slurm.conf; Conf is what the first that exists says, nil if it could not be read, as
	// Unread says, or if there is none.
	Tried  []string
	Conf   *slurmconf.Conf
	Unread string
	// Gres is the file next to it, if there is one. Pyxis is loaded by plugstack.conf.
	Gres  slurmconf.Conf
	Pyxis bool
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

var (
	opCheck  = operation.New("doctor-check", request.check)
	opSlurm  = operation.New("doctor-slurm", request.slurm)
	opDriver = operation.New("doctor-driver", request.driver)
)

func survey(s Site, patience time.Duration) (v Survey) {
	bare := request{Site: s}
	driver := opDriver.Beside(bare, patience)
	var err error
	if v.Slurm, err = opSlurm.Ask(bare, patience); err != nil {
		v.Slurm.Unread = err.Error()
	}
	if v.Driver, err = driver(); err != nil {
		v.Driver.Silent = "its files in /proc do not answer: " + err.Error()
	}
	s.Survey = v
	numbers := operation.Aside(func() (slurmconf.List, error) { return askNumbers(s), nil })
	v.Skipped, v.Glance = askDriver(s)
	v.Numbers, _ = numbers() // of one that fails inside nothing is known
	if s.Config.NVIDIA.DriverProc == "" {
		v.Driver.listed(v.Glance.Snapshot)
	}
	if !v.Driver.Absent {
		v.Open = operation.Holdings(operation.Readers{Config: s.Config, Clock: s.Clock})
	}
	return v
}

// slurm reads Slurm's configuration from where it may be: where Bookend's says, else SLURM_CONF, else where a hook was
// last told that it is, else where slurmd looks.
func (r request) slurm() (s Slurm, _ error) {
	c, conf, slurmd := r.Site.Config, r.Site.SlurmConf, ""
	if kept := state.PeekNumbering(c.Paths.Run, r.Site.NodeName); kept != nil {
		slurmd, conf = kept.Key.Slurmd.Path, cmp.Or(conf, kept.Key.Conf)
	}
	places := slurmconf.Find(c.Slurm.GresConf, conf)
	for _, p := range places {
		s.Tried = append(s.Tried, p.Slurm)
	}
	at, found, gres, err := slurmcmd.ReadFirst(places)
	if at.Slurm == "" {
		return s, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.Unread = err.Error()
		return s, nil
	}
	s.Conf, s.Gres, s.Pyxis = &found, gres, slurmcmd.Pyxis(found)
	beside := filepath.Join(filepath.Dir(filepath.Dir(c.Slurm.Scontrol)), "sbin/slurmd")
	s.Silent = "slurmd is missing: slurm.slurmd can say where it is"
	for _, program := range []string{c.Slurm.Slurmd, slurmd, beside} {
		if _, err := os.Stat(program); err == nil {
			s.Version, err = slurmcmd.Version(program, found.Path)
			if s.Silent = ""; err != nil {
				s.Silent = err.Error()
			}
			break
		}
	}
	return s, nil
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
	switch d.Cards, err = inventory.Read(c.NVIDIA.DriverProc, c.Paths.Sys); {
	case errors.Is(err, inventory.ErrNoDriver):
		d.Absent = true
	case err != nil:
		d.Problem = err.Error()
	}
	return d, nil
}

// listed takes the GPUs that the backend lists, for a driver that shows them in no folder of /proc, as hooks do.
func (d *Driver) listed(s gpu.Snapshot) {
	for _, r := range s.Readings {
		if r.Device.Parent == "" {
			d.Cards = append(d.Cards, gpu.Card{Device: r.Device})
		}
	}
	if len(d.Cards) == 0 {
		d.Problem = "the backend lists no GPU"
	}
}

func (s Site) env() operation.Env {
	return operation.Env{EUID: os.Geteuid(), Clock: s.Clock, Getenv: func(string) string { return "" }}
}

func askNumbers(s Site) slurmconf.List {
	if s.Survey.Slurm.Conf == nil {
		return slurmconf.Unclear("slurm.conf could not be read")
	}
	return stage.ReadNumbering(s.env(), s.Config, s.NodeName, s.Survey.Slurm.Conf.Path)
}

// askDriver asks the driver once, with a prolog's deadline. While a child of Bookend's is stuck in it, or the driver's
// own files did not answer, it is not asked.
func askDriver(s Site) (skipped string, g stage.Glance) {
	if d := s.Survey.Driver; d.Silent != "" || d.Absent {
		return cmp.Or(d.Silent, "no driver is loaded"), g
	}
	limit := s.driverLimit()
	answers := make(chan stage.Glance, 1)
	routine.Go(func(p *routine.Panic) { answers <- stage.Glance{Problem: p.Error()} }, func() {
		answers <- stage.Look(s.env(), s.Config, limit)
	})
	select {
	case g := <-answers:
		return "", g
	case <-time.After(limit + 3*time.Second):
		return "the backend's file system does not answer: " + s.Config.Backend, g
	}
}

func (s Site) driverLimit() time.Duration { return time.Duration(s.Config.Deadlines.Prolog.Driver) }
