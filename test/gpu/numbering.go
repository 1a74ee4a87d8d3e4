package main

import (
	"errors"
	"fmt"
	"slices"

	"bookend/test/cluster"
	"bookend/test/site"
)

// counted is a way to count a machine's GPUs in Slurm's configuration.
type counted struct {
	order []int    // the device files' numbers by Slurm's index
	types []string // GRES types to ask for, one job a GPU
	gres  string
	lines func(file func(index int) string) []string // of gres.conf; file names the device file of an index
}

// typedReverse gives the second half of n GPUs type b, which Slurm counts first, and the first half type a.
func typedReverse(n int) (c counted) {
	half := n / 2
	for i := range half {
		c.order, c.types = append(c.order, half+i), append(c.types, ":a")
	}
	for i := range half {
		c.order, c.types = append(c.order, i), append(c.types, ":b")
	}
	c.gres = fmt.Sprintf("gpu:b:%d,gpu:a:%d", half, half)
	c.lines = func(file func(int) string) (lines []string) {
		for i := range c.order {
			lines = append(lines, fmt.Sprintf("Name=gpu Type=%c File=%s", "ba"[i/half], file(i)))
		}
		return lines
	}
	return c
}

// leftOut gives out all of n GPUs but the last of the first half.
func leftOut(n int) counted {
	var order []int
	for i := range n {
		if i != n/2-1 {
			order = append(order, i)
		}
	}
	return untyped(order)
}

// shuffled takes n GPUs from both halves by turns, the second first.
func shuffled(n int) counted {
	var order []int
	for i := range n / 2 {
		order = append(order, n/2+i, i)
	}
	return untyped(order)
}

func untyped(order []int) counted {
	return counted{
		order: order, types: make([]string, len(order)), gres: fmt.Sprintf("gpu:%d", len(order)),
		lines: func(file func(int) string) (lines []string) {
			for i := range order {
				lines = append(lines, "Name=gpu File="+file(i))
			}
			return lines
		},
	}
}

func (c counted) conf(devices []string) (gres string, lines []string) {
	return c.gres, c.lines(func(i int) string { return devices[c.order[i]] })
}

func numberingChains() []chain {
	return []chain{
		{gpus: 2, mode: "enforce", steps: []step{numberingTyped}},
		{gpus: 2, mode: "enforce", steps: []step{numberingLeftOut}},
		{gpus: 2, mode: "enforce", steps: []step{numberingShuffled}},
	}
}

var numberingTyped = step{
	name: "numbering-typed", title: "Typed GPUs, in reverse order of their device files",
	truth: "Slurm counts type b, the second half of the GPUs, before type a. A job a GPU side by side, of both types, is clean, " +
		"then one of type a leaves a process on its GPU. Which GPU a job has is what CUDA says inside its device fence.",
	do: func(r *run) error { return r.counted(typedReverse(len(r.cards)), nothingElse) },
}

var numberingLeftOut = step{
	name: "numbering-left-out", title: "A GPU that the driver has and Slurm does not",
	truth: "gres.conf leaves out the last GPU of the first half, and a process of root holds 2 GiB on it all the time. A job a GPU " +
		"side by side on the others is clean, then one leaves a process on its GPU.",
	do: func(r *run) error {
		return r.counted(leftOut(len(r.cards)), func(r *run) error {
			_, err := r.daemon.start(0, 0, askFor{Card: r.outside[0].uuid, Program: "cudajob", Args: []string{"alloc", "--mib", "2048"}})
			return err
		})
	},
}

var numberingShuffled = step{
	name: "numbering-shuffled", title: "GPUs in no order",
	truth: "gres.conf names the GPUs from both halves by turns, the second first. A job a GPU side by side is clean, then one " +
		"leaves a process on its GPU.",
	do: func(r *run) error { return r.counted(shuffled(len(r.cards)), nothingElse) },
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
		Programs: l.programs, Nodes: []string{l.node}, GPUs: l.fake, Devices: r.devices(), Gres: c.conf, Track: l.track, Constrain: true,
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
