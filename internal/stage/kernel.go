package stage

import (
	"slices"
	"time"

	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/inventory"
	"bookend/internal/kmsg"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
)

// kernelRequest crosses the pipe of opKernel.
type kernelRequest struct {
	Dev   string          `json:"dev"`
	Proc  string          `json:"proc"`
	Sys   string          `json:"sys"`
	Since *gpu.KernelMark `json:"since,omitempty"`
}

// serveKernel reads a ring of up to many megabytes, record by record. It tells the epoch as well: the driver need not
// answer for that.
var serveKernel = served(func(r kernelRequest) (gpu.KernelLog, error) {
	log := kmsg.Read(r.Dev, r.Since)
	log.Epoch = inventory.ReadEpoch(r.Proc, r.Sys)
	return log, nil
})

// listen starts reading the kernel's log since a mark, nil for the newest entry's alone, beside the cards. A ring of 1 MiB
// takes some 10 ms; the longest wait is that for all of /proc.
func (h *hook) listen(since *gpu.KernelMark) (collect func()) {
	if !h.cfg.Look.KernelLog {
		return func() {}
	}
	wait := beside[gpu.KernelLog](opKernel, kernelRequest{h.cfg.Paths.Dev, h.cfg.Paths.Proc, h.cfg.Paths.Sys, since}, h.left(time.Duration(h.times.Scan), h.reserve()))
	return func() {
		log, err := wait()
		if err != nil {
			h.defect(err)
			log = gpu.KernelLog{Unknown: err.Error()}
		}
		h.kernel = &log
	}
}

// mark is where in the kernel's log the job began, nil where nobody knows.
func (h *hook) mark(run ledger.Run) *gpu.KernelMark {
	if run.Start == nil || run.Start.Kernel == nil || run.Start.Kernel.Unknown != "" || run.Closed() && !run.Sure(h.job) {
		return nil
	}
	return &run.Start.Kernel.Last
}

// sinceJobBegan is the kernel's log since the job's start, nil where that cannot be told. A mark holds for one boot: a
// driver that is reloaded meanwhile takes nothing out of the log.
func (h *hook) sinceJobBegan(run ledger.Run) *gpu.KernelLog {
	if h.mark(run) == nil || h.kernel == nil || run.Epoch.Boot == "" || run.Epoch.Boot != h.kernel.Epoch.Boot {
		return nil
	}
	return h.kernel
}

// reloaded is why an Xid may not say how the card is now; empty where this is the life of the driver that it is of.
func (h *hook) reloaded(run ledger.Run) string {
	if h.kernel == nil || run.Epoch.Same(h.kernel.Epoch) {
		return ""
	}
	return "the driver was reloaded since the job began, or nobody can tell: that may have cured the card"
}

// ownXids says of the processes that Xids name whether they were this job's: of those that a hook, since the job began,
// saw in a job's cgroup, and of those that the kernel ended in one.
func (h *hook) ownXids(run ledger.Run, cards []finding.Card) map[int]bool {
	log := h.sinceJobBegan(run)
	if log == nil || !slices.ContainsFunc(log.Xids, func(x gpu.Xid) bool { return x.PID != 0 && onOne(cards, x) }) {
		return nil // the records of the node are not read for nothing
	}
	w := whose{job: h.job, own: map[int]bool{}, disputed: map[int]bool{}}
	for _, p := range h.now.Processes {
		w.saw(p.PID, p.Cgroup)
	}
	for _, k := range log.Kills {
		w.saw(k.PID, slurm.OwnerOfCgroup("0::"+k.Cgroup))
	}
	for _, p := range h.sightings().During(run, run.Start.At, h.env.Clock.Boot()) {
		w.saw(p.PID, p.Owner)
	}
	for _, r := range h.records() {
		for _, e := range r.Both() {
			if r.Epoch.Boot != run.Epoch.Boot || e.At < run.Start.At {
				continue
			}
			for _, p := range e.Processes {
				w.saw(p.PID, p.Cgroup)
			}
		}
	}
	return w.own
}

func onOne(cards []finding.Card, x gpu.Xid) bool {
	return slices.ContainsFunc(cards, func(c finding.Card) bool { return c.Device.BusID == x.BusID })
}

// whose gathers which processes are a job's own and which another job's. A number that was given to both tells nothing.
type whose struct {
	job           slurm.Job
	own, disputed map[int]bool
}

func (w whose) saw(pid int, o slurm.Owner) {
	if !o.Found() || o.Conflict != "" || w.disputed[pid] {
		return
	}
	own := o.ID != 0 && o.ID == w.job.ID
	if o.SLUID != "" && w.job.SLUID != "" {
		own = o.SLUID == w.job.SLUID
	}
	if said, known := w.own[pid]; known && said != own {
		delete(w.own, pid)
		w.disputed[pid] = true
		return
	}
	w.own[pid] = own
}
