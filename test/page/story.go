package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"

	"bookend/internal/ledger"
	"bookend/internal/slurm"
)

// job is one job of a story; its times are hours of the story.
type job struct {
	id       slurm.JobID
	uid      int
	gpus     []int
	from, to float64
	mib      int
	late     bool     // no prolog ran
	leaves   []string // flags of a program that outlives it
	until    float64  // when that one ends
	says     string   // of the kernel's log while it runs, with the card's PCI address for %s
	blind    bool     // the driver's library is not there at its end
}

func (j job) user() string { return []string{"alice", "bob", "carol", "dave"}[j.uid%4] }

// record is a run with its hours in the story.
type record struct {
	ledger.Run
	from, to float64
}

// step is something that happens at an hour.
type step struct {
	at  float64
	nth int
	do  func() error
}

// play lets the jobs of a story happen in their order, each for a moment.
func play(m *machine, jobs []job, end float64) ([]record, error) {
	var steps []step
	add := func(at float64, do func() error) { steps = append(steps, step{at, len(steps), do}) }
	for _, j := range jobs {
		add(j.from, func() error { return m.begin(j) })
		if j.to < end {
			add(j.to, func() error { return m.end(j) })
		}
		if len(j.leaves) > 0 && j.until < end {
			add(j.until, func() error { m.stop(fmt.Sprint("left-", j.id)); return nil })
		}
	}
	slices.SortFunc(steps, func(a, b step) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.nth, b.nth)) })
	for _, s := range steps {
		if err := s.do(); err != nil {
			return nil, err
		}
	}
	return m.records(jobs)
}

// records joins the runs on record with their jobs.
func (m *machine) records(jobs []job) ([]record, error) {
	runs, err := m.runs()
	if err != nil {
		return nil, err
	}
	var out []record
	for _, r := range runs {
		i := slices.IndexFunc(jobs, func(j job) bool { return j.id == r.Job.ID })
		out = append(out, record{r, jobs[i].from, jobs[i].to})
	}
	return out, nil
}

func (m *machine) begin(j job) error {
	if !j.late {
		if err := m.hook("bookend-prolog", slurm.Prolog, j); err != nil {
			return err
		}
	}
	for _, card := range j.gpus {
		if err := m.start(fmt.Sprint("own-", j.id, "-", card), j.uid, card, j.mib); err != nil {
			return err
		}
	}
	if j.says != "" {
		return m.kernel(fmt.Sprintf(j.says, m.world.BusID(j.gpus[0])[:10]))
	}
	return nil
}

func (m *machine) end(j job) error {
	for _, card := range j.gpus {
		m.stop(fmt.Sprint("own-", j.id, "-", card))
	}
	if len(j.leaves) > 0 {
		if err := m.start(fmt.Sprint("left-", j.id), j.uid, j.gpus[0], 20000, j.leaves...); err != nil {
			return err
		}
	}
	if j.blind {
		if err := m.world.Set("on.nvmlInit_v2", "rc 9"); err != nil {
			return err
		}
		defer m.world.Set("on.nvmlInit_v2", "")
	}
	return m.hook("bookend-epilog", slurm.Epilog, j)
}

// hours is how long the week's story is.
const hours = 6 * 24

// week is a node's ordinary days, with what goes wrong on some.
func week(m *machine) ([]record, error) {
	jobs := append(ordinary(hours), incidents()...)
	return play(m, jobs, hours)
}

// busy are the cards on which ordinary jobs run; the incidents have the others.
var busy = []int{0, 1, 2, 4, 7}

// ordinary fills the busy cards with jobs of one, two or four of them.
func ordinary(end float64) []job {
	rng := rand.New(rand.NewPCG(17, 4))
	free := map[int]float64{}
	for _, c := range busy {
		free[c] = rng.Float64() * 5
	}
	var jobs []job
	for id := slurm.JobID(4100); ; id++ {
		order := slices.Clone(busy)
		slices.SortFunc(order, func(a, b int) int { return cmp.Compare(free[a], free[b]) })
		n := []int{1, 1, 1, 1, 2, 2, 4}[rng.IntN(7)]
		gpus := slices.Sorted(slices.Values(order[:n]))
		from := free[order[n-1]] + 0.05 + rng.ExpFloat64()*2
		if from > end-1 {
			return jobs
		}
		j := job{id: id, uid: 60000 + rng.IntN(4), gpus: gpus, from: from, to: from + 0.7 + rng.ExpFloat64()*9,
			mib: 4000 + rng.IntN(130000)}
		for _, g := range gpus {
			free[g] = j.to
		}
		jobs = append(jobs, j)
	}
}

// incidents are a card that is left dirty again and again, a shared one, a faulty one, and gaps in the record.
func incidents() []job {
	orphan := []string{"--orphan", "--name", "train"}
	return []job{
		// GPU 3: one user's workers stay, some for a moment, some until an admin ends them.
		{id: 5001, uid: 60001, gpus: []int{3}, from: 3, to: 17, mib: 61000},
		{id: 5002, uid: 60001, gpus: []int{3}, from: 20, to: 31, mib: 70000, leaves: orphan, until: 50},
		{id: 5003, uid: 60002, gpus: []int{3}, from: 36, to: 44, mib: 90000},
		{id: 5004, uid: 60001, gpus: []int{3}, from: 54, to: 66, mib: 70000, leaves: orphan, until: 70},
		{id: 5005, uid: 60003, gpus: []int{3}, from: 76, to: 90, mib: 30000},
		{id: 5006, uid: 60001, gpus: []int{3}, from: 93, to: 104, mib: 70000,
			leaves: []string{"--fork-hold", "--name", "loader"}, until: 130},
		{id: 5007, uid: 60000, gpus: []int{3}, from: 115, to: 124, mib: 50000},
		{id: 5008, uid: 60001, gpus: []int{3}, from: 132, to: 138, mib: 70000, leaves: orphan, until: hours},
		// GPU 5: two jobs at once, then one that has not ended, and one of which no start is on record.
		{id: 5101, uid: 60002, gpus: []int{5}, from: 6, to: 40, mib: 40000},
		{id: 5102, uid: 60003, gpus: []int{5}, from: 18, to: 28, mib: 40000},
		{id: 5103, uid: 60002, gpus: []int{5}, from: 52, to: 80, mib: 120000, late: true},
		{id: 5104, uid: 60000, gpus: []int{5}, from: 100, to: hours, mib: 80000},
		// GPU 6: the driver reports errors of the program, then of the card; once it does not answer at all.
		{id: 5201, uid: 60003, gpus: []int{6}, from: 10, to: 26, mib: 90000,
			says: "NVRM: Xid (PCI:%s): 31, pid=4711, name=train, MMU Fault"},
		{id: 5202, uid: 60003, gpus: []int{6}, from: 34, to: 60, mib: 90000},
		{id: 5203, uid: 60001, gpus: []int{6}, from: 64, to: 71, mib: 20000, blind: true},
		{id: 5204, uid: 60002, gpus: []int{6}, from: 96, to: 109, mib: 90000,
			says: "NVRM: Xid (PCI:%s): 79, pid=4711, name=train, GPU has fallen off the bus."},
	}
}

// one is a node on which a single job of one card has run.
func one(m *machine) ([]record, error) {
	return play(m, []job{{id: 12, uid: 60000, gpus: []int{0}, from: 0, to: 1.4, mib: 30000}}, 2)
}
