package page

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/test/fakegpu"
	"bookend/test/must"
	"bookend/test/rig"
)

const nodeName = "gpu17"

const cards = 8

// machine is a node with fake GPUs, on which the real hooks run as slurmd runs them.
type machine struct {
	*testing.T
	dir     string
	world   *fakegpu.World
	running map[string]*fakegpu.Program
}

func newMachine(t *testing.T, name string) *machine {
	m := &machine{T: t, dir: filepath.Join(scratch, name), running: map[string]*fakegpu.Program{}}
	must.Do(t, os.Mkdir(m.dir, 0o755))
	world := must.Have(fakegpu.New(filepath.Join(m.dir, "world"), fakegpu.GPUs(cards), fakegpu.With("teardown", "none")))(t)
	m.world = world
	t.Cleanup(func() {
		for _, p := range m.running {
			p.End()
		}
		must.Do(t, world.Close())
	})
	numbers := must.Have(world.Slurm(filepath.Join(m.dir, "slurm"), nodeName))(t)
	must.Do(t, os.WriteFile(m.config(), fmt.Appendf(nil, `version: 1
mode: enforce
backend: %s
paths: {proc: /proc, run: %[2]s/run, var: %[2]s/var, log: %[2]s/log, sys: %[3]s, dev: %[4]s}
nvidia: {nvml_library: %[5]s, cuda_library: %[6]s, driver_proc: %[7]s}
deadlines:
  prolog: {total: 30s, driver: 20s, processes: 5s, records: 5s}
  epilog: {total: 40s, driver: 20s, processes: 5s, job_log: 5s, records: 5s}
settle:
  prolog: {max: 400ms, stable: 200ms}
  epilog: {max: 400ms, stable: 200ms}
slurm: {shards: "no", %[8]s}
log: {syslog: false}
`, filepath.Join(programs, "bookend-gpu"), m.dir, world.Sys(), world.Dev(), world.NVML(), world.CUDA(),
		world.DriverProc(), numbers), 0o644))
	return m
}

func (m *machine) config() string { return filepath.Join(m.dir, "bookend.yaml") }

// hook runs a hook of a job to its end. Its verdict is in the record.
func (m *machine) hook(program string, context slurm.Context, j job) {
	list := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(j.gpus)), ","), "[]")
	cmd := exec.Command(filepath.Join(programs, program))
	cmd.Dir = "/"
	cmd.Env = rig.NewJob(nodeName, int(j.id), j.uid, 0).On(list).With("SLURM_JOB_USER", j.user()).Environ(m.config(), context)
	if output, err := cmd.CombinedOutput(); err != nil && cmd.ProcessState == nil {
		m.Fatalf("%s of job %d: %v: %s", program, j.id, err, output)
	}
}

// start lets a user's program take memory on a card; name is for stop.
func (m *machine) start(name string, uid, card, mib int, more ...string) {
	args := append([]string{"alloc", "--gpu", strconv.Itoa(card), "--mib", strconv.Itoa(mib)}, more...)
	p, err := m.world.StartAs(&syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}, nil, args...)
	must.Do(m, err)
	m.running[name] = p
}

func (m *machine) stop(name string) {
	if p := m.running[name]; p != nil {
		p.End()
	}
	delete(m.running, name)
}

func (m *machine) kernel(text string) {
	now := must.Have(os.ReadFile(m.world.KernelLog()))(m)
	seq := 100 + bytes.Count(now, []byte("\n"))
	must.Do(m, os.WriteFile(m.world.KernelLog(), fmt.Appendf(now, "3,%d,%d,-;%s\n", seq, seq*1_000_000, text), 0o600))
}

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

// play lets the jobs of a story happen in their order, each for a moment, and writes what is on record of them then as a
// history has it, moved to their hours of the story. What the hooks saw stays as it was; what the recorder would have seen
// of jobs that last hours is added.
func (m *machine) play(jobs []job, folder string) {
	type step struct {
		at float64
		do func()
	}
	var steps []step
	for _, j := range jobs {
		steps = append(steps, step{j.from, func() { m.begin(j) }}, step{j.to, func() { m.end(j) }},
			step{j.until, func() { m.stop(fmt.Sprint("left-", j.id)) }})
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	for _, s := range steps {
		if s.at < hours {
			s.do()
		}
	}
	all, damage, err := state.Copied(m.dir)
	if err != nil || len(damage) > 0 {
		m.Fatal(err, damage)
	}
	history := filepath.Join(folder, "history", nodeName)
	must.Do(m, os.MkdirAll(history, 0o755))
	for _, r := range all[nodeName] {
		j := jobs[slices.IndexFunc(jobs, func(j job) bool { return j.id == r.Job.ID })]
		if r.Start != nil {
			move(r.Start, j.from)
		}
		for i := range r.Ends {
			move(&r.Ends[i], j.to)
			r.Ends[i].Recording = j.recording(r.Devices)
		}
		data, err := json.Marshal(r)
		must.Do(m, err)
		must.Do(m, os.WriteFile(filepath.Join(history, fmt.Sprintf("%d-%s.json", r.Job.ID, r.Key)), data, 0o600))
	}
}

func (m *machine) begin(j job) {
	if !j.late {
		m.hook("bookend-prolog", slurm.Prolog, j)
	}
	for _, card := range j.gpus {
		m.start(fmt.Sprint("own-", j.id, "-", card), j.uid, card, j.mib)
	}
	if j.says != "" {
		m.kernel(fmt.Sprintf(j.says, m.world.BusID(j.gpus[0])[:10]))
	}
}

func (m *machine) end(j job) {
	for _, card := range j.gpus {
		m.stop(fmt.Sprint("own-", j.id, "-", card))
	}
	if len(j.leaves) > 0 {
		m.start(fmt.Sprint("left-", j.id), j.uid, j.gpus[0], 20000, j.leaves...)
	}
	if j.blind {
		must.Do(m, m.world.Set("on.nvmlInit_v2", "rc 9"))
		defer m.world.Set("on.nvmlInit_v2", "")
	}
	m.hook("bookend-epilog", slurm.Epilog, j)
}

func move(e *record.End, hour float64) {
	at := time.Date(2026, 11, 9, 6, 0, 0, 0, time.UTC).Add(time.Duration(hour * float64(time.Hour)))
	by := at.Sub(e.Wall)
	e.Wall, e.At, e.Snapshot.At = e.Wall.Add(by), e.At+by, e.Snapshot.At+by
}

// recording has the job's memory on each of its GPUs. Without a prolog nothing is recorded.
func (j job) recording(devices []record.Assigned) *record.Recording {
	if j.late {
		return nil
	}
	r := &record.Recording{}
	for _, d := range devices {
		r.GPUs = append(r.GPUs, record.GPURecording{ID: d.Device.ID, Peak: record.Most{Bytes: uint64(j.mib) << 20}})
	}
	return r
}

const hours = 6 * 24

// ordinary fills some of the cards with jobs of one, two or four of them; the incidents have the others.
func ordinary() (jobs []job) {
	rng := rand.New(rand.NewPCG(17, 4))
	order, free := []int{0, 1, 2, 4, 7}, [cards]float64{}
	for id := slurm.JobID(4100); ; id++ {
		slices.SortFunc(order, func(a, b int) int { return cmp.Compare(free[a], free[b]) })
		n := []int{1, 1, 1, 1, 2, 2, 4}[rng.IntN(7)]
		from := free[order[n-1]] + 0.05 + rng.ExpFloat64()*2
		if from > hours-1 {
			return jobs
		}
		j := job{id: id, uid: 60000 + rng.IntN(4), gpus: slices.Sorted(slices.Values(order[:n])), from: from,
			to: from + 0.7 + rng.ExpFloat64()*9, mib: 4000 + rng.IntN(130000)}
		for _, g := range j.gpus {
			free[g] = j.to
		}
		jobs = append(jobs, j)
	}
}

// incidents of a program of that name: a card that is left dirty again and again, a shared one, a faulty one, and gaps in the record.
func incidents(name string) []job {
	orphan := []string{"--orphan", "--name", name}
	return []job{
		// GPU 3: one user's workers stay, some for a moment, some until an admin ends them.
		{id: 5001, uid: 60001, gpus: []int{3}, from: 3, to: 17, mib: 61000},
		{id: 5002, uid: 60001, gpus: []int{3}, from: 20, to: 31, mib: 70000, leaves: orphan, until: 50},
		{id: 5003, uid: 60002, gpus: []int{3}, from: 36, to: 44, mib: 90000},
		{id: 5004, uid: 60001, gpus: []int{3}, from: 54, to: 66, mib: 70000, leaves: orphan, until: 70},
		{id: 5006, uid: 60001, gpus: []int{3}, from: 93, to: 104, mib: 70000,
			leaves: []string{"--fork-hold", "--name", "loader"}, until: 130},
		{id: 5007, uid: 60000, gpus: []int{3}, from: 115, to: 124, mib: 50000},
		{id: 5008, uid: 60001, gpus: []int{3}, from: 132, to: 138, mib: 70000, leaves: orphan, until: hours},
		// GPU 5: two jobs at once, then one of which no start is on record, and one that has not ended.
		{id: 5101, uid: 60002, gpus: []int{5}, from: 6, to: 40, mib: 40000},
		{id: 5102, uid: 60003, gpus: []int{5}, from: 18, to: 28, mib: 40000},
		{id: 5103, uid: 60002, gpus: []int{5}, from: 52, to: 80, mib: 120000, late: true},
		{id: 5104, uid: 60000, gpus: []int{5}, from: 100, to: hours, mib: 80000},
		// GPU 6: the driver reports errors of the program, then of the card; once it does not answer at all.
		{id: 5201, uid: 60003, gpus: []int{6}, from: 10, to: 26, mib: 90000,
			says: "NVRM: Xid (PCI:%s): 31, pid=4711, name=" + name + ", MMU Fault"},
		{id: 5203, uid: 60001, gpus: []int{6}, from: 64, to: 71, mib: 20000, blind: true},
		{id: 5204, uid: 60002, gpus: []int{6}, from: 96, to: 109, mib: 90000,
			says: "NVRM: Xid (PCI:%s): 79, pid=4711, name=" + name + ", GPU has fallen off the bus."},
	}
}
