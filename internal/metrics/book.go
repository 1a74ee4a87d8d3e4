package metrics

import (
	"slices"
	"strconv"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/report"
	"bookend/internal/slurm"
)

// book is the content of counters.json; file.go reads and writes it.
type book struct {
	Version  int         `json:"version"`
	Mode     config.Mode `json:"mode"` // of the last run
	Samples  []sample    `json:"samples"`
	Troubles []Trouble   `json:"troubles"`
}

// sample is one figure. Counts are exact up to 2^53.
type sample struct {
	Name   string   `json:"name"`             // of its family
	Labels []string `json:"labels,omitempty"` // values, in the order of the family's labels
	Value  float64  `json:"value"`            // a histogram's sum
	Counts []uint64 `json:"counts,omitempty"` // of a histogram: how many fell into each bucket, the last of which has no bound
}

// Trouble is one trouble of Bookend itself, or of the driver as a whole, as hooks have met it.
type Trouble struct {
	Code code.Code `json:"code"`
	// Since is when it began: since then no run of the hook that met it last was without it.
	Since time.Time   `json:"since"`
	Last  time.Time   `json:"last"`
	Count uint64      `json:"count"` // runs with it, from Since on
	Hook  Hook        `json:"hook"`  // that met it last
	Job   slurm.JobID `json:"job"`   // whose hook that was
	// Clear is how many runs of any hook there were after Last, Over how many of them were of the same hook.
	Clear  uint64      `json:"clear,omitempty"`
	Over   uint64      `json:"over,omitempty"`
	Detail report.Safe `json:"detail,omitempty"` // what was seen last
}

// at is the sample's value, to be changed; a new one is 0.
func (b *book) at(name string, labels ...string) *float64 {
	i := b.index(name, labels)
	if i < 0 {
		i = len(b.Samples)
		b.Samples = append(b.Samples, sample{Name: name, Labels: labels})
	}
	return &b.Samples[i].Value
}

// value is the sample's value, 0 where there is none.
func (b *book) value(name string, labels ...string) float64 {
	if i := b.index(name, labels); i >= 0 {
		return b.Samples[i].Value
	}
	return 0
}

func (b *book) index(name string, labels []string) int {
	return slices.IndexFunc(b.Samples, func(s sample) bool { return s.Name == name && slices.Equal(s.Labels, labels) })
}

// add counts a run.
func (b *book) add(r Run) {
	hook := string(r.Hook)
	*b.at(hookRuns, hook, string(r.Action))++
	if r.Action == config.Drain {
		*b.at(drains, hook)++
	}
	if r.Held {
		*b.at(heldDrains, hook)++
	}
	*b.at(lastRun, hook) = seconds(r.At)
	*b.at(lastOwnErrors, hook) = 0
	if r.Mode != "" {
		b.Mode = r.Mode
	}
	for i := range b.Troubles {
		t := &b.Troubles[i]
		if t.Clear++; t.Hook == r.Hook {
			t.Over++
		}
	}
	for _, f := range r.Findings {
		b.find(r, f)
	}
	if r.Check != nil {
		b.check(*r.Check)
		return
	}
	b.observe(hookTime, r.Took.Seconds(), hook)
	for _, c := range r.Given {
		b.given(r, c)
	}
	b.forget(r.At)
}

// check shows what a health check saw in place of what the one before it did: a card that is not read any more has no figure.
func (b *book) check(c Check) {
	b.Samples = slices.DeleteFunc(b.Samples, func(s sample) bool {
		return s.Name == usedBytes || s.Name == unexplainedBytes || s.Name == leakedBytes || s.Name == driverKeepers
	})
	if c.Keepers != nil {
		*b.at(driverKeepers) = float64(*c.Keepers)
	}
	*b.at(checkSeconds) = c.Took.Seconds()
	for _, card := range c.Cards {
		for name, f := range map[string]gpu.Figure{usedBytes: card.Used, unexplainedBytes: card.Unexplained, leakedBytes: card.Leaked} {
			if f.Known() {
				*b.at(name, index(card.GPU), string(card.UUID)) = float64(f.Bytes)
			}
		}
	}
}

// index is Slurm's number of a card, nothing where that is not certain.
func index(card int) string {
	if card < 0 {
		return ""
	}
	return strconv.Itoa(card)
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

// find counts one finding of a run that has been added.
func (b *book) find(r Run, f Finding) {
	*b.at(findings, string(f.Code), string(r.Hook))++
	if !f.Own {
		return
	}
	*b.at(ownErrors, string(f.Code))++
	*b.at(lastOwnErrors, string(r.Hook))++
	i := slices.IndexFunc(b.Troubles, func(t Trouble) bool { return t.Code == f.Code })
	if i < 0 {
		i = len(b.Troubles)
		b.Troubles = append(b.Troubles, Trouble{Code: f.Code, Over: 1, Clear: 1})
	}
	b.Troubles[i].meet(r, f)
}

// meet notes that a run had the trouble. Clear is 0 where it is on record already that this very run had it.
func (t *Trouble) meet(r Run, f Finding) {
	if t.Clear > 0 {
		missed := t.Over
		if t.Hook == r.Hook {
			missed-- // this run was added as one without it
		}
		if missed > 0 {
			t.Since, t.Count = r.At, 0
		}
		t.Count++
	}
	t.Last, t.Hook, t.Job, t.Clear, t.Over = r.At, r.Hook, r.Job, 0, 0
	t.Detail = report.Clean(f.Detail, maxDetail)
}

func latestFirst(list []Trouble) { slices.SortStableFunc(list, compareTimes) }
