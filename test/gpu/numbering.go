package main

import (
	"errors"
	"slices"

	"bookend/test/cluster"
	"bookend/test/site"
)

// counted is a way to count four GPUs in Slurm's configuration.
type counted struct {
	order []int    // the device files' numbers by Slurm's index
	types []string // GRES types to ask for, one job a GPU
	gres  func(devices []string) (gres string, conf []string)
}

var typedReverse = counted{
	order: []int{2, 3, 0, 1}, types: []string{":a", ":a", ":b", ":b"},
	gres: func(d []string) (string, []string) {
		return "gpu:b:2,gpu:a:2", []string{
			"Name=gpu Type=b File=" + d[2], "Name=gpu Type=b File=" + d[3],
			"Name=gpu Type=a File=" + d[0], "Name=gpu Type=a File=" + d[1],
		}
	},
}

var leftOut = counted{
	order: []int{0, 2, 3}, types: []string{"", "", ""},
	gres: func(d []string) (string, []string) { return "gpu:3", files(d[0], d[2], d[3]) },
}

var shuffled = counted{
	order: []int{2, 0, 3, 1}, types: []string{"", "", "", ""},
	gres: func(d []string) (string, []string) { return "gpu:4", files(d[2], d[0], d[3], d[1]) },
}

func files(devices ...string) (lines []string) {
	for _, d := range devices {
		lines = append(lines, "Name=gpu File="+d)
	}
	return lines
}

func numberingChains() []chain {
	return []chain{
		{gpus: 4, mode: "enforce", steps: []step{numberingTyped}},
		{gpus: 4, mode: "enforce", steps: []step{numberingLeftOut}},
		{gpus: 4, mode: "enforce", steps: []step{numberingShuffled}},
	}
}

var numberingTyped = step{
	name: "numbering-typed", title: "Typed GPUs, in reverse order of their device files",
	truth: "Slurm counts type b (nvidia2, nvidia3) before type a (nvidia0, nvidia1). Four jobs side by side, two of each type, " +
		"then one of type a that leaves a process on its GPU. Which GPU a job has is what CUDA says inside its device fence.",
	do: func(r *run) error { return r.counted(typedReverse, nothingElse) },
}

var numberingLeftOut = step{
	name: "numbering-left-out", title: "A GPU that the driver has and Slurm does not",
	truth: "gres.conf leaves nvidia1 out, and a process of root holds 2 GiB on it all the time. Three jobs side by side on the " +
		"other GPUs are clean, then one leaves a process on its GPU.",
	do: func(r *run) error {
		return r.counted(leftOut, func(r *run) error {
			_, err := r.daemon.start(0, 0, askFor{Card: r.outside[0].uuid, Program: "cudajob", Args: []string{"alloc", "--mib", "2048"}})
			return err
		})
	},
}

var numberingShuffled = step{
	name: "numbering-shuffled", title: "GPUs in no order",
	truth: "gres.conf names nvidia2, nvidia0, nvidia3, nvidia1 in this order. Four jobs side by side are clean, then one leaves " +
		"a process on its GPU.",
	do: func(r *run) error { return r.counted(shuffled, nothingElse) },
}

func nothingElse(*run) error { return nil }

// counted judges jobs on a Slurm of its own that counts the GPUs in another way.
func (r *run) counted(c counted, first func(*run) error) (err error) {
	other, err := r.otherSite(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, other.endSite()) }()
	if err := first(other); err != nil {
		return err
	}
	if err := other.sideBySide(c.types); err != nil {
		return err
	}
	job, err := other.leaveOrphan()
	if err != nil {
		return err
	}
	other.orphan(job, "orphan")
	return other.draining(job, exitOrphan)
}

// otherSite brings up a Slurm that counts the GPUs as c says. What is judged on it goes to the same record.
func (r *run) otherSite(c counted) (_ *run, err error) {
	l := *r.lane
	l.node, l.oneGPU = r.node+"n", "gpu"+c.types[0]+":1"
	l.site, err = site.Up(site.Options{
		Programs: l.programs, Nodes: []string{l.node}, GPUs: l.fake, Devices: r.devices(), Gres: c.gres, Track: l.track, Constrain: true,
		Mode: "enforce", Config: l.sections(nil),
	})
	if err != nil {
		return nil, err
	}
	other := &run{lane: &l, rec: r.rec, scene: r.scene}
	if err := errors.Join(l.install(), l.settleIn()); err != nil {
		return nil, errors.Join(err, other.endSite())
	}
	all := l.cards
	l.cards = nil
	for _, n := range c.order {
		l.cards = append(l.cards, all[n])
	}
	l.outside = slices.DeleteFunc(slices.Clone(all), func(g card) bool { return slices.Contains(l.cards, g) })
	return other, nil
}

// devices are the real GPUs' device files; fake ones are made for each site.
func (r *run) devices() []string {
	if r.fake > 0 {
		return nil
	}
	return devicesOf(r.cards)
}

func (r *run) endSite() error {
	if r.daemon != nil {
		r.daemon.killAll()
		r.daemon.close()
	}
	return r.site.Down()
}

// sideBySide runs a job of each type at the same time. Each must be clean, on the GPU that its own CUDA named.
func (r *run) sideBySide(types []string) error {
	gate := r.gate()
	var all []cluster.JobID
	for _, t := range types {
		id, err := r.submit(0, r.script(append(slices.Clone(whichCard), r.until(gate))...), "--gres=gpu"+t+":1")
		if err != nil {
			return err
		}
		all = append(all, id)
	}
	for _, id := range all {
		if err := r.awaitOutput(id, "ready "); err != nil {
			return err
		}
	}
	if err := open(gate); err != nil {
		return err
	}
	return r.onDifferentCards(all)
}
