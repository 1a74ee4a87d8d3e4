package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"bookend/test/cluster"
)

func (r *run) stray() {
	job := r.leaveIn(1, ofNoJob, "cudajob", asItIs)
	r.left(job, leftover{code: "BKD-STRAY", pid: r.scene.holder.PID}, exitStray)
}

const ofNoJob = "another user's, of no job"

func (r *run) startAs(userIndex int, card, program string, args ...string) *holder {
	uid, gid := ids(r.site.Users[userIndex])
	return r.daemon.start(uid, gid, card, program, args...)
}

// occupies starts a user's program on a GPU, which the scene is about, and waits until it is as it shall be.
func (r *run) occupies(user int, uuid, role, program string, ready func(*holder), flags ...string) *holder {
	h := r.startAs(user, uuid, program, append([]string{"alloc", "--mib", fmt.Sprint(r.size())}, flags...)...)
	ready(h)
	h.Role = role
	r.scenery(&h.Holder)
	r.known(uuid, &h.Holder)
	return h
}

// guest runs another user's job until its gate opens, with a process of its own on a GPU that it was not given: device
// fences keep a job's processes from opening one, so root puts a process that has it open into the job's cgroup.
func (r *run) guest(uuid, role string, args ...string) (id cluster.JobID, h *holder, gate string) {
	gate = r.gate() + "-guest"
	id = r.submit(1, r.script("echo \"ready pid=$$\"", r.until(gate)), args...)
	member := saidPID(r.awaitOutput(id, "ready "))
	h = r.occupies(1, uuid, role+"of job "+string(id), "cudajob", func(h *holder) { r.moveTo(h, member) })
	return id, h, gate
}

// foreign is a job beside another user's live one, which has a process on its GPU. The process is to be named, and nothing
// drained for what a live job does.
func foreign(unknown bool, args ...string) func(*run) {
	return func(r *run) {
		s := r.stand()
		id, h, gate := r.guest(s.card.UUID, "", args...)
		r.evidence("before the job ends")
		job := r.release(s)
		r.evidence("after the job, the other job alive")
		if !strings.Contains(cgroupOf(h.PID), "/job_"+string(id)+"/") {
			panic(fmt.Errorf("process %d is no longer of job %s: %q", h.PID, id, cgroupOf(h.PID)))
		}
		try(open(gate))
		r.finish(id)
		r.left(job, leftover{code: "BKD-FOREIGN", pid: h.PID, job: int(number(string(id))), evidence: "cgroup",
			unknown: unknown}, 0)
	}
}

func saidPID(text string) int {
	m := regexp.MustCompile(`(?m)^ready pid=(\d+)`).FindStringSubmatch(text)
	if m == nil {
		panic(fmt.Errorf("a job said %q", tail(text)))
	}
	return int(number(m[1]))
}

// moveTo puts a process into the cgroups of a job's process, in each hierarchy that has them.
func (r *run) moveTo(h *holder, member int) {
	mounts := append(must(filepath.Glob("/sys/fs/cgroup/*")), "/sys/fs/cgroup")
	for line := range strings.Lines(cgroupOf(member)) {
		path := strings.TrimSpace(line[strings.LastIndexByte(line, ':')+1:])
		for _, mount := range mounts {
			file := filepath.Join(mount, path, "cgroup.procs")
			inside, _ := os.ReadFile(file) // most hierarchies have no such path
			if strings.Contains(path, "/job_") && slices.Contains(strings.Fields(string(inside)), fmt.Sprint(member)) {
				try(os.WriteFile(file, []byte(fmt.Sprint(h.PID)), 0o644))
			}
		}
	}
	if h.Cgroup = cgroupOf(h.PID); !strings.Contains(h.Cgroup, "/job_") {
		panic(fmt.Errorf("process %d is in no job's cgroup: %q; %d has %q", h.PID, h.Cgroup, member, cgroupOf(member)))
	}
}
