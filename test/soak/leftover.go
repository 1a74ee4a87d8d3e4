package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"bookend/internal/attribution"
	"bookend/internal/leftover"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/soak/world"
)

// visit is a job's or a login's time on a node. Jobs without GPUs have no record.
type visit struct {
	job             slurm.JobID // 0 for a login
	uid             uint32
	from, to        time.Duration
	gpus, exclusive bool
	damaged         bool // no record of it can be read
}

func (v *visit) overlaps(o *visit) bool { return v.from < o.to && o.from < v.to }

func (v *visit) during(at time.Duration) bool { return v.from <= at && at < v.to }

// file is one of shared memory.
type file struct {
	leftover.Item
	by     *visit
	made   time.Duration
	gone   time.Duration
	isOpen bool // while its maker is there
}

// memory is a node's shared memory, its users and what they keep there, in a story of its own.
type memory struct {
	*pair
	rand     *rand.Rand
	visits   []*visit
	files    []file
	nameless bool          // the kernel does not tell when a file was made
	stepped  time.Duration // when the clock was set, by skew
	skew     time.Duration
}

const longest = 1000 * time.Second

// playMemory tells a story of shared memory: jobs of two users, with and without GPUs, after one another and at once, and
// logins. At each end of a job with GPUs what is said of its files is compared with who made them.
func (p *pair) playMemory() {
	m := &memory{pair: p, rand: rand.New(rand.NewPCG(p.seed^0x5eed, p.n))}
	m.nameless = m.rand.IntN(3) == 0
	if m.rand.IntN(5) == 0 {
		m.stepped, m.skew = m.at(0, longest), [...]time.Duration{-time.Hour, -time.Second, time.Second, time.Hour}[m.rand.IntN(4)]
	}
	for i := range 2 + m.rand.IntN(5) {
		m.addVisit(slurm.JobID(101 + i))
	}
	for range m.rand.IntN(3) {
		m.addVisit(0)
	}
	for i := range m.rand.IntN(12) {
		m.addFile(uint64(1000 + i))
	}
	for _, v := range m.visits {
		if v.job != 0 && v.gpus && !v.damaged {
			m.end(v)
		}
	}
}

func (m *memory) at(from, to time.Duration) time.Duration {
	return from + time.Duration(m.rand.Int64N(int64(max(1, to-from))))
}

// addVisit adds a job, if Slurm would start it then, or a login. Who is logged in where a job ends was so at its end.
func (m *memory) addVisit(job slurm.JobID) {
	v := &visit{job: job, uid: 1001 + uint32(m.rand.IntN(2)), from: m.at(0, longest)}
	v.to = v.from + m.at(time.Second, longest/4)
	v.gpus, v.exclusive, v.damaged = m.rand.IntN(3) > 0, m.rand.IntN(2) == 0, m.rand.IntN(20) == 0
	refused := func(o *visit) bool {
		return v.overlaps(o) && (v.job != 0 && o.job != 0 && (v.exclusive || o.exclusive) ||
			(v.job == 0) != (o.job == 0) && v.uid == o.uid && v.from > o.from && v.to < o.to) // docs/limits.md: unseen
	}
	if !slices.ContainsFunc(m.visits, refused) {
		m.visits = append(m.visits, v)
	}
}

func (m *memory) addFile(id uint64) {
	by := m.visits[m.rand.IntN(len(m.visits))]
	f := file{by: by, made: m.at(by.from, by.to), gone: world.Forever, isOpen: m.rand.IntN(3) == 0}
	f.ID, f.Bytes = id, [...]uint64{1, 63, 64, 65, 500}[m.rand.IntN(5)]*world.MiB
	if m.rand.IntN(3) == 0 {
		f.gone = f.made + m.at(0, longest/2)
	}
	m.files = append(m.files, f)
}

// wall is what the clock shows.
func (m *memory) wall(at time.Duration) time.Time {
	if at >= m.stepped {
		at += m.skew
	}
	return time.Unix(1_700_000_000, 0).Add(at)
}

// listing is what the user has there, and which of it a process has open.
func (m *memory) listing(uid uint32, at time.Duration) (l leftover.Listing, unused []uint64) {
	l = leftover.Listing{Wall: m.wall(at), Device: 1, Login: m.isHere(at, func(v *visit) bool { return v.job == 0 && v.uid == uid })}
	for _, f := range m.files {
		if f.by.uid != uid || f.made > at || f.gone <= at {
			continue
		}
		if !m.nameless {
			f.Made = m.wall(f.made)
		}
		l.Files = append(l.Files, f.Item)
		if !f.isOpen || !f.by.during(at) {
			unused = append(unused, f.ID)
		}
	}
	return l, unused
}

func (m *memory) isHere(at time.Duration, which func(*visit) bool) bool {
	return slices.ContainsFunc(m.visits, func(v *visit) bool { return v.during(at) && which(v) })
}

// end judges what is said at a job's end.
func (m *memory) end(v *visit) {
	before, _ := m.listing(v.uid, v.from)
	now, unused := m.listing(v.uid, v.to)
	left, known := now.Since(before.Mark())
	if !known {
		m.fail(missedLeak, "job %d: what was there is unknown", v.job)
	}
	left = left.Only(unused)
	witness := leftover.Witness{Exclusive: v.exclusive, Login: before.Login || now.Login}
	if m.isHere(v.to, func(o *visit) bool { return o != v && o.uid == v.uid }) {
		witness.PID = 4711
	}
	if slices.ContainsFunc(m.visits, func(o *visit) bool { return o.damaged }) {
		witness.Unread = "a record of the node's jobs could not be read"
	}
	jobs := append([]string{fmt.Sprint(v.job)}, m.records(v).SameUser(v.from)...)
	if left.Matter() {
		m.tally.leftovers++
		m.blamed(v, left.Text(jobs, witness.Unseen()), left, jobs)
	}
	m.unsaidOf(v, left, unused)
}

// records are those of jobs with GPUs, at a job's end.
func (m *memory) records(self *visit) attribution.Book {
	epoch := m.node.Epoch
	var runs []record.Run
	var own record.Run
	for _, v := range m.visits {
		if v.job == 0 || !v.gpus || v.damaged || v.from >= self.to {
			continue
		}
		r := record.Run{Job: slurm.Job{ID: v.job, UID: v.uid, Node: world.ThisNode, Start: m.wall(v.from)}, Epoch: epoch,
			Start: &record.End{At: v.from, Began: v.from}}
		r.Key = r.NewKey()
		if v.to < self.to {
			r.Ends = []record.End{{At: v.to}}
		}
		if runs = append(runs, r); v == self {
			own = r
		}
	}
	return attribution.Open(runs, own, attribution.Now{At: self.to, Epoch: epoch})
}

// blamed judges the text that says what left the files: this job, one of several, or something else of its user.
func (m *memory) blamed(v *visit, text string, left leftover.Remains, jobs []string) {
	anybody := strings.Contains(text, "something else of its user")
	for _, item := range left.Files {
		f := m.files[slices.IndexFunc(m.files, func(f file) bool { return f.ID == item.ID })]
		switch named := slices.Contains(jobs, fmt.Sprint(f.by.job)); {
		case f.by.uid != v.uid, f.made < v.from-time.Second && m.skew == 0:
			m.fail(wrongBlame, "job %d: %q of another's file %d", v.job, text, f.ID)
		case !anybody && !named, strings.HasPrefix(text, "this job") && f.by != v:
			m.fail(wrongBlame, "job %d: %q of file %d, of job %d", v.job, text, f.ID, f.by.job)
		}
	}
	if !anybody {
		m.tally.certain++
	}
}

// unsaidOf finds files of the job that no text is about, if the clock was not set.
func (m *memory) unsaidOf(v *visit, left leftover.Remains, unused []uint64) {
	for _, f := range m.files {
		if f.by == v && f.made < v.to && f.gone > v.to && m.skew == 0 && !slices.Contains(left.Inodes(), f.ID) {
			m.fail(missedLeak, "job %d: file %d is not among what was left", v.job, f.ID)
		}
	}
}
