package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"bookend/test/cluster"
	"bookend/test/gpu/runrecord"
)

// standing is a job on one card that waits for the lane's word, first to do something, then to end.
type standing struct {
	id         cluster.JobID
	card       runrecord.GPU
	work, gate string
}

// stand starts a job of the first user on one card. Its lines run after it has said which card that is; what act hands
// it runs once the job stands.
func (r *run) stand(lines ...string) *standing {
	gate := r.gate()
	s := &standing{work: gate + "-work", gate: gate}
	script := slices.Concat(whichCard, lines, []string{"echo standing", r.until(s.work), "set +e", ". " + s.work,
		"code=$?", "echo done", r.until(s.gate), "exit $code"})
	s.id = r.submit(0, r.script(script...), "--gres="+r.oneGPU)
	text := r.awaitOutput(s.id, "standing")
	cards := cudaCards(text)
	if len(cards) == 0 {
		panic(fmt.Errorf("job %s named no GPU: %q", s.id, tail(text)))
	}
	s.card = cards[0]
	return s
}

// act has the job run a line and waits until that is done.
func (r *run) act(s *standing, line string) {
	try(os.WriteFile(s.work+".new", []byte(line+"\n"), 0o644))
	try(os.Rename(s.work+".new", s.work))
	r.awaitOutput(s.id, "done")
}

func (s *standing) let() { try(errors.Join(open(s.work), open(s.gate))) }

// ask has the daemon start a program for a job: as its user, on its card.
func (r *run) ask(s *standing, program string, args ...string) *holder {
	return r.startAs(0, s.card.UUID, program, args...)
}

// inHome is a path of the first user's, in which a job's number makes it its own.
func (r *run) inHome(s *standing, name string) string {
	return filepath.Join(must(r.site.Home(r.site.Users[0])), name+"."+string(s.id))
}

// gate is a file that the lane makes when a job shall go on.
func (r *run) gate() string {
	return filepath.Join(r.site.Dir, fmt.Sprintf("gate-%s-%d", r.rec.Scenario, time.Now().UnixNano()))
}

// until makes a shell line that waits for a gate.
func (r *run) until(gate string) string {
	return fmt.Sprintf("while [ ! -e %s ]; do sleep 0.05; done", gate)
}

func open(gate string) error { return os.WriteFile(gate, nil, 0o644) }

func (r *run) release(s *standing) *job { return r.atEnd(s, func() {}) }

// atEnd lets the job end and acts once its processes are gone and its epilog begins.
func (r *run) atEnd(s *standing, act func()) *job {
	s.let()
	must(r.site.WaitFor(s.id, jobPatience, func(j cluster.Job) (bool, error) {
		return j.State != "RUNNING" && j.State != "PENDING", nil
	}))
	act()
	return r.endsAs("COMPLETED", s.id)
}

// leave runs a job that leaves something behind: act is told of the standing job, brings the scene about and says
// with scenery what is true. The job ends after that.
func (r *run) leave(act func(*standing), lines ...string) *job {
	s := r.stand(lines...)
	act(s)
	r.evidence("before the job ends")
	job := r.release(s)
	r.evidence("after the job")
	r.scene.left = job
	r.stillThere()
	return job
}

// scenery says what the job leaves: the one that counts, listed by the driver or not, and who else belongs to the
// scene. What /proc says of them is read now, unless that was done while more of them lived.
func (r *run) scenery(main *runrecord.Holder, others ...runrecord.Holder) {
	if main.Proc == nil {
		main.Proc = readProc(main.PID)
	}
	for i := range others {
		if others[i].Proc == nil {
			others[i].Proc = readProc(others[i].PID)
		}
	}
	r.scene.holder, r.scene.others = main, others
	r.rec.Holder, r.rec.Others = main, others
}

// stillThere makes sure that who holds memory has outlived the job, and is in no job's cgroup.
func (r *run) stillThere() {
	var errs []error
	for _, h := range append([]runrecord.Holder{*r.scene.holder}, r.scene.others...) {
		if strings.Contains(h.Role, "dead") {
			continue
		}
		if err := syscall.Kill(h.PID, 0); err != nil {
			errs = append(errs, fmt.Errorf("process %d (%s) has ended: %w", h.PID, h.Role, err))
		}
		if strings.Contains(h.Cgroup, "/job_") {
			errs = append(errs, fmt.Errorf("process %d (%s) is in a job's cgroup: %q", h.PID, h.Role, h.Cgroup))
		}
	}
	try(errors.Join(errs...))
}

// known makes sure that the driver lists this process alone on the card, and notes how much it holds.
func (r *run) known(uuid string, h *runrecord.Holder) {
	h.GPU = uuid
	all := r.listed(uuid)
	if h.Held = all[h.PID]; len(all) != 1 || h.Held < h.Allocated {
		panic(fmt.Errorf("on the GPU are %v, want process %d alone with %d bytes or more", all, h.PID, h.Allocated))
	}
}

// unlisted makes sure that the card's memory is in use and no process listed for it.
func (r *run) unlisted(s *standing, h *runrecord.Holder, bytes uint64) {
	h.GPU, h.Allocated, h.Held = s.card.UUID, bytes, bytes
	all := r.listed(h.GPU)
	if used := r.used(s.card.Index); len(all) > 0 || used+64*mib < bytes {
		panic(fmt.Errorf("on the GPU are %v and %d bytes in use, want no process and %d", all, used, bytes))
	}
}

// kin are the processes that came of what the daemon started and have the driver open, without those it started itself.
func (r *run) kin(role string) []runrecord.Holder {
	own := map[int]bool{}
	for _, h := range r.daemon.started {
		own[h.PID] = true
	}
	var all []runrecord.Holder
	for _, pid := range marked(r.daemon.mark) {
		if p := readProc(pid); !own[pid] && len(p.Open) > 0 {
			all = append(all, runrecord.Holder{PID: pid, UID: uint32(number(strings.Fields(p.UID + " 0")[0])),
				Cgroup: p.Cgroup, Role: role, Proc: p})
		}
	}
	return all
}

// size is how much memory is left behind, in MiB: 20 GiB, less on smaller cards, in whole pages of 2 MiB.
func (r *run) size() uint64 { return min(20<<10, r.total()/4) &^ 1 }

func pids(all []runrecord.Holder) []int {
	var list []int
	for _, h := range all {
		list = append(list, h.PID)
	}
	return list
}

// inState waits until a process is in a state of proc(5).
func inState(state string) func(*holder) {
	return func(h *holder) {
		settled(func() {
			if p := readProc(h.PID); !strings.HasPrefix(p.State, state) {
				panic(fmt.Errorf("process %d is not in state %s: %+v", h.PID, state, p))
			}
		})
	}
}
