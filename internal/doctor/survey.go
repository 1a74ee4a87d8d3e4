package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/node"
	"bookend/internal/nodefiles"
	"bookend/internal/slurm"
	"bookend/internal/slurmcmd"
	"bookend/internal/slurmconf"
)

// Survey is what was queried before any file is checked: each part in a child of its own, as each may hang.
type Survey struct {
	Slurm   Slurm
	Driver  Driver         `json:"-"`
	Glance  node.Glance    `json:"-"` // the driver's answer to one query, as a hook makes it
	Numbers slurmconf.List `json:"-"` // what Slurm's GPU numbers mean to a hook that begins now
}

type Slurm struct {
	Conf   *slurmconf.Conf // nil if there is none, or for the reason in Unread
	Unread string
	Gres   slurmconf.Conf // gres.conf next to it, if there is one
	Pyxis  bool           // loaded by plugstack.conf

	Cgroup       slurmconf.Conf // cgroup.conf next to it, if there is one
	CgroupUnread string

	Version, Silent string // slurmd's version, or why it did not report it
}

// Driver is what /proc and /sys show of the driver, without a query to it.
type Driver struct {
	Absent  bool // it is not loaded
	Problem string
	Cards   []gpu.Physical
	// Silent is why it is not queried: its files do not answer, or a child of Bookend's is stuck in it.
	Silent string
}

var (
	opCheck  = child.NewOperation("doctor-check", request.check)
	opSlurm  = child.NewOperation("doctor-slurm", request.slurm)
	opDriver = child.NewOperation("doctor-driver", request.driver)
)

func survey(s Site, patience time.Duration) (v Survey) {
	bare := request{Site: s}
	driver := child.Async(func() (Driver, error) { return opDriver.Ask(bare, patience) })
	var err error
	v.Slurm, err = opSlurm.Ask(bare, patience)
	if err != nil {
		v.Slurm.Unread = err.Error()
	}
	v.Driver, err = driver()
	if err != nil {
		v.Driver.Silent = "its files in /proc do not answer: " + err.Error()
	}
	s.Survey = v
	numbers := child.Async(func() (list slurmconf.List, _ error) {
		if conf := s.Survey.Slurm.Conf; conf != nil {
			list = node.ReadNumbering(s.env(), s.Config, s.NodeName, conf.Path).List
		}
		return list, nil
	})
	v.Driver.Silent, v.Glance = askDriver(s)
	v.Numbers, _ = numbers() // if it failed internally, nothing is known
	if s.Config.NVIDIA.DriverProc == "" {
		v.Driver.listed(v.Glance.Snapshot)
	}
	return v
}

// slurm reads Slurm's configuration: from Bookend's setting, SLURM_CONF, that of the last hook, or slurmd's default.
func (r request) slurm() (s Slurm, _ error) {
	c, conf, slurmd := r.Site.Config, r.Site.SlurmConf, ""
	if kept := node.Numbering.PeekNode(c.Paths.Run, r.Site.NodeName); kept != nil {
		slurmd, conf = kept.Key.Slurmd.Path, cmp.Or(conf, kept.Key.Conf)
	}
	at, found, gres, err := slurmcmd.ReadFirst(slurmconf.Find(c.Slurm.GresConf, conf))
	if at.Slurm == "" {
		return s, nil
	}
	if err != nil {
		s.Unread = err.Error()
		return s, nil
	}
	s.Conf, s.Gres, s.Pyxis = &found, gres, slurmcmd.Pyxis(found)
	s.Cgroup, err = slurmcmd.Read(filepath.Join(filepath.Dir(found.Path), "cgroup.conf"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.CgroupUnread = err.Error()
	}
	beside := filepath.Join(filepath.Dir(filepath.Dir(c.Slurm.Scontrol)), "sbin/slurmd")
	s.Silent = "slurmd is missing: set slurm.slurmd to its path"
	for _, program := range []string{c.Slurm.Slurmd, slurmd, beside} {
		if _, err := os.Stat(program); err == nil {
			s.Version, err = slurmcmd.Version(program, found.Path, slurmcmd.Patience)
			s.Silent = ""
			if err != nil {
				s.Silent = err.Error()
			}
			break
		}
	}
	return s, nil
}

func (r request) driver() (d Driver, err error) {
	c := r.Site.Config
	if stuck := node.PeekStuck(c.Paths, r.Site.NodeName); stuck != nil {
		d.Silent = stuck.Words(stuck.Since.Truncate(time.Second).String() + " after boot")
	}
	if c.NVIDIA.DriverProc == "" { // the backend lists the GPUs
		return d, nil
	}
	d.Cards, err = nodefiles.Read(c.NVIDIA.DriverProc, c.Paths.Sys)
	switch {
	case errors.Is(err, nodefiles.ErrNoDriver):
		d.Absent = true
	case err != nil:
		d.Problem = err.Error()
	}
	return d, nil
}

// listed takes the GPUs from the backend, as hooks do, for a driver that does not list them in a directory of /proc.
func (d *Driver) listed(s gpu.Snapshot) {
	for _, r := range s.Readings {
		if r.Device.Parent == "" {
			d.Cards = append(d.Cards, gpu.Physical{Device: r.Device})
		}
	}
	if len(d.Cards) == 0 {
		d.Problem = "the backend lists no GPU"
	}
}

func (s Site) env() child.Env {
	return child.Env{EUID: os.Geteuid(), Clock: s.Clock, Getenv: func(string) string { return "" }}
}

// askDriver queries the driver once, with a prolog's deadline, unless a child is stuck in it or its files hang.
func askDriver(s Site) (skipped string, g node.Glance) {
	if d := s.Survey.Driver; d.Silent != "" || d.Absent {
		return cmp.Or(d.Silent, "no driver is loaded"), g
	}
	limit := s.driverLimit()
	answers := make(chan node.Glance, 1)
	child.Go(func(p *child.Panic) { answers <- node.Glance{Problem: p.Error()} }, func() {
		answers <- node.SampleAll(s.env(), s.Config, limit, false)
	})
	select {
	case g := <-answers:
		return "", g
	case <-time.After(limit + 3*time.Second):
		return "the backend's file system does not answer: " + s.Config.Backend, g
	}
}

func (s Site) driverLimit() time.Duration { return time.Duration(s.Config.Deadlines.Prolog.Driver) }

// given returns how many GPUs slurm.conf has here, -1 if it has no such node or, for the reason unsure, is unclear.
func (s Site) given() (count int, unsure string) {
	if s.Survey.Slurm.Conf == nil {
		return -1, ""
	}
	node := s.Survey.Slurm.Conf.Node(s.NodeName)
	if !node.Found || node.Unsure != "" {
		return -1, node.Unsure
	}
	return slurmconf.Count(node.Gres), ""
}

func judgeOrder(v *view) string {
	count, unsure := v.given()
	d, n, have := v.Survey.Driver, v.Survey.Numbers, len(slurmconf.Usable(v.Survey.Driver.Cards))
	parts := func(r gpu.Reading) bool { return r.Device.Parent != "" || r.Parts }
	byMap, mig := len(v.Config.NVIDIA.GPUMap) > 0, slices.ContainsFunc(v.Survey.Glance.Snapshot.Readings, parts)
	switch {
	case count <= 0 && unsure == "":
		return "not applicable: slurm.conf has no GPUs of this node"
	case d.Problem != "" || have == 0:
		v.unknown("the driver shows 0 GPUs: none to compare with Slurm's", "nvidia-smi -L")
	case count > have && !mig:
		v.wrong(fmt.Sprintf("slurm.conf gives out %d, the driver has %d", count, have),
			"nvidia-smi -L   # which is missing?").
			Why = "jobs are given GPUs that do not exist, or slurmd drains the node for it"
	case mig:
		return "MIG: instances are known by nvidia.gpu_map, or by the ids that AutoDetect=nvml in gres.conf gives"
	case !byMap && !n.Source.Settled():
		v.wrong(cmp.Or(n.Why, "slurmd was not asked"), v.orderFix())
	default:
		return v.places(count)
	}
	return ""
}

func (v *view) orderFix() string {
	return "slurmd -N " + v.NodeName + " -v -G   # lists Slurm's order. Restart slurmd if its configuration has " +
		"changed since it started; or set nvidia.gpu_map. If slurmd is elsewhere, set slurm.slurmd"
}

// places describes what Slurm's numbers mean, and reports where hooks and Slurm disagree.
func (v *view) places(count int) string {
	cards, n := v.Survey.Driver.Cards, v.Survey.Numbers
	var places []string
	for index := range count {
		job := slurm.Job{GPUIndexes: []int{index}}
		found := slurmconf.Devices(job, cards, v.Config.NVIDIA.GPUMap, n)
		slurms := slurmconf.Devices(job, cards, nil, n)
		switch {
		case found.Unknown != "":
			v.wrong(found.Unknown, v.orderFix())
			return ""
		case len(found.Devices) == 0:
			v.wrong(fmt.Sprintf("Slurm's GPU %d is none that the driver has", index),
				"nvidia-smi -L; take it out of gres.conf and slurm.conf, then restart slurmd").
				Why = "its jobs find BKD-MISSING"
			return ""
		}
		bus := found.Devices[0].Device.BusID
		if len(slurms.Devices) == 1 && slurms.Devices[0].Device.BusID != bus {
			v.wrong(fmt.Sprintf("nvidia.gpu_map takes number %d for %s, slurmd for %s", index, bus,
				slurms.Devices[0].Device.BusID), "gpu_map: {}   # below nvidia: in bookend.yaml").
				Why = "hooks look at another GPU than the job's"
		}
		places = append(places, fmt.Sprintf("%d is %s", index, bus))
	}
	return strings.Join(places, ", ")
}

func judgeShards(v *view) string {
	s := v.Survey.Slurm
	answer, configured := slurmconf.SharedGPUs(*s.Conf, v.NodeName), v.Config.Slurm.Shards
	switch {
	case configured == config.ShardsNo && answer.Shared == slurm.Yes:
		v.wrong(answer.Why+", but slurm.shards is no", "shards: auto   # below slurm: in bookend.yaml").
			Why = "a job with a part of a GPU would be blamed, and the node drained, for what another job has on it"
	case configured == config.ShardsAuto && answer.Shared == slurm.Unknown:
		v.warn("whether GPUs are given out in parts is not known: "+answer.Why,
			"shards: no   # below slurm: in bookend.yaml")
	case answer.Shared == slurm.Yes || configured == config.ShardsYes:
		return "GPUs are given out in parts: " + why(v.check.Name)
	}
	return "none: " + answer.Why
}

func judgeDriver(v *view) string {
	const load = "modprobe nvidia && nvidia-smi -L"
	d := v.Survey.Driver
	switch given, _ := v.given(); {
	case d.Absent && given > 0:
		v.wrong(fmt.Sprintf("not loaded, but slurm.conf gives out %d GPUs here", given), load).
			Why = "jobs get GPUs that do not work: each hook finds BKD-NODRIVER"
	case d.Absent && given == 0:
		return "not loaded, and slurm.conf gives out no GPU here"
	case d.Absent:
		v.warn("not loaded", load+"   # on a node with GPUs")
	default:
		if d.Problem != "" {
			v.wrong(d.Problem, "nvidia-smi -L; dmesg | grep -i nvrm")
		}
		return judgeBackend(v)
	}
	return ""
}

func judgeBackend(v *view) string {
	const try = "bookend snapshot"
	g, last := v.Survey.Glance, v.Survey.Glance.Snapshot
	switch skipped := v.Survey.Driver.Silent; {
	case skipped != "":
		v.unknown("not asked: "+skipped, try)
	case g.Problem != "":
		v.wrong("it says "+g.Problem, "nvidia-smi; "+try)
	case v.Version != "" && g.Version != v.Version:
		v.wrong(fmt.Sprintf("the backend is of version %.60s, bookend of %s", g.Version, v.Version),
			"install both from the same package").Why = "programs of two releases were not tried together"
	case len(last.Readings)+len(last.Faults) == 0:
		v.wrong("the backend said nothing of any GPU", try)
	case len(last.Faults) > 0:
		f := last.Faults[0]
		v.wrong(fmt.Sprintf("GPU %s: %s: %s", f.BusID, f.Code, f.Detail), "nvidia-smi; dmesg | grep -i xid").
			Why = "that GPU cannot be looked at"
	}
	return fmt.Sprintf("%s: %d GPUs in %v; a prolog has %v for it", cmp.Or(last.Driver.Version, "it answers"),
		len(last.Readings), g.Took.Round(time.Millisecond), v.driverLimit())
}
