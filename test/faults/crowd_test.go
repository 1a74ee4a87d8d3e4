package faults

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"bookend/internal/catalog"
	"bookend/internal/record"
	"bookend/internal/state"
	"bookend/test/fakegpu"
	"bookend/test/must"
)

// Sixty-four jobs begin together and end together on one node: each has its record, with both ends, its own GPU and
// what it left itself; each reads its own report; only what was left drains.
func TestCrowd(t *testing.T) {
	must.SeeAll(t)
	t.Parallel()
	const crowd = 64
	n := newNode(t, "enforce", fakegpu.GPUs(crowd))
	n.ownPrograms()
	n.configure(func(c *conf) {
		c.record, c.probe, c.settle, c.extra = "1s", "40s", "{max: 25s, stable: 1s}", "job_log: all\n"
	})
	n.home()
	var jobs []job
	for i, j := range jobsFrom(100, crowd) {
		output := n.give(n.put(fmt.Sprintf("home/slurm-%d.out", i), "", 0o644), user)
		jobs = append(jobs, j.On(strconv.Itoa(i)).With("SLURM_JOB_STDOUT", output))
	}
	n.together(n.own(prolog), jobs, nil)
	leaves := map[int]string{0: "BKD-ORPHAN", 1: "BKD-ORPHAN", 2: "BKD-RESIDUE?", 3: "BKD-RESIDUE?"}
	for i, left := range leaves {
		if left == "BKD-ORPHAN" {
			n.inCgroup(n.leftover("--gpu", strconv.Itoa(i)), strconv.Itoa(100+i))
		} else {
			n.set(fmt.Sprintf("gpu%d.extra_mib", i), "2048")
		}
	}
	n.together(n.own(epilog), jobs, func(j job, o outcome) {
		i, _ := strconv.Atoi(j["SLURM_JOB_GPUS"])
		want := map[string]int{"BKD-ORPHAN": 10}[leaves[i]]
		must.Not(t, o.exit != want, "job %d: want exit %d: %v", i, want, o)
	})
	// That another hook had a shared file in its hands costs the GPU's next start an old test. So many hooks at once may
	// have too little time after a search: that is noted, and makes what was found uncertain.
	own := func(e record.End) string {
		return codes(slices.DeleteFunc(e.Findings, func(f record.Finding) bool {
			return f.Code == catalog.StateLock || f.Code == catalog.Untraced
		}))
	}
	kept, damaged := n.store().Runs()
	archived, lost := state.History(n.conf.varDir, nodeName)
	must.Not(t, len(damaged)+len(lost) > 0, "damaged: %v %v", damaged, lost)
	records := map[int]record.Run{}
	for _, r := range append(archived, kept...) {
		records[int(r.Job.ID)] = r
	}
	for i, j := range jobs {
		r, text := records[100+i], n.get(j["SLURM_JOB_STDOUT"])
		if r.Start == nil || len(r.Ends) != 1 || len(r.Devices) != 1 ||
			string(r.Devices[0].Device.ID) != n.world.UUID(i) {
			t.Fatalf("job %d: %+v", i, r)
		}
		clean, left := fmt.Sprintf("n1 GPU %d clean: ", i), own(r.Ends[0])
		// So many hooks at once see too few samples: memory may not have settled, with or without what is surely there.
		unsettled := []string{"BKD-MOVING*", "BKD-MOVING* BKD-RESIDUE?", "BKD-RESIDUE? BKD-MOVING*"}
		if leaves[i] == "BKD-RESIDUE?" && slices.Contains(unsettled, left) {
			left = leaves[i]
		}
		if own(*r.Start) != "" || left != leaves[i] ||
			(len(lines(text, "| bookend: ", clean)) == 1) != (leaves[i] == "") || len(lines(text, "GPU ")) == 0 {
			t.Errorf("job %d: left %q: %+v, its user reads\n%s", i, left, r.Ends[0].Findings, text)
		}
	}
}
