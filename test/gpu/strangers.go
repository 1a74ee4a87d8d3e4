package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"bookend/test/cluster"
	"bookend/test/gpu/record"
)

// strangerChains are the scenarios in which something on a card is not the job's own.
func strangerChains() []chain {
	shared := map[string]string{"slurm": "{shared_partitions: [main]}"}
	return []chain{
		{gpus: 1, mode: "enforce", steps: []step{stray}, controls: without(stray, shared)},
		{gpus: 1, mode: "enforce", steps: []step{foreignUnknown}, controls: without(foreignUnknown, shared)},
		{gpus: 2, mode: "enforce", steps: []step{foreign}, controls: without(foreign, shared)},
	}
}

var stray = step{
	name: "stray", title: "Another user's process, of no job",
	truth: "While the job runs, another user's process takes memory on its GPU, started outside Slurm. It is still " +
		"there when the job has ended. No job is to blame, and the next one would miss the memory.",
	do: func(r *run) {
		job := r.leave(func(s *standing) {
			h := r.startAs(1, s.card.UUID, "cudajob", "alloc", "--mib", fmt.Sprint(r.size()))
			h.Role = "another user's, of no job"
			r.scenery(&h.Holder)
			r.known(s, &h.Holder)
		})
		r.left(job, leftover{code: "BKD-STRAY", pid: r.scene.holder.PID})
		r.draining(job, exitStray)
	},
}

// startAs starts a program as one of the users.
func (r *run) startAs(userIndex int, card, program string, args ...string) *holder {
	uid, gid := ids(r.site.Users[userIndex])
	return r.daemon.start(uid, gid, card, program, args...)
}

// guest is another user's live job, with a process that root put into its cgroup: device fences keep a job's own
// processes from opening a card that it was not given, but not from one that is open already.
type guest struct {
	id     cluster.JobID
	number int
	gate   string
	holder *holder
}

// invite starts the guest's job, and its process on a card.
func (r *run) invite(card string, args ...string) *guest {
	g := &guest{gate: r.gate() + "-guest"}
	g.id = r.submit(1, r.script("echo \"ready pid=$$\"", r.until(g.gate)), args...)
	r.awaitOutput(g.id, "ready ")
	text := must(r.site.Output(g.id))
	g.number = int(number(string(g.id)))
	m := regexp.MustCompile(`(?m)^ready pid=(\d+)`).FindStringSubmatch(text)
	if m == nil {
		panic(brokenf("job %s said %q", g.id, text))
	}
	g.holder = r.startAs(1, card, "cudajob", "alloc", "--mib", fmt.Sprint(r.size()))
	g.holder.Role = "of job " + string(g.id)
	r.moveTo(g.holder, int(number(m[1])))
	return g
}

// moveTo puts a process into the cgroups of a job's process.
func (r *run) moveTo(h *holder, member int) {
	mounts := must(os.ReadFile("/proc/self/mounts"))
	text := must(os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", member)))
	moved := 0
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 || !strings.Contains(parts[2], "/job_") {
			continue
		}
		mount := mountOf(string(mounts), parts[1])
		try(os.WriteFile(filepath.Join(mount, parts[2], "cgroup.procs"), []byte(fmt.Sprint(h.PID)), 0o644))
		moved++
	}
	h.Cgroup = cgroupOf(h.PID)
	if moved == 0 || !strings.Contains(h.Cgroup, "/job_") {
		panic(brokenf("process %d is in no job's cgroup: %q; %d has %q", h.PID, h.Cgroup, member, text))
	}
}

// mountOf finds where a hierarchy is mounted: cgroup v2's has no controllers in /proc/PID/cgroup.
func mountOf(mounts, controllers string) string {
	for line := range strings.Lines(mounts) {
		f := strings.Fields(line)
		if len(f) < 4 || !strings.HasPrefix(f[1], "/sys/fs/cgroup") {
			continue
		}
		name := strings.TrimPrefix(controllers, "name=")
		if f[2] == "cgroup2" && controllers == "" || f[2] == "cgroup" && controllers != "" &&
			strings.Contains(","+f[3]+",", ","+name+",") {
			return f[1]
		}
	}
	return ""
}

// beside runs a job beside a guest whose process is on the given card, and ends the guest's after it.
func (r *run) beside(card func(*standing) string, args ...string) (*record.Job, *guest) {
	s := r.stand()
	uuid := card(s)
	g := r.invite(uuid, args...)
	r.scenery(&g.holder.Holder)
	on := &standing{card: record.GPU{UUID: uuid}}
	r.known(on, &g.holder.Holder)
	r.evidence("before the job ends")
	job := r.release(s)
	r.evidence("after the job, the other job alive")
	if !strings.Contains(cgroupOf(g.holder.PID), "/job_"+string(g.id)+"/") {
		panic(brokenf("process %d is no longer of job %s: %q", g.holder.PID, g.id, cgroupOf(g.holder.PID)))
	}
	try(open(g.gate))
	r.finish(g.id)
	return job, g
}

func sameCard(s *standing) string { return s.card.UUID }

var foreignUnknown = step{
	name: "foreign-unknown", title: "A process of a live job without GPUs, on the job's GPU",
	truth: "Another user's job asked for no GPU, so Bookend has no record of it; a process in its cgroup takes " +
		"memory on the job's GPU. Its cgroup names its job; that it may not be there is likely but unknown, and " +
		"nothing is drained.",
	do: func(r *run) {
		job, g := r.beside(sameCard)
		r.left(job, leftover{code: "BKD-FOREIGN", pid: g.holder.PID, job: g.number, evidence: "cgroup", unknown: true})
		r.draining(job, 0)
	},
}

var foreign = step{
	name: "foreign", title: "A process of another job, on the job's GPU",
	truth: "Another user's job was given another GPU; a process in its cgroup takes memory on this job's GPU. The " +
		"node is not drained for what a live job does.",
	do: func(r *run) {
		job, g := r.beside(sameCard, "--gres=gpu:1")
		r.left(job, leftover{code: "BKD-FOREIGN", pid: g.holder.PID, job: g.number, evidence: "cgroup"})
		r.draining(job, 0)
	},
}
