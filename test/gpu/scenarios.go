package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"bookend/test/cluster"
	"bookend/test/gpu/record"
)

// A chain is steps that build on each other; each is a scenario of its own.
type chain struct {
	gpus  int // that the machine must have
	torch bool
	mode  string
	steps []step
}

// step is a scenario: what is true, in words, and the code that brings it about and judges what Bookend makes of it.
type step struct {
	name, title, truth string
	do                 func(*run) error
}

// scene is what the steps of a chain share.
type scene struct {
	left   *record.Job    // the job that left something
	holder *record.Holder // what it left
}

func chains() []chain {
	return []chain{
		{gpus: 1, torch: true, mode: "observe", steps: []step{torchClean}},
		{gpus: 1, mode: "observe", steps: []step{cudaClean}},
		{gpus: 1, mode: "observe", steps: []step{noGPU}},
		{gpus: 1, mode: "observe", steps: []step{orphanObserved, orphanInherited, orphanGone}},
		{gpus: 1, mode: "enforce", steps: []step{orphanEnforced}},
		{gpus: 1, torch: true, mode: "enforce", steps: []step{loaderKilled}},
		{gpus: 1, mode: "observe", steps: []step{residue}},
		{gpus: 2, mode: "observe", steps: []step{neighbours}},
		{gpus: 2, mode: "observe", steps: []step{numbering}},
	}
}

// checkNames refuses names that no scenario has.
func checkNames(only []string) error {
	known := []string{timingsName}
	for _, c := range chains() {
		for _, s := range c.steps {
			known = append(known, s.name)
		}
	}
	for _, name := range only {
		if !slices.Contains(known, name) {
			return fmt.Errorf("no scenario %q; there are %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}

var torchClean = step{
	name: "torch-clean", title: "PyTorch job that ends well",
	truth: "PyTorch multiplies matrices and ends: nothing was on the card before, nothing is left.",
	do: func(r *run) error {
		job, err := r.run1(r.cleanTorch(), "--gres=gpu:1")
		if err != nil {
			return err
		}
		r.evidence("after the job")
		r.clean(job)
		return nil
	},
}

var cudaClean = step{
	name: "cuda-clean", title: "CUDA C job that ends well",
	truth: "A C program fills 4 GiB through the driver API and ends: nothing was on the card before, nothing is left.",
	do: func(r *run) error {
		job, err := r.run1(r.script("$CUDAJOB alloc --mib 4096 --sleep 1"), "--gres=gpu:1")
		if err != nil {
			return err
		}
		r.evidence("after the job")
		r.clean(job)
		return nil
	},
}

var noGPU = step{
	name: "no-gpu", title: "Job without GPUs",
	truth: "The job asked for no GPU: Bookend has no business with it, and writes nothing anywhere.",
	do: func(r *run) error {
		job, err := r.run1("#!/bin/sh\necho no card needed\n")
		if err != nil {
			return err
		}
		r.check("start of the job", "no record", verdict(job.Start))
		r.check("end of the job", "no record", verdict(job.End))
		r.check("lines in Bookend's log", "0", fmt.Sprint(len(job.Hooks)))
		r.check("the job's log", "no card needed\n", job.Output)
		return nil
	},
}

var orphanObserved = step{
	name: "orphan-observe", title: "Process left behind through a daemon (observe)",
	truth: "A root daemon started a CUDA process for the job, as its user and outside every job's cgroup; it outlives " +
		"the job and holds memory. That it is the job's follows from the job having had the card alone.",
	do: func(r *run) error {
		job, err := r.leaveOrphan()
		if err != nil {
			return err
		}
		r.orphan(job)
		r.check("why no drain", "observe mode", held(job.End))
		return r.draining(job, 0)
	},
}

var orphanInherited = step{
	name: "inherited", title: "Next job on the same card (observe)",
	truth: "The earlier job's process still holds memory when the same user's next job gets the card. The next job " +
		"uses the card and leaves nothing of its own.",
	do: func(r *run) error {
		job, err := r.run1(r.script(whichCard...), "--gres=gpu:1")
		if err != nil {
			return err
		}
		r.evidence("after the second job, the process still there")
		r.rec.Holder = r.scene.holder
		f := r.one("start of the job", job.Start, "BKD-DIRTY")
		r.check("process named", fmt.Sprint(r.scene.holder.PID), fmt.Sprint(f.PID))
		r.bytes(f.Bytes)
		r.check("job named", fmt.Sprint(r.scene.left.ID), fmt.Sprint(f.Job))
		r.check("evidence", "exclusive", f.Evidence)
		r.check("end of the job", "clean", verdict(job.End))
		r.said(job, fmt.Sprintf("your job %d", r.scene.left.ID))
		r.said(job, "nothing more on it than before")
		r.rightCards(job)
		return r.draining(job, 0)
	},
}

var orphanGone = step{
	name: "freed", title: "Next job after the process was killed",
	truth: "The process that an earlier job left is killed; its memory is free before the next job begins.",
	do: func(r *run) error {
		r.daemon.killAll()
		if err := r.awaitIdle(jobPatience); err != nil {
			return err
		}
		job, err := r.run1(r.script(whichCard...), "--gres=gpu:1")
		if err != nil {
			return err
		}
		r.evidence("after the job")
		r.clean(job)
		return nil
	},
}

var orphanEnforced = step{
	name: "orphan-enforce", title: "Process left behind through a daemon (enforce)",
	truth: "As above: a process of the ended job, in no job's cgroup, keeps memory that the next job would miss. The " +
		"node must take no further job.",
	do: func(r *run) error {
		job, err := r.leaveOrphan()
		if err != nil {
			return err
		}
		r.orphan(job)
		r.check("why no drain", "", held(job.End))
		return r.draining(job, 10)
	},
}

// leaveOrphan runs a job that asks the daemon for a CUDA process on its card and ends.
func (r *run) leaveOrphan() (*record.Job, error) {
	size := r.size()
	job, err := r.run1(r.script(append(slices.Clone(whichCard), fmt.Sprintf(`ask "$CARD" alloc --mib %d`, size))...), "--gres=gpu:1")
	if err != nil {
		return nil, err
	}
	r.evidence("after the job, the process alive")
	if err := r.remember(job); err != nil {
		return nil, err
	}
	h := r.scene.holder
	all, err := r.listed(h.GPU)
	if h.Held = all[h.PID]; err == nil && (len(all) != 1 || h.Held < h.Allocated) {
		err = fmt.Errorf("on the card are %v, want process %d alone with %d bytes or more", all, h.PID, h.Allocated)
	}
	return job, err
}

// size is how much memory is left behind, in MiB: 20 GiB, less on smaller cards, in whole pages of 2 MiB.
func (r *run) size() uint64 { return min(20<<10, r.total()/4) &^ 1 }

// remember notes what the job left, and makes sure that the scene is as declared.
func (r *run) remember(job *record.Job) error {
	h, ok := r.daemon.last()
	if !ok {
		return errors.New("the daemon started nothing")
	}
	if strings.Contains(h.Cgroup, "/job_") {
		return fmt.Errorf("the holder is in a job's cgroup: %q", h.Cgroup)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", h.PID)); err != nil {
		return fmt.Errorf("the holder has ended: %w", err)
	}
	if len(job.CUDA) != 1 {
		return fmt.Errorf("CUDA named %d cards to the job", len(job.CUDA))
	}
	r.scene.left, r.scene.holder, r.rec.Holder = job, &h, &h
	return nil
}

// listed is what others than Bookend say of the processes on a card: PID and bytes.
func (r *run) listed(uuid string) (map[int]uint64, error) {
	found := map[int]uint64{}
	if w := r.site.World(node); w != nil {
		all, err := w.Holdings()
		for _, h := range all {
			if h.Context > 0 && w.UUID(h.Card) == uuid {
				found[h.PID] = h.Context + h.Memory
			}
		}
		return found, err
	}
	out, err := exec.Command(r.smi, "-i", uuid, "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits").Output()
	if err != nil {
		return nil, fmt.Errorf("ask nvidia-smi: %w", err)
	}
	for _, m := range regexp.MustCompile(`(?m)^(\d+), (\d+)\s*$`).FindAllStringSubmatch(string(out), -1) {
		found[int(number(m[1]))] = number(m[2]) * mib
	}
	return found, nil
}

// orphan wants the end of the job to name what it left.
func (r *run) orphan(job *record.Job) {
	h := r.scene.holder
	r.check("start of the job", "clean", verdict(job.Start))
	f := r.one("end of the job", job.End, "BKD-ORPHAN")
	r.check("process named", fmt.Sprint(h.PID), fmt.Sprint(f.PID))
	r.bytes(f.Bytes)
	r.check("card", h.GPU, f.GPU)
	r.check("job named", fmt.Sprint(job.ID), fmt.Sprint(f.Job))
	r.check("evidence", "exclusive", f.Evidence)
	r.said(job, "of "+node+" was not clean after your job")
	r.said(job, fmt.Sprintf("held by process %d", h.PID))
	r.rightCards(job)
}

var loaderKilled = step{
	name: "loader-killed", title: "PyTorch with DataLoader workers and most of the card, cancelled",
	truth: "PyTorch holds most of the card's memory and has four workers that inherited its descriptors; scancel ends " +
		"all of them. Once the driver has taken the memory back, nothing is left.",
	do: func(r *run) error {
		id, err := r.submit(0, r.loader(min(100<<10, r.total()*7/10)), "--gres=gpu:1")
		if err != nil {
			return err
		}
		if err := r.awaitOutput(id, "ready "); err != nil {
			return errors.Join(err, r.site.Cancel(id))
		}
		r.evidence("while the job runs")
		if err := r.site.Cancel(id); err != nil {
			return err
		}
		job, err := r.finish(id)
		if err != nil {
			return err
		}
		r.evidence("after the job")
		r.check("what became of the job", "CANCELLED", job.State)
		r.clean(job)
		return r.draining(job, 0)
	},
}

// cleanTorch and loader are PyTorch, and in a rehearsal what plays it.
func (r *run) cleanTorch() string {
	if r.fake > 0 {
		return r.script("exec $CUDAJOB alloc --mib 4096 --sleep 1")
	}
	return r.script(fmt.Sprintf("exec %s %s", r.python, r.site.Program("clean.py")))
}

func (r *run) loader(mib uint64) string {
	if r.fake > 0 {
		return r.script(fmt.Sprintf("exec $CUDAJOB alloc --mib %d --chunks 100 --workers 3", mib))
	}
	return r.script(fmt.Sprintf("exec %s %s %d", r.python, r.site.Program("loader.py"), mib))
}

var residue = step{
	name: "residue", title: "Memory without a process: an exported handle",
	truth: "The job exported memory as a descriptor and handed it to a process outside every job that never touched " +
		"CUDA. The job has ended; the memory stays in use and the driver lists no process for it.",
	do: func(r *run) error {
		size := r.size()
		job, err := r.run1(r.script(append(slices.Clone(whichCard),
			`ask "" holdfd "$PWD/hold.$SLURM_JOB_ID"`,
			fmt.Sprintf(`$CUDAJOB alloc --mib %d --export "$PWD/hold.$SLURM_JOB_ID" --sleep 0 >/dev/null`, size))...), "--gres=gpu:1")
		if err != nil {
			return err
		}
		r.evidence("after the job, the handle held")
		if err := r.remember(job); err != nil {
			return err
		}
		if err := r.unlisted(size * mib); err != nil {
			return err
		}
		r.check("start of the job", "clean", verdict(job.Start))
		f := r.one("end of the job", job.End, "BKD-RESIDUE")
		r.check("no process is accused", "0", fmt.Sprint(f.PID))
		r.bytes(f.Bytes)
		r.check("job named", fmt.Sprint(job.ID), fmt.Sprint(f.Job))
		r.check("evidence", "exclusive", f.Evidence)
		r.check("why no drain", "observe mode", held(job.End))
		r.rightCards(job)
		return r.draining(job, 0)
	},
}

// unlisted makes sure that the card's memory is in use and no process listed for it.
func (r *run) unlisted(bytes uint64) error {
	h := r.scene.holder
	h.GPU, h.Allocated, h.Held = r.scene.left.CUDA[0].UUID, bytes, bytes
	all, err := r.listed(h.GPU)
	if err != nil {
		return err
	}
	used, err := r.used(r.scene.left.CUDA[0].Index)
	if len(all) > 0 || used+64*mib < bytes {
		return errors.Join(err, fmt.Errorf("on the card are %v and %d bytes in use, want no process and %d", all, used, bytes))
	}
	return err
}

// until makes a shell line that waits for a file which the lane makes.
func (r *run) until(gate string) string {
	return fmt.Sprintf("while [ ! -e %s ]; do sleep 0.1; done", gate)
}

func (r *run) gate(name string) string {
	return filepath.Join(r.site.Dir, fmt.Sprintf("gate-%s-%d", name, r.rec.Number))
}

var neighbours = step{
	name: "neighbours", title: "Two jobs side by side, one leaves a process",
	truth: "Two users' jobs run on two cards. The second ends and leaves a process on its card; the first still " +
		"uses its own, ends later, and is clean.",
	do: func(r *run) error {
		gate := r.gate("neighbours")
		first, err := r.submit(1, r.script("$CUDAJOB alloc --mib 2048 &", r.until(gate), "kill $!", "wait $! || true"), "--gres=gpu:1")
		if err != nil {
			return err
		}
		if err := r.awaitOutput(first, "ready "); err != nil {
			return err
		}
		second, err := r.leaveOrphan()
		if err != nil {
			return err
		}
		if err := os.WriteFile(gate, nil, 0o644); err != nil {
			return err
		}
		job, err := r.finish(first)
		if err != nil {
			return err
		}
		r.evidence("after both jobs, the second's process alive")
		r.orphan(second)
		r.clean(job)
		r.holds("the jobs had different cards", "two cards", uuids(job.GPUs)+" and "+uuids(second.GPUs), uuids(job.GPUs) != uuids(second.GPUs))
		return nil
	},
}

var numbering = step{
	name: "numbering", title: "Which card Slurm's number means",
	truth: "gres.conf names /dev/nvidiaN in order of N. One job a card side by side, then one job with all: each " +
		"card's UUID is known from /proc/driver/nvidia and from CUDA inside the job's device fence.",
	do: func(r *run) error {
		r.record("numbering", "-L")
		gate := r.gate("numbering")
		var all []cluster.JobID
		for range r.cards {
			id, err := r.submit(0, r.script(append(slices.Clone(whichCard), r.until(gate))...), "--gres=gpu:1")
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
		if err := os.WriteFile(gate, nil, 0o644); err != nil {
			return err
		}
		used := map[string]bool{}
		for _, id := range all {
			job, err := r.finish(id)
			if err != nil {
				return err
			}
			r.clean(job)
			used[uuids(job.GPUs)] = true
		}
		r.check("cards in use side by side", fmt.Sprint(len(r.cards)), fmt.Sprint(len(used)))
		return r.allCards()
	},
}

// allCards runs one job with every card.
func (r *run) allCards() error {
	var lines []string
	for i := range r.cards {
		lines = append(lines, fmt.Sprintf("$CUDAJOB alloc --mib 64 --gpu %d --sleep 0", i))
	}
	job, err := r.run1(r.script(lines...), fmt.Sprintf("--gres=gpu:%d", len(r.cards)))
	if err != nil {
		return err
	}
	r.check("cards of the job", fmt.Sprint(len(r.cards)), fmt.Sprint(len(job.GPUs)))
	r.clean(job)
	return nil
}
