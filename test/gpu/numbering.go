package main

import (
	"fmt"
	"slices"

	"bookend/test/cluster"
	"bookend/test/gpu/record"
	"bookend/test/site"
)

// counted is a way to count a machine's GPUs in Slurm's configuration.
type counted struct {
	order []int    // the device files' numbers by Slurm's index
	types []string // of the GPUs in that order; one is empty if GPUs have none
}

// typedReverse gives the second half of n GPUs type b, which Slurm counts first, and the first half type a.
func typedReverse(n int) (c counted) {
	for i := range n / 2 * 2 {
		c.order, c.types = append(c.order, (i+n/2)%n), append(c.types, string("ba"[i/(n/2)]))
	}
	return c
}

// leftOut gives out all of n GPUs but the last of the first half.
func leftOut(n int) (c counted) {
	for i := range n {
		if i != n/2-1 {
			c.order, c.types = append(c.order, i), append(c.types, "")
		}
	}
	return c
}

// shuffled takes n GPUs from both halves by turns, the second first.
func shuffled(n int) (c counted) {
	for i := range n / 2 {
		c.order, c.types = append(c.order, n/2+i, i), append(c.types, "", "")
	}
	return c
}

// conf is what slurm.conf and gres.conf say.
func (c counted) conf() (gres string, lines []string) {
	for i, n := range c.order {
		file := fmt.Sprintf(" File=DEV/nvidia%d", n)
		if c.types[i] == "" {
			gres, lines = fmt.Sprintf("gpu:%d", len(c.order)), append(lines, "Name=gpu"+file)
			continue
		}
		gres = fmt.Sprintf("gpu:b:%d,gpu:a:%d", len(c.order)/2, len(c.order)/2)
		lines = append(lines, "Name=gpu Type="+c.types[i]+file)
	}
	return gres, lines
}

// asks are what jobs ask for that together have each GPU: those of type a first.
func (c counted) asks() (all []string) {
	for _, t := range c.types {
		if t != "" {
			t = ":" + t
		}
		all = append(all, "gpu"+t+":1")
	}
	slices.Sort(all)
	return all
}

func (r *run) numberingTyped() {
	r.counted(typedReverse(len(r.cards)), nothingElse)
}

func (r *run) numberingLeftOut() {
	r.counted(leftOut(len(r.cards)), func(r *run) {
		r.daemon.start(0, 0, r.outside[0].uuid, "cudajob", "alloc", "--mib", "2048")
	})
}

func (r *run) numberingShuffled() {
	r.counted(shuffled(len(r.cards)), nothingElse)
}

func nothingElse(*run) {}

// counted judges jobs on a Slurm of its own that counts the GPUs in another way.
func (r *run) counted(c counted, first func(*run)) {
	other := r.otherSite(c)
	defer other.endSite()
	first(other)
	other.sideBySide(c.asks())
	job := other.leaveOrphan()
	other.orphan(job, "orphan", exitOrphan)
}

// otherSite brings up a Slurm that counts the GPUs as c says. What is judged on it goes to the same record.
func (r *run) otherSite(c counted) *run {
	l := *r.lane
	l.node, l.oneGPU = r.node+"n", c.asks()[0]
	gres, lines := c.conf()
	l.site = must(site.Up(site.Options{
		Programs: l.programs, Nodes: []string{l.node}, GPUs: l.fake, Devices: r.devices(), Gres: gres, GresConf: lines,
		Track: l.fence(), Constrain: true, Mode: "enforce", Config: l.sections(nil),
	}))
	other := &run{lane: &l, rec: r.rec, scene: r.scene}
	l.install()
	l.settleIn()
	all := l.cards
	l.cards = nil
	for _, n := range c.order {
		l.cards = append(l.cards, all[n])
	}
	l.outside = slices.DeleteFunc(slices.Clone(all), func(g card) bool { return slices.Contains(l.cards, g) })
	if len(l.outside) > 0 {
		l.head = l.reachable()
	}
	return other
}

// fence is the way to keep jobs from devices. A hybrid host's cgroup v2 needs slurmd to be deceived, which slurmd -G
// is not.
func (l *lane) fence() cluster.Track {
	if tracks, err := cluster.Tracks(); err == nil && l.fake > 0 && slices.Contains(tracks, cluster.CgroupV1) {
		return cluster.CgroupV1
	}
	return l.track
}

// reachable lets a job see the one GPU of Slurm's that it can reach: ConstrainDevices hides no GPU that Slurm does not
// have, and Slurm's CUDA_VISIBLE_DEVICES would count it.
func (l *lane) reachable() []string {
	return []string{
		"for u in " + uuids(l.slurms()) + "; do",
		`if CUDA_VISIBLE_DEVICES=$u $CUDAJOB alloc --mib 2 --sleep 0 >/dev/null 2>&1; then OWN=$u; fi`,
		"done", "export CUDA_VISIBLE_DEVICES=$OWN",
	}
}

// slurms are the GPUs that Slurm has.
func (l *lane) slurms() (all []record.GPU) {
	for i, c := range l.cards {
		all = append(all, record.GPU{Index: i, UUID: c.uuid})
	}
	return all
}

// devices are the real GPUs' device files; fake ones are made for each site.
func (r *run) devices() []string {
	if r.fake > 0 {
		return nil
	}
	return devicesOf(r.cards)
}

func (r *run) endSite() {
	if r.daemon != nil {
		r.daemon.killAll()
	}
	try(r.site.Down())
}

// sideBySide runs jobs at the same time. Each must be clean, on the GPU that its own CUDA named.
func (r *run) sideBySide(asks []string) {
	gate := r.gate()
	var all []cluster.JobID
	for _, gres := range asks {
		id := r.submit(0, r.script(append(slices.Clone(whichCard), r.until(gate))...), "--gres="+gres)
		all = append(all, id)
	}
	for _, id := range all {
		r.awaitOutput(id, "ready ")
	}
	try(open(gate))
	r.onDifferentCards(all)
}
