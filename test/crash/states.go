package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"bookend/internal/code"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/state"
)

// states is all that the hooks keep, as the next hook would read it.
type states struct {
	runs      map[string]record // by job id and key
	history   map[string]record
	baselines map[string]string // by card
	probes    map[string]string // by card
	damage    []string          // what cannot be used
}

// record is a run's record: one form for all that agree but for times.
type record struct {
	who   string // job, epoch, devices
	claim string // what the job's task hook told, for display
	start end
	ends  []end
	whole string // all of it, times included, but for whether it was archived
}

// end is what one hook has put on record; none where all is empty.
type end struct {
	all   string // without times
	bare  string // that without what only says what was not tried: tests, words, how often somebody looked
	seen  string // what lay on the cards
	codes []code.Code
	exit  int
	// untested says that a card was not tested, and why.
	untested bool
}

// decode reads an image in a folder of the checker's own: what is set aside there is not set aside for the next hook.
func (im image) decode(folder string) (states, error) {
	if err := im.copyTo(folder); err != nil {
		return states{}, err
	}
	s := states{runs: map[string]record{}, history: map[string]record{}}
	s.baselines, s.probes = map[string]string{}, map[string]string{}
	store, err := state.Open(filepath.Join(folder, "run"), nodeName)
	if err != nil {
		return s, fmt.Errorf("decode: %w", err)
	}
	runs, damage := store.Runs()
	archived, more := state.History(filepath.Join(folder, "var"), nodeName)
	for _, d := range append(damage, more...) {
		s.damage = append(s.damage, strings.TrimPrefix(d.Path, folder+"/")+": "+d.Why)
	}
	for _, r := range runs {
		s.runs[name(r)] = canonical(r)
	}
	for _, r := range archived {
		s.history[name(r)] = canonical(r)
	}
	return s, s.shared(store)
}

// shared reads what the hooks of all jobs keep together.
func (s *states) shared(store *state.Store) error {
	baselines, err := store.Baselines()
	note := func(err error) {
		if err != nil {
			s.damage = append(s.damage, err.Error())
		}
	}
	note(err)
	for id, b := range baselines {
		s.baselines[string(id)] = plain(b)
	}
	probes, err := store.Probes()
	note(err)
	for id, p := range probes {
		s.probes[string(id)] = plain(p)
	}
	stuck, err := store.Stuck()
	note(err)
	if stuck != nil {
		return errors.New("decode: a stuck child is on record, and there was none")
	}
	return nil
}

func name(r ledger.Run) string { return fmt.Sprintf("%d/%s", r.Job.ID, r.Key) }

// known are the records that were read before: most are what they were a hook ago.
var known sync.Map // of whole to record

func canonical(r ledger.Run) record {
	r.Archived = false
	whole := exact(r)
	if rec, is := known.Load(whole); is {
		return rec.(record)
	}
	rec := record{who: plain(r.Job) + plain(r.Epoch) + plain(r.Devices), claim: plain(r.Display), whole: whole}
	if r.Start != nil {
		rec.start = endOf(*r.Start)
	}
	for _, e := range r.Ends {
		rec.ends = append(rec.ends, endOf(e))
	}
	known.Store(whole, rec)
	return rec
}

func endOf(e ledger.End) end {
	out := end{all: plain(e), seen: plain(e.Snapshot) + plain(e.Processes), exit: e.Verdict.Exit}
	out.untested = slices.ContainsFunc(e.Probes, func(p gpu.Probe) bool { return p.Result == gpu.ProbeSkipped })
	e.Probes, e.Report, e.Curves = nil, "", nil
	out.bare = plain(e)
	for _, f := range e.Findings {
		out.codes = append(out.codes, f.Code)
	}
	return out
}

// moving are the names of values that are times, or that follow from one.
var moving = regexp.MustCompile(`(_ns|^at|^wall)$`)

// took is a duration or a time of day in words.
var took = regexp.MustCompile(`[0-9]+(\.[0-9]+)? (s|ms)\b|[0-9]{2}:[0-9]{2}:[0-9]{2}`)

// plain is a value as text without its times.
func plain(v any) string {
	var tree any
	if err := json.Unmarshal([]byte(exact(v)), &tree); err != nil {
		return err.Error()
	}
	return took.ReplaceAllString(exact(still(tree)), "T")
}

func exact(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// still removes times.
func still(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key := range v {
			if moving.MatchString(key) {
				delete(v, key)
				continue
			}
			v[key] = still(v[key])
		}
	case []any:
		for i := range v {
			v[i] = still(v[i])
		}
	}
	return v
}

// equal compares but for times.
func (r record) equal(o record) bool {
	same := func(a, b end) bool { return a.all == b.all }
	return r.who == o.who && r.claim == o.claim && same(r.start, o.start) && slices.EqualFunc(r.ends, o.ends, same)
}

// alike compares what was found.
func (r record) alike(o record) bool {
	same := func(a, b end) bool { return a.bare == b.bare }
	return r.who == o.who && same(r.start, o.start) && slices.EqualFunc(r.ends, o.ends, same)
}

// difference is where two records part.
func (r record) difference(o record) string {
	a, b := r.text(), o.text()
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	around := func(s string) string { return s[max(0, min(i-60, len(s))):min(len(s), i+160)] }
	return fmt.Sprintf("...%q, not ...%q", around(a), around(b))
}

// last is the end that an epilog has put on record, the start for a prolog.
func (r record) last(h hookName) end {
	if n := len(r.ends); n > 0 && h == epilog {
		return r.ends[n-1]
	}
	return r.start
}

func (r record) text() string {
	text := r.who + r.claim + " start " + r.start.all
	for _, e := range r.ends {
		text += " end " + e.all
	}
	return text
}

// found are its codes, as words.
func (e end) found() string {
	words := make([]string, len(e.codes))
	for i, c := range e.codes {
		words[i] = string(c)
	}
	return strings.Join(words, " ")
}

// ownFaults are what a hook says of the trouble that a fault made for it; of a lock that was held, that another is at
// work.
var ownFaults = []code.Code{
	code.StateDamage, code.StateWrite, code.StateLock, code.NoRecord, code.Again, code.BackendCrash,
	code.Output, // of the drop, which is the user's
}

// admits reports whether the end says that something of its own went wrong.
func (e end) admits() bool {
	return slices.ContainsFunc(e.codes, func(c code.Code) bool { return slices.Contains(ownFaults, c) })
}
