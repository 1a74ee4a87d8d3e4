package observe

import (
	"reflect"
	"slices"
	"time"

	"bookend/internal/backend"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/node"
	"bookend/internal/record"
)

// patience is how long a hook waits for a backend to start before it goes on.
const patience = 300 * time.Millisecond

// ahead is a watch that was started before it was certain which GPUs to watch.
type ahead struct {
	cards  []record.Assigned
	rule   gpu.WatchRule
	brief  bool
	answer func() backend.Answer
}

// watchAhead starts an order's watch, and returns once the backend runs: what starts sooner would slow it down.
func watchAhead(a *node.Access, c judge.Case, o judge.Order) *ahead {
	r := watching(a, c, o.Cards, o.Rule, true)
	asked := a.AskAhead(r)
	select {
	case <-asked.Begun:
	case <-asked.Over:
	case <-time.After(patience): // there are several backends, or the program is on a disk that does not answer
	}
	return &ahead{o.Cards, o.Rule, r.Brief, asked.Wait}
}

func (w *ahead) stuck() bool { return w != nil && (w.answer().Abandoned != nil || w.answer().Unasked) }

// shows reports a complete answer in which each GPU has the inventory's bus id and minor, or Slurm gave its UUID.
func (w *ahead) shows(seen judge.Seen) bool {
	if w == nil {
		return false
	}
	answer := w.answer()
	if !answer.Complete || len(answer.Troubles)+len(answer.Faults) > 0 || len(answer.Snapshots) == 0 {
		return false
	}
	last := answer.Snapshots[len(answer.Snapshots)-1]
	return !slices.ContainsFunc(seen.Cards, func(c record.Assigned) bool {
		r, _ := last.Reading(c.Device.ID)
		its, own := r.Device, c.Device
		same := its.BusID == own.BusID && its.Minor != nil && own.Minor != nil && *its.Minor == *own.Minor
		return its.ID == "" || !same && seen.Origin.Source != record.ByUUID
	})
}

// of returns the answer, and whether it is that of this watch; if not, only the answer's child counts.
func (w *ahead) of(cards []record.Assigned, rule gpu.WatchRule) (answer backend.Answer, is bool) {
	if w != nil {
		answer = w.answer()
		is = reflect.DeepEqual(w.cards, cards) && reflect.DeepEqual(w.rule, rule)
	}
	return answer, is
}
