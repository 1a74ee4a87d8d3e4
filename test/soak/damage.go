package main

import (
	"math/rand/v2"

	"bookend/internal/gpu"
)

// damage is what goes wrong with one hook's look.
type damage struct {
	kind defect
	look int // which look it befalls, everyLook for all
	card int
}

const everyLook = -1

type defect string

const (
	whole         defect = ""
	noReading     defect = "no reading"
	noUsed        defect = "memory unknown"
	noList        defect = "list unknown"
	noFigure      defect = "a process's memory unknown"
	lostOnce      defect = "lost for one look"
	driverError   defect = "driver error"
	stalled       defect = "stalled looks"
	noFirstWatch  defect = "no answer to the first watch"
	noLaterWatch  defect = "no answer to a later watch"
	noProc        defect = "/proc unreadable"
	partialScan   defect = "search cut short"
	failedScan    defect = "search failed"
	forbiddenScan defect = "search forbidden"
	busy          defect = "probe at work"
	unwritten     defect = "record not written" // this hook's
	forgotten     defect = "a record lost"      // an earlier one
	damagedRecord defect = "a record damaged"   // an earlier one, which is set aside
	unread        defect = "records unread"     // some, and the hook knows that it has not all
	noKernelLog   defect = "kernel log unread"
	overwritten   defect = "kernel log overwritten"
	noCondition   defect = "condition unknown"
	noDriver      defect = "driver not loaded" // at a start, which learns the boot and nothing else
)

var defects = []defect{
	noReading, noUsed, noList, noFigure, lostOnce, driverError, stalled, noFirstWatch, noLaterWatch, noProc, partialScan,
	failedScan, forbiddenScan, busy, unwritten, forgotten, damagedRecord, unread, noDriver, noKernelLog, overwritten, noCondition,
}

// drawDamage draws what befalls a hook. Records are lost only where every process carries its job's mark.
func drawDamage(r *rand.Rand, cards int, marked bool) damage {
	d := damage{kind: defects[r.IntN(len(defects))], look: r.IntN(6), card: r.IntN(cards)}
	if r.IntN(2) == 0 {
		d.look = everyLook
	}
	if !marked && (d.kind == unwritten || d.kind == forgotten) {
		d.kind = stalled
	}
	return d
}

// befalls reports whether a look, counted from 0, is damaged.
func (d damage) befalls(look int) bool { return d.look == everyLook || d.look == look }

func (d damage) spoil(s *gpu.Snapshot, look int) {
	if d.card >= len(s.Readings) || !d.befalls(look) && d.kind != lostOnce {
		return
	}
	r := &s.Readings[d.card]
	switch d.kind {
	case noReading:
		s.Readings = append(s.Readings[:d.card:d.card], s.Readings[d.card+1:]...)
	case noUsed:
		r.Memory.Used = gpu.Unknown("not supported")
	case noList:
		r.Processes, r.ProcessesUnknown = nil, "the list cannot be true"
	case noFigure:
		for i := range r.Processes {
			r.Processes[i].Memory = gpu.Unknown("not available")
		}
	case lostOnce:
		if look == max(d.look, 0) {
			fail(s, d.card, gpu.FaultLost)
		}
	case driverError:
		fail(s, d.card, gpu.FaultDriver)
	}
}

func fail(s *gpu.Snapshot, card int, code gpu.FaultCode) {
	d := s.Readings[card].Device
	s.Readings = append(s.Readings[:card:card], s.Readings[card+1:]...)
	s.Faults = append(s.Faults, gpu.Fault{Code: code, Device: d.ID, BusID: d.BusID, Detail: string(code)})
}
