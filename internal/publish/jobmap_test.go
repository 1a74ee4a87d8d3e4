package publish

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/metrics"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/test/must"
)

// mapping is the disk work of a hook that maps jobs, on a node with three GPUs: Slurm counts them the other way round.
func mapping(t *testing.T) (w func() *diskWork, s *state.Store) {
	dir := must.RootsDir(t)
	s = must.Have(state.Open(filepath.Join(dir, "run"), "n1"))(t)
	var cards []gpu.Physical
	for _, d := range []string{"a", "b", "c"} {
		cards = append(cards, gpu.Physical{Device: onBus(d)})
	}
	must.Do(t, state.LastInventory.Save(s, state.Inventory{From: "/proc/driver/nvidia", Cards: cards}))
	return func() *diskWork {
		return DiskRequest{Run: filepath.Join(dir, "run"), Var: filepath.Join(dir, "var"), Node: "n1",
			JobMap:  config.JobMap{DCGM: filepath.Join(dir, "dcgm")},
			Counted: metrics.JobRun{Hook: metrics.Epilog, Action: config.Note, At: time.Now()}}.work()
	}, s
}

func onBus(name string) gpu.Device {
	return gpu.Device{ID: gpu.ID("GPU-" + name), BusID: gpu.BusID("0000:0" + name + ":00.0"), Vendor: "nvidia"}
}

// run is the start of a job on GPUs, by Slurm's numbers.
func run(node string, id int, boot string, at time.Duration, on ...gpu.Device) record.Run {
	job := slurm.Job{ID: slurm.JobID(id), Node: node, UID: 1000, Start: time.Unix(int64(id), 0)}
	r := record.Run{Job: job, Epoch: gpu.Epoch{Boot: boot}, Start: &record.End{At: at, Wall: time.Unix(int64(at), 0)}}
	for i, d := range on {
		r.Devices = append(r.Devices, record.Assigned{Index: len(on) - i, Device: d})
	}
	return r
}

func (r DiskRequest) mapped() string {
	var all []string
	entries, _ := os.ReadDir(r.JobMap.DCGM)
	for _, e := range entries {
		text, _ := os.ReadFile(filepath.Join(r.JobMap.DCGM, e.Name()))
		all = append(all, e.Name()+"="+strings.ReplaceAll(string(text), "\n", ","))
	}
	return strings.Join(all, " ")
}

// Which jobs have a GPU follows from the records: of jobs that have not ended, in this boot, on all nodes of the host.
func TestRunning(t *testing.T) {
	work, s := mapping(t)
	other := must.Have(state.Open(work().Run, "n2"))(t)
	a, b, c := onBus("a"), onBus("b"), onBus("c")
	ends := func(r record.Run) { must.Do(t, s.Close(r, record.End{At: r.Start.At + 1})) }
	steps := []struct {
		name string
		do   func()
		want string
	}{
		{"none", func() {}, ""},
		{"of an earlier boot", func() { must.Do(t, s.Begin(run("n1", 1, "b0", 9, a, b))) }, "0=1 1=1"},
		{"two GPUs", func() { must.Do(t, s.Begin(run("n1", 2, "b1", 20, c, a))) }, "0=2 1= 2=2"},
		{"shared, by the other node's job", func() { must.Do(t, other.Begin(run("n2", 3, "b1", 30, c))) }, "0=2 1= 2=2,3"},
		{"a part, one unknown, none", func() {
			must.Do(t, s.Begin(run("n1", 4, "b1", 40, gpu.Device{ID: "MIG-b", Parent: "GPU-b"})))
			must.Do(t, s.Begin(run("n1", 5, "b1", 50, gpu.Device{ID: "GPU-d"})))
			must.Do(t, s.Begin(run("n1", 6, "b1", 60)))
		}, "0=2 1= 2=2,3"},
		{"an end", func() { ends(run("n1", 2, "b1", 20)) }, "0= 1= 2=3"},
		{"a GPU is lost", func() {
			list := state.LastInventory.Peek(s)
			list.Gone, list.Cards = list.Cards[1:2], []gpu.Physical{list.Cards[0], list.Cards[2]}
			must.Do(t, state.LastInventory.Save(s, list))
			must.Do(t, s.Begin(run("n1", 7, "b1", 70, a)))
		}, "0=7 1= 2="}, // DCGM may have c as 1 or as 2
		{"damaged records", func() {
			must.Do(t, os.WriteFile(filepath.Join(s.Dir(), "7", "t7.json"), []byte("{"), 0o600))
		}, "0= 1= 2="},
	}
	for _, step := range steps {
		step.do()
		w := work()
		w.do()
		must.Be(t, step.name+": troubles", len(w.troubles), 0)
		must.Be(t, step.name, w.mapped(), step.want)
	}
	must.Do(t, os.RemoveAll(filepath.Join(work().Run, "state", "n1")))
	must.Do(t, os.RemoveAll(filepath.Join(work().Run, "state", "n2")))
	must.Do(t, os.WriteFile(filepath.Join(work().JobMap.DCGM, "1"), []byte("2"), 0o644))
	w := work()
	w.do()
	must.Be(t, "after a reboot", w.mapped(), "0= 1= 2=")
}

// The metrics show the GPUs in quarantine of all nodes of the host; jobs that may still get one hold none. One that an
// admin wants, and that none holds, is 0.
func TestQuarantinedGPUs(t *testing.T) {
	work, s := mapping(t)
	other := must.Have(state.Open(work().Run, "n2"))(t)
	must.Do(t, s.Quarantine(state.Quarantine{GPU: -1}, []slurm.JobID{7, 8}))
	must.Do(t, s.Quarantine(state.Quarantine{GPU: 3, UUID: "GPU-a"}, []slurm.JobID{7}))
	must.Do(t, other.Quarantine(state.Quarantine{GPU: 0}, []slurm.JobID{9}))
	wanted := child.Journal[[]state.Quarantine]{Dir: work().Var, Name: "quarantines-n1.json"}
	must.Do(t, wanted.Write([]state.Quarantine{{Job: 5, GPU: 3, UUID: "GPU-a"}, {Job: 4, GPU: 2, UUID: "GPU-b"},
		{Job: 4, GPU: 1, Until: time.Now().Add(-time.Hour)}}))
	w := work()
	w.Now = time.Now()
	w.Textfile = filepath.Join(filepath.Dir(w.Run), "bookend.prom")
	w.do()
	must.Be(t, "troubles", len(w.troubles), 0)
	var shown []string
	for line := range strings.Lines(must.Read(t, w.Textfile)) {
		if strings.HasPrefix(line, "bookend_gpu_quarantined{") {
			shown = append(shown, line)
		}
	}
	must.Be(t, "metrics", strings.Join(shown, ""), `bookend_gpu_quarantined{gpu="0",uuid=""} 1
bookend_gpu_quarantined{gpu="2",uuid="GPU-b"} 0
bookend_gpu_quarantined{gpu="3",uuid="GPU-a"} 1
`)
}

// Starts and ends on one GPU at once, in any order: the last to write has what is true then.
func TestJobMapOfHooksAtOnce(t *testing.T) {
	work, s := mapping(t)
	var hook func()
	hook = func() {
		w := work()
		w.do()
		for _, trouble := range w.troubles {
			if trouble.Code != catalog.StateLock {
				t.Error(trouble)
			}
			hook() // on a busy machine a later hook makes up for it
		}
	}
	var hooks sync.WaitGroup
	for id := 1; id <= 24; id++ {
		r := run("n1", id, "b1", time.Duration(id), onBus("b"))
		begun := make(chan bool)
		hooks.Go(func() {
			defer close(begun)
			if err := s.Begin(r); err != nil {
				t.Error(err)
			}
		})
		hooks.Go(func() { // the start's hook, which may come after the end's
			<-begun
			hook()
		})
		if id%8 != 0 {
			hooks.Go(func() {
				<-begun
				if err := s.Close(r, record.End{At: time.Hour}); err != nil {
					t.Error(err)
				}
				hook()
			})
		}
	}
	hooks.Wait()
	must.Be(t, "jobs of the GPU", work().mapped(), "1=8,16,24")
}
