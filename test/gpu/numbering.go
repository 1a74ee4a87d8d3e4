package main

import (
	"fmt"
	"slices"

	"bookend/test/cluster"
	"bookend/test/gpu/runrecord"
	"bookend/test/site"
)

// slot is one GPU in Slurm's configuration, which Slurm counts in order: the number of its device file, and its type if
// GPUs have one.
type slot struct {
	file int
	kind string
}

// numberingTyped gives the second half of the GPUs type b, which Slurm counts first, and the first half type a.
func (r *run) numberingTyped() {
	var all []slot
	n := len(r.cards)
	for i := range n / 2 * 2 {
		all = append(all, slot{(i + n/2) % n, string("ba"[i/(n/2)])})
	}
	r.counted(all)
}

// numberingLeftOut gives out all GPUs but the last of the first half.
func (r *run) numberingLeftOut() {
	var all []slot
	n := len(r.cards)
	for i := range n {
		if i != n/2-1 {
			all = append(all, slot{file: i})
		}
	}
	r.counted(all)
}

// numberingShuffled takes the GPUs from both halves by turns, the second first.
func (r *run) numberingShuffled() {
	var all []slot
	n := len(r.cards)
	for i := range n / 2 {
		all = append(all, slot{file: n/2 + i}, slot{file: i})
	}
	r.counted(all)
}

// conf is what slurm.conf and gres.conf say, and what jobs ask for that together have each GPU, those of type a first.
func conf(all []slot) (gres string, lines, asks []string) {
	gres = fmt.Sprintf("gpu:%d", len(all))
	for _, s := range all {
		kind, ask := "", "gpu:1"
		if s.kind != "" {
			kind, ask = " Type="+s.kind, "gpu:"+s.kind+":1"
			gres = fmt.Sprintf("gpu:b:%[1]d,gpu:a:%[1]d", len(all)/2)
		}
		lines, asks = append(lines, fmt.Sprintf("Name=gpu%s File=DEV/nvidia%d", kind, s.file)), append(asks, ask)
	}
	slices.Sort(asks)
	return gres, lines, asks
}

// counted judges jobs on a Slurm of its own that counts the GPUs in this way; what is judged goes to the same record. A
// GPU that Slurm does not have is in use all the time.
func (r *run) counted(as []slot) {
	l := *r.lane
	gres, lines, asks := conf(as)
	l.node, l.oneGPU = r.node+"n", asks[0]
	l.site = must(site.Up(site.Options{
		Programs: l.programs, Nodes: []string{l.node}, GPUs: l.fake, Devices: l.devices(), Gres: gres, GresConf: lines,
		Track: l.fence(), Constrain: true, Mode: "enforce", Config: l.sections(nil),
	}))
	defer func() {
		if l.daemon != r.daemon {
			l.daemon.killAll()
		}
		try(l.site.Down())
	}()
	l.install()
	l.settleIn()
	all := l.cards
	l.cards = nil
	for _, s := range as {
		l.cards = append(l.cards, all[s.file])
	}
	outside := slices.DeleteFunc(slices.Clone(all), func(g card) bool { return slices.Contains(l.cards, g) })
	if len(outside) > 0 {
		l.head = l.reachable()
		l.daemon.start(0, 0, outside[0].uuid, "cudajob", "alloc", "--mib", "2048")
	}
	other := &run{lane: &l, rec: r.rec, scene: r.scene}
	other.sideBySide(asks)
	other.orphan(other.leaveOrphan(), "orphan", exitOrphan)
}

// fence is the way to keep jobs from devices. A hybrid host's cgroup v2 needs slurmd to be deceived, which slurmd -G
// is not.
func (l *lane) fence() cluster.Track {
	if l.fake > 0 && slices.Contains(cluster.Tracks(), cluster.CgroupV1) {
		return cluster.CgroupV1
	}
	return l.track
}

// reachable lets a job see the one GPU of Slurm's that it can reach: ConstrainDevices hides no GPU that Slurm does not
// have, and Slurm's CUDA_VISIBLE_DEVICES would count it.
func (l *lane) reachable() []string {
	var all []runrecord.GPU
	for _, c := range l.cards {
		all = append(all, runrecord.GPU{UUID: c.uuid})
	}
	return []string{
		"for u in " + uuids(all) + "; do",
		`if CUDA_VISIBLE_DEVICES=$u $CUDAJOB alloc --mib 2 --sleep 0 >/dev/null 2>&1; then OWN=$u; fi`,
		"done", "export CUDA_VISIBLE_DEVICES=$OWN",
	}
}

// sideBySide runs jobs at the same time. Each must be clean, on a GPU of its own that its own CUDA named.
func (r *run) sideBySide(asks []string) {
	gate, used := r.gate(), map[string]bool{}
	var all []cluster.JobID
	for _, gres := range asks {
		id := r.submit(0, r.script(append(slices.Clone(whichCard), r.until(gate))...), "--gres="+gres)
		all = append(all, id)
	}
	for _, id := range all {
		r.awaitOutput(id, "ready ")
	}
	try(open(gate))
	for _, id := range all {
		job := r.finish(id)
		r.clean(job)
		used[uuids(job.GPUs)] = true
	}
	r.check("GPUs in use side by side", len(r.cards), len(used))
}

func (r *run) neighbours() {
	gate := r.gate()
	first := r.submit(1, r.script("$CUDAJOB alloc --mib 2048 &", r.until(gate), "kill $!", "wait $! || true"),
		"--gres=gpu:1")
	r.awaitOutput(first, "ready ")
	second := r.leaveOrphan()
	try(open(gate))
	job := r.finish(first)
	r.evidence("after both jobs, the second's process alive")
	r.orphan(second, "orphan", 0)
	r.clean(job)
	r.holds("the jobs had different GPUs", "two GPUs", uuids(job.GPUs)+" and "+uuids(second.GPUs),
		uuids(job.GPUs) != uuids(second.GPUs))
}

func (r *run) numberAgrees() {
	r.record("numbering", "-L")
	r.sideBySide(slices.Repeat([]string{r.oneGPU}, len(r.cards)))
	job := r.onEveryCard()
	r.check("GPUs of the job", len(r.cards), len(job.GPUs))
	r.clean(job)
}
