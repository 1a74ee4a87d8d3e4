package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"bookend/test/gpu/runrecord"
)

// mps is a job that leaves a daemon with its server and so many clients; with none, one that has ended. Without flags, clients
// allocate half of what other scenarios leave.
func mps(clients, exit int, alloc ...string) func(*run) {
	return func(r *run) {
		flags := alloc
		if len(flags) == 0 {
			flags = []string{"--mib", fmt.Sprint(r.size() / 2)}
		}
		job := r.leave(func(s *standing) { r.mpsScene(s, clients, flags) })
		r.mpsLeft(job)
		r.draining(job, exit)
		r.quitMPS(job.ID)
	}
}

// mpsScene brings up the daemon, the clients and with them the server, and takes down who is there.
func (r *run) mpsScene(s *standing, clients int, alloc []string) {
	folder := r.inHome(s, "mps")
	daemon := r.ask(s, "mps", "mps-up", folder)
	daemon.Role = "MPS daemon"
	others := []runrecord.Holder{daemon.Holder}
	for i := range max(1, clients) {
		h := r.ask(s, "mps", append([]string{"mps-run", folder, r.cudaJob(), "alloc"}, alloc...)...)
		if i < clients {
			h.Role, h.Gone = "MPS client", 0 // what is gone from the whole card is not this client's alone
			others = append(others, h.Holder)
		}
	}
	server := &r.ask(s, "mps", "mps-server", folder).Holder
	server.Role = "MPS server"
	settled(func() {
		all := r.listed(s.card.UUID)
		server.GPU, server.Held = s.card.UUID, all[server.PID]
		for i := range others {
			others[i].GPU, others[i].Held = s.card.UUID, all[others[i].PID]
		}
		r.scenery(server, others...)
		if len(all) != 1+clients || server.Held == 0 {
			panic(fmt.Errorf("on the GPU are %v, want server %d and %d clients", all, server.PID, clients))
		}
	})
}

// mpsLeft wants the job's end to name server and clients, each with its bytes, and on real GPUs the daemon as a process that
// still runs.
func (r *run) mpsLeft(job *job) {
	listed := []runrecord.Holder{*r.scene.holder}
	for _, h := range r.scene.others {
		if h.Held > 0 {
			listed = append(listed, h)
		}
	}
	r.check("start of the job", "clean", verdict(job.Start))
	want := strings.TrimSpace(strings.Repeat("BKD-ORPHAN ", len(listed)))
	if r.fake == 0 {
		want = "BKD-SURVIVOR " + want
	}
	r.check("end of the job", want, verdict(job.End))
	for _, h := range listed {
		r.names(about(job, h.PID), leftover{code: "BKD-ORPHAN", pid: h.PID, classes: "mps orphan", job: job.ID,
			evidence: "exclusive", of: &h})
	}
	r.said(job, "in use on ")
	r.rightCards(job)
}

// quitMPS ends a job's daemon in good order, its clients first.
func (r *run) quitMPS(job int) {
	for _, h := range r.daemon.started {
		if h.Role == "MPS client" {
			h.kill()
		}
	}
	home := must(r.site.Home(r.site.Users[0]))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.site.Program("mps.sh"), "mps-down",
		filepath.Join(home, fmt.Sprintf("mps.%d", job)))
	cmd.Env = r.daemon.env
	if out, err := cmd.CombinedOutput(); err != nil {
		panic(fmt.Errorf("end MPS: %w: %s", err, out))
	}
}
