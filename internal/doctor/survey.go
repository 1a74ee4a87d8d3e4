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

	"golang.org/x/sys/unix"

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
// may hang for reasons of its own. A part that could not be looked at has Unknown.
type Survey struct {
	Slurm  Slurm
	Driver Driver
	// Slurmd is what slurmd says of its version, or Unknown why it does not.
	Slurmd struct{ Says, Unknown string }
	// Backend is the driver's answer to one question as a hook asks it; Skipped is why it was not asked.
	Backend struct {
		Skipped string
		Answer  backend.Answer
	}
	// Open is who has the driver open, once the backend's own question is over.
	Open attrib.Scan
	// Numbers is what Slurm's GPU numbers mean, as a hook that began now would find.
	Numbers slurmconf.List
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
	// Slurmd is the program that the last hook's slurmd was; empty where none is on record.
	Slurmd string `json:"slurmd,omitempty"`
}

// Driver is the driver as its own /proc and /sys tell it, without asking it.
type Driver struct {
	Unknown string     `json:"unknown,omitempty"`
	Absent  bool       `json:"absent,omitempty"` // it is not loaded
	Problem string     `json:"problem,omitempty"`
	Cards   []gpu.Card `json:"cards,omitempty"`
	// Stuck says which child of Bookend's is stuck in the driver; then nothing asks it.
	Stuck string `json:"stuck,omitempty"`
}

// The operations of the children that look.
const (
	opLook    = "doctor-look"
	opSlurm   = "doctor-slurm"
	opDriver  = "doctor-driver"
	opVersion = "doctor-version"
)

// Operations are what the children of a program with doctor in it serve.
func Operations() operation.Others {
	return operation.Others{
		opLook: operation.Served(func(looks []Look) (all [][]File, _ error) {
			for _, l := range looks {
				all = append(all, l.inspectAll())
			}
			return all, nil
		}),
		opSlurm:   operation.Served(slurmRequest.read),
		opDriver:  operation.Served(driverRequest.read),
		opVersion: operation.Served(versionRequest.ask),
	}
}

// survey looks at the node: what its configuration and the driver say, and then what follows.
func survey(s Site, patience time.Duration) Survey {
	v, c := Survey{}, s.Config
	together(
		func() {
			found, err := operation.Ask[Slurm](opSlurm,
				slurmRequest{c.Slurm.GresConf, s.SlurmConf, c.Paths.Run, s.NodeName},
				patience)
			if v.Slurm = found; err != nil {
				v.Slurm.Unknown = err.Error()
			}
		},
		func() {
			d, err := operation.Ask[Driver](opDriver, driverRequest{c.Paths, c.NVIDIA.DriverProc, s.NodeName}, patience)
			if v.Driver = d; err != nil {
				v.Driver.Unknown = err.Error()
			}
		},
	)
	s.Survey = v
	together(
		func() { v.Slurmd.Says, v.Slurmd.Unknown = askSlurmd(s, patience) },
		func() { v.Backend.Skipped, v.Backend.Answer = askDriver(s) },
		func() { v.Numbers = askNumbers(s) },
	)
	if c.NVIDIA.DriverProc == "" {
		v.Driver.listed(v.Backend.Answer)
	}
	if !v.Driver.Absent {
		v.Open = operation.Holdings(operation.Readers{Config: c, Clock: s.Clock})
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

type slurmRequest struct {
	GresConf  string `json:"gres_conf"`
	SlurmConf string `json:"slurm_conf"`
	Run       string `json:"run"`
	Node      string `json:"node"`
}

// read reads Slurm's configuration from where it may be: where Bookend's says, else SLURM_CONF, else where a hook was
// last told that it is, else where slurmd looks.
func (r slurmRequest) read() (s Slurm, _ error) {
	if kept := state.PeekNumbering(r.Run, r.Node); kept != nil {
		s.Slurmd, r.SlurmConf = kept.Key.Slurmd.Path, cmp.Or(r.SlurmConf, kept.Key.Conf)
	}
	for _, files := range slurmconf.Find(r.GresConf, r.SlurmConf) {
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
		}
		return s, nil
	}
	return s, nil
}

// readBeside reads the files next to slurm.conf.
func (s *Slurm) readBeside(files slurmconf.Files) error {
	var wrong []error
	folder := filepath.Dir(files.Slurm)
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
	s.Gres, s.Cgroup = read(files.Gres), read(filepath.Join(folder, "cgroup.conf"))
	plugstack := filepath.Join(folder, "plugstack.conf")
	if v, ok := s.Conf.Get("PlugStackConfig"); ok {
		plugstack = v.Text
	}
	conf, err := slurmcmd.ReadPlugins(plugstack) // "required|optional PLUGIN [ARGUMENTS]": no pairs
	if err == nil {
		for _, l := range conf.Lines {
			s.Plugins = append(s.Plugins, l.Rest+l.Include)
		}
	}
	return errors.Join(wrong...)
}

type driverRequest struct {
	Paths      config.Paths `json:"paths"`
	DriverProc string       `json:"driver_proc"`
	Node       string       `json:"node"`
}

func (r driverRequest) read() (d Driver, err error) {
	stuck := state.PeekStuck(r.Paths.Run, r.Node)
	if stuck != nil && child.Alive(r.Paths.Proc, stuck.PID, stuck.StartTicks) {
		d.Stuck = operation.StuckText(*stuck, stuck.Since.Truncate(time.Second).String()+" after boot")
	}
	if r.DriverProc == "" { // the backend lists the GPUs
		return d, nil
	}
	switch d.Cards, err = inventory.Read(r.DriverProc); {
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
	if s.Survey.Slurm.Conf == nil || s.Clock.Boot == nil {
		return slurmconf.Unclear("slurm.conf could not be read")
	}
	env := operation.Env{EUID: os.Geteuid(), Clock: s.Clock, Getenv: func(string) string { return "" }}
	return stage.ReadNumbering(env, s.Config, s.NodeName, s.Survey.Slurm.Conf.Path)
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

type versionRequest struct {
	Paths []string `json:"paths"` // the first that exists
	Conf  string   `json:"conf"`  // SLURM_CONF: without it slurmd would ask the network where it is
}

// askSlurmd asks slurmd for its version. Without slurm.conf it is not started.
func askSlurmd(s Site, patience time.Duration) (says, unknown string) {
	conf, c := s.Survey.Slurm.Conf, s.Config.Slurm
	if conf == nil {
		return "", "slurm.conf could not be read"
	}
	beside := filepath.Join(filepath.Dir(filepath.Dir(c.Scontrol)), "sbin/slurmd")
	programs := append([]string{c.Slurmd, s.Survey.Slurm.Slurmd, beside}, config.SlurmdPrograms()...)
	says, err := operation.Ask[string](opVersion, versionRequest{programs, conf.Path}, patience)
	if err != nil {
		return "", err.Error()
	}
	return says, ""
}

const (
	// versionTime is for a program that only says its version.
	versionTime = 3 * time.Second
	maxVersion  = 4 << 10
)

// ask starts slurmd, of which only its version is wanted. Threat: it runs as root; one that a user could
// have written is not started.
func (r versionRequest) ask() (string, error) {
	for _, path := range r.Paths {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			continue
		}
		if err := safefile.Trusted(path); err != nil {
			return "", fmt.Errorf("not started: %w", err)
		}
		res := child.Run(child.Spec{
			Path: path, Args: []string{"-V"}, Env: []string{"SLURM_CONF=" + r.Conf}, MaxOutput: maxVersion,
			Timeout: versionTime,
		})
		if res.Outcome != child.Exited || res.ExitCode != 0 {
			return "", fmt.Errorf("%s: %s, exit %d: %.200s", path, res.Outcome, res.ExitCode, res.Stderr)
		}
		text, _, _ := strings.Cut(string(res.Stdout), "\n")
		return strings.TrimSpace(text), nil
	}
	return "", errors.New("slurmd is missing: slurm.slurmd can say where it is")
}
