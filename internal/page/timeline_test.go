package page

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/settle"
	"bookend/internal/slurm"
)

var update = flag.Bool("update", false, "rewrite the golden file")

const (
	gib   = 1 << 30
	cardA = gpu.ID("GPU-aaaaaaaa")
	cardB = gpu.ID("GPU-bbbbbbbb")
)

var (
	noon  = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	epoch = gpu.Epoch{Boot: "b", Driver: "580", Module: "m"}
)

func hour(h float64) time.Time { return noon.Add(time.Duration(h * float64(time.Hour))) }

// seenAs is one look at a card: its memory in use, and what was found.
func seenAs(h float64, id gpu.ID, used uint64, found ...finding.Finding) ledger.End {
	e := ledger.End{At: time.Duration(h*3600+86400) * time.Second, Wall: hour(h), Findings: found}
	e.Snapshot.Readings = []gpu.Reading{reading(id, used)}
	e.Curves = map[gpu.ID]settle.Curve{id: {State: settle.Clean}}
	if len(found) > 0 {
		e.Curves[id] = settle.Curve{State: settle.Flat}
	}
	for range found {
		e.Verdict.Judged = append(e.Verdict.Judged, finding.Judged{Action: config.Warn})
	}
	return e
}

func reading(id gpu.ID, used uint64) gpu.Reading {
	minor := int(id[4] - 'a')
	return gpu.Reading{
		Device: gpu.Device{ID: id, Name: "NVIDIA H200", Minor: &minor},
		Memory: gpu.Memory{Total: gpu.Bytes(100 * gib), Used: gpu.Bytes(used)},
	}
}

func found(c code.Code, id gpu.ID, bytes uint64) finding.Finding {
	return finding.Finding{Code: c, GPU: id, Bytes: gpu.Bytes(bytes)}
}

// ran is a job of one card, of which either end may be missing.
func ran(id slurm.JobID, card gpu.ID, ends ...ledger.End) ledger.Run {
	index := int(card[4] - 'a')
	r := ledger.Run{Key: fmt.Sprint("w", id), Job: slurm.Job{ID: id, User: "alice"}, Epoch: epoch,
		Devices: []ledger.Assigned{{Index: index, Device: gpu.Device{ID: card}}}}
	if len(ends) > 0 && ends[0].Wall != (time.Time{}) {
		r.Start = &ends[0]
	}
	if len(ends) > 1 {
		r.Ends = ends[1:]
	}
	return r
}

func besides(e ledger.End, id gpu.ID, used uint64) ledger.End {
	e.Neighbours = &gpu.Snapshot{At: e.At, Readings: []gpu.Reading{reading(id, used)}}
	return e
}

// aDay is a node's day on which much happens.
func aDay() []ledger.Run {
	drain := seenAs(4, cardA, 20*gib, found(code.Orphan, cardA, 20*gib))
	drain.Verdict = finding.Verdict{Action: config.Drain, Exit: 10, Code: code.Orphan,
		Judged: []finding.Judged{{Action: config.Drain}}}
	blind := seenAs(15, cardB, 0, finding.Finding{Code: code.NoDriver})
	blind.Snapshot, blind.Curves = gpu.Snapshot{}, nil
	return []ledger.Run{
		ran(1, cardA, seenAs(0, cardA, 0), drain),
		ran(2, cardA, seenAs(6, cardA, 20*gib, found(code.Dirty, cardA, 20*gib)), seenAs(8, cardA, 20*gib)),
		ran(3, cardB, besides(seenAs(9, cardB, 0), cardA, 20*gib), besides(seenAs(10, cardB, 0), cardA, 0)),
		ran(4, cardA, seenAs(11, cardA, 0), seenAs(14, cardA, 0)),
		ran(5, cardB, besides(seenAs(12, cardB, 0), cardA, 70*gib), blind),
		ran(6, cardB, ledger.End{}, besides(seenAs(17, cardB, 0), cardA, 5*gib)),
		ran(7, cardA, seenAs(18, cardA, 0)),
		ran(8, cardA, seenAs(19, cardA, 30*gib), seenAs(20, cardA, 30*gib)),
	}
}

// sketch writes a chart as text: places in thousandths.
func sketch(c Chart) string {
	var b strings.Builder
	at := func(s Span) string { return fmt.Sprintf("%4.0f-%4.0f", s.From*1000, s.To*1000) }
	fmt.Fprintf(&b, "%s to %s; on record %s to %s\n", c.Since.Format(time.DateTime), c.Until.Format(time.DateTime),
		c.First.Format(time.DateTime), c.Last.Format(time.DateTime))
	for i, list := range c.Ticks {
		fmt.Fprintf(&b, "ticks x%d: %d, first %.0f %s\n", Zooms[i], len(list), list[0].At*1000, list[0].Label)
	}
	for _, l := range c.Lanes {
		fmt.Fprintf(&b, "lane %s index %v: %d jobs, busy %v, held %v up to %d GiB, %d found, last %s\n", l.Card.ID,
			*l.Card.Index, l.Sum.Jobs, l.Sum.Busy, l.Sum.Held, l.Sum.Worst.Bytes/gib, l.Sum.Found,
			l.Sum.Last.Format("15:04"))
		for _, k := range l.Blocks {
			fmt.Fprintf(&b, "  job  %s row %d of %d: %d %s running %v nostart %v noend %v most %v share %.2f found %d\n", at(k.Span), k.Row, k.Rows, k.Jobs, k.Job, k.Running, k.NoStart, k.NoEnd, k.Most, k.Share, k.Found)
		}
		for _, h := range l.Held {
			fmt.Fprintf(&b, "  held %s %d GiB %s by %s unclaimed %v\n", at(h.Span), h.Bytes.Bytes/gib, h.Fate, h.By,
				h.Unclaimed)
		}
		for _, s := range l.Overlaps {
			fmt.Fprintf(&b, "  both %s\n", at(s))
		}
		for _, m := range l.Marks {
			fmt.Fprintf(&b, "  mark %4.0f %v\n", m.At*1000, m.Entries)
		}
	}
	for _, m := range c.Elsewhere {
		fmt.Fprintf(&b, "mark %4.0f %v\n", m.At*1000, m.Entries)
	}
	for i, e := range c.Entries {
		fmt.Fprintf(&b, "%d: %s %s of job %s %s, weight %d\n", i, e.At.Format("15:04"), e.Phase, e.Job, e.Finding.Code,
			e.Grave())
	}
	fmt.Fprintf(&b, "total %d jobs, %d running, %d drains, %d codes, joined %v\n", c.Total.Jobs, c.Total.Running,
		c.Total.Drains, len(c.Total.Codes), c.Total.Joined)
	return b.String()
}

func TestLayout(t *testing.T) {
	got := sketch(Lay(aDay(), Request{Now: hour(24), Blocks: 4000}))
	const file = "testdata/day.golden"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A job has the name that its user knows it by, in every place.
func TestNamesOfJobs(t *testing.T) {
	run := ran(105, cardA, seenAs(0, cardA, 0), seenAs(2, cardA, 20*gib, found(code.Orphan, cardA, 20*gib)))
	run.Job.HetJobID = 104
	c := Lay([]ledger.Run{run}, Request{Now: hour(4)})
	l := c.Lanes[0]
	if l.Blocks[0].Job != "104+1" || c.Entries[0].Job != "104+1" || l.Held[0].By != "a hook of job 104+1" {
		t.Errorf("%+v, %+v", l, c.Entries)
	}
	if got := c.At(l.Blocks[0].To); !got.Equal(hour(2)) {
		t.Errorf("its end is drawn at %v", got)
	}
}
