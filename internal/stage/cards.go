package stage

import (
	"errors"
	"fmt"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/child"
	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/inventory"
	"bookend/internal/numbering"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// inventoryRequest and inventoryReply cross the pipe of opInventory.
type inventoryRequest struct {
	DriverProc string `json:"driver_proc"`
	Proc       string `json:"proc"`
	Sys        string `json:"sys"`
	Library    string `json:"library,omitempty"` // configured; empty: the installed one
}

type inventoryReply struct {
	Cards    []gpu.Card `json:"cards"`
	Epoch    gpu.Epoch  `json:"epoch"`
	Library  string     `json:"library,omitempty"` // the driver library's version
	NoDriver bool       `json:"no_driver,omitempty"`
	Problem  string     `json:"problem,omitempty"`
}

var serveInventory = served(func(r inventoryRequest) (inventoryReply, error) {
	reply := inventoryReply{Epoch: inventory.ReadEpoch(r.Proc, r.Sys), Library: inventory.LibraryVersion(r.Library)}
	var err error
	if reply.Cards, err = inventory.Read(r.DriverProc); err != nil {
		reply.NoDriver, reply.Problem = errors.Is(err, inventory.ErrNoDriver), err.Error()
	}
	return reply, nil
})

// opBackend stands for the backend among the operations of children.
const opBackend = "backend"

// driverAnswers reports whether the driver may be asked: while an abandoned child lives, nobody starts another.
func (h *hook) driverAnswers() bool {
	if h.store == nil {
		return true
	}
	stuck, err := h.store.Stuck()
	h.try(err)
	if stuck == nil {
		return true
	}
	if inDriver(*stuck) && h.alive(*stuck) { // earlier releases put children here that read /proc
		text := StuckText(*stuck, h.at(stuck.Since))
		h.add(finding.Finding{Code: code.Stuck, Observed: text, Expected: "the driver answers"})
		return false
	}
	h.try(h.store.ClearStuck())
	return true
}

// at words a moment since boot.
func (h *hook) at(sinceBoot time.Duration) string {
	return h.env.Clock.Wall().Add(sinceBoot - h.env.Clock.Boot()).UTC().Format("2006-01-02 15:04:05 UTC")
}

// inDriver reports whether a child is stuck where only the driver can have kept it.
func inDriver(s state.Stuck) bool { return s.Op == opBackend || s.Op == opInventory }

// StuckText words a child that cannot be killed, for hooks and the command line.
func StuckText(s state.Stuck, since string) string {
	if s.Op == opSlurmd { // of an earlier release
		return fmt.Sprintf("stuck since %s: PID %d (%s) cannot be killed", since, s.PID, s.Op)
	}
	if inDriver(s) {
		return fmt.Sprintf("driver not answering since %s: PID %d (%s) cannot be killed", since, s.PID, s.Op)
	}
	return fmt.Sprintf("stuck since %s: PID %d, which was reading /proc (%s), cannot be killed", since, s.PID, s.Op)
}

// abandoned records a child that could not be killed, so that no other is started while it lives.
func (h *hook) abandoned(op string, pid int, startTicks uint64) {
	if h.store != nil {
		h.try(h.store.SetStuck(state.Stuck{PID: pid, StartTicks: startTicks, Since: h.env.Clock.Boot(), Op: op}))
	}
}

// abandonedReader records a child that could not be killed while it read other processes' /proc. That is no word about the
// driver: the next hooks only leave alone what it reads. If it cannot be recorded, this hook starts no other.
func (h *hook) abandonedReader(op string, failure error, at []attrib.Instance) {
	var err error
	if h.store == nil {
		err = h.readers().keep(op, failure, at)
	} else if stuck, ok := stuckAt(op, failure, h.env.Clock, at); ok {
		err = h.store.AddReader(stuck, h.alive)
	}
	h.try(err)
	h.unkept = h.unkept || err != nil
}

// hung is what a new reader of /proc leaves alone, and whether there may be one.
func (h *hook) hung(op string) (at []attrib.Instance, blocked bool) {
	if h.store == nil {
		at, blocked = hung(op, h.readers().stuck())
	} else {
		at, blocked = hung(op, h.store.Readers(h.alive))
	}
	return at, blocked || h.unkept
}

// readers are those on record of any node: of a hook without a store of its own.
func (h *hook) readers() Readers { return Readers{Config: h.cfg, Clock: h.env.Clock} }

func (h *hook) alive(s state.Stuck) bool { return child.Alive(h.cfg.Paths.Proc, s.PID, s.StartTicks) }

// inventory lists the node's cards and resolves which of them are the job's.
func (h *hook) inventory() {
	numbers, paths := h.startNumbering(), h.cfg.Paths
	request := inventoryRequest{h.cfg.NVIDIA.DriverProc, paths.Proc, paths.Sys, h.cfg.NVIDIA.NVMLLibrary}
	reply, err := askTelling[inventoryReply](h.started(opInventory), opInventory, request, h.left(time.Duration(h.times.Driver)/2, h.reserve()))
	if err != nil {
		h.childFault(opInventory, err)
		return
	}
	h.epoch, h.library = reply.Epoch, reply.Library
	switch {
	case reply.NoDriver:
		h.add(finding.Finding{Code: code.NoDriver, Observed: reply.Problem, Expected: "a loaded driver"})
		return
	case reply.Problem != "":
		h.add(finding.Finding{Code: code.DriverKO, Unknown: reply.Problem})
		return
	}
	h.resolve(reply.Cards, numbers())
}

func (h *hook) resolve(cards []gpu.Card, list numbering.List) {
	if h.phase == slurm.HealthCheck {
		h.cards, h.slurms = everyCard(cards, h.cfg.NVIDIA, list), numbering.Slurms(cards, list)
		return
	}
	res := numbering.Devices(h.job, cards, h.cfg.NVIDIA, list)
	if numbering.GivesNumbers(h.job) && h.remembered() {
		res = h.recallDevices(cards)
	}
	h.origin = numbering.Origin{Source: res.Source, Why: res.Unknown}
	if res.Unknown != "" {
		h.add(finding.Finding{Code: code.Ambiguous, Unknown: res.Unknown})
	}
	for _, index := range res.Missing {
		h.add(finding.Finding{
			Code: code.Missing, Index: &index, Observed: fmt.Sprintf("Slurm's GPU %d does not exist: the driver has %d", index, len(cards)),
			Expected: "a GPU for every index that Slurm gives out", Doubts: []string{"the numbering may be configured wrongly"},
		})
	}
	h.devices = res.Devices
	for _, a := range res.Devices {
		h.cards = append(h.cards, finding.Card{Index: a.Index, Device: a.Device})
	}
}
