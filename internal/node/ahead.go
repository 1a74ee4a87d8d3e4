package node

import (
	"errors"
	"reflect"
	"slices"
	"sync"
	"time"

	"bookend/internal/child"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/record"
)

// patience is how long a hook waits for a backend to start before it goes on.
const patience = 300 * time.Millisecond

// ahead is a watch that was started before it was certain which GPUs to watch. Until answer, which does not wait for
// the end of the backend, has returned, nothing else may be asked.
type ahead struct {
	cards  []record.Assigned
	rule   gpu.WatchRule
	brief  bool
	answer func() Answer
}

// watchAhead starts an order's watch, and returns once the backend runs: what starts sooner would slow it down.
func watchAhead(a *Access, c judge.Case, o judge.Order) *ahead {
	r := watching(a, c, o.Cards, o.Rule, true)
	begun, answers, over := make(chan struct{}, len(gpu.Vendors)), make(chan Answer, 1), make(chan struct{})
	wait := child.Async(func() (Answer, error) {
		defer close(over)
		return a.ask(r, Params{
			Started: func(int, uint64) { begun <- struct{}{} }, OnAnswer: func(answer Answer) { answers <- answer },
		}), nil
	})
	ended := sync.OnceValue(func() Answer {
		answer, err := wait()
		errors.As(err, &answer.Panic)
		return answer
	})
	select {
	case <-begun:
	case <-over:
	case <-time.After(patience): // there are several backends, or the program is on a disk that does not answer
	}
	return &ahead{o.Cards, o.Rule, r.Brief, sync.OnceValue(func() Answer {
		select {
		case answer := <-answers:
			a.ending = ended
			return answer
		case <-over:
			return ended()
		}
	})}
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
	return !slices.ContainsFunc(seen.Cards, func(c record.Assigned) bool {
		r, _ := answer.latest().Reading(c.Device.ID)
		its, own := r.Device, c.Device
		same := its.BusID == own.BusID && its.Minor != nil && own.Minor != nil && *its.Minor == *own.Minor
		return its.ID == "" || !same && seen.Origin.Source != record.ByUUID
	})
}

// of returns the answer, and whether it is that of this watch; if not, only the answer's child counts.
func (w *ahead) of(cards []record.Assigned, rule gpu.WatchRule) (answer Answer, is bool) {
	if w != nil {
		answer = w.answer()
		is = reflect.DeepEqual(w.cards, cards) && reflect.DeepEqual(w.rule, rule)
	}
	return answer, is
}
