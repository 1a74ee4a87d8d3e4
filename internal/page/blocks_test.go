package page

import (
	"fmt"
	"testing"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
)

func TestStack(t *testing.T) {
	for name, tt := range map[string]struct {
		times [][2]float64
		want  string
	}{
		"one after the other":   {[][2]float64{{0, 1}, {1, 2}, {3, 4}}, "[{0 1} {0 1} {0 1}]"},
		"two at once, then one": {[][2]float64{{0, 3}, {1, 2}, {3, 4}}, "[{0 2} {1 2} {0 1}]"},
		"a chain":               {[][2]float64{{0, 3}, {1, 5}, {4, 6}}, "[{0 2} {1 2} {0 2}]"},
		"a late third":          {[][2]float64{{0, 9}, {1, 2}, {3, 8}, {4, 5}}, "[{0 3} {1 3} {1 3} {2 3}]"},
		"more than there is for": {[][2]float64{{0, 9}, {1, 9}, {2, 9}, {3, 9}, {4, 9}, {5, 9}},
			"[{0 4} {1 4} {2 4} {3 4} {3 4} {3 4}]"},
		"none": {nil, "[]"},
	} {
		var list []stay
		for _, s := range tt.times {
			list = append(list, stay{from: hour(s[0]), to: hour(s[1])})
		}
		if got := fmt.Sprint(stack(list)); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// Ninety days of eight cards and thousands of jobs come to a bounded number of blocks, marks and pieces, and every job
// is in one of the blocks.
func TestDense(t *testing.T) {
	var runs []ledger.Run
	const jobs, cards = 6000, 8
	for i := range jobs {
		card := gpu.ID("GPU-" + string(rune('a'+i%cards)))
		at := float64(i/cards) * 90 * 24 / (jobs / cards)
		end := seenAs(at+2, card, 20*gib, found("BKD-ORPHAN", card, 20*gib))
		runs = append(runs, ran(slurm.JobID(i+1), card, seenAs(at, card, 0), end))
	}
	began := time.Now()
	c := Lay(runs, Request{Blocks: 2000})
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
	blocks, held, marks, inBlocks := 0, 0, 0, 0
	for _, l := range c.Lanes {
		blocks, held, marks = blocks+len(l.Blocks), held+len(l.Held), marks+len(l.Marks)
		for _, k := range l.Blocks {
			inBlocks += k.Jobs
		}
	}
	if blocks > 2000 || held > 2*2000 || marks > 65*cards || inBlocks != jobs || !c.Total.Joined {
		t.Errorf("%d blocks of %d jobs, %d pieces, %d marks, joined %v", blocks, inBlocks, held, marks, c.Total.Joined)
	}
	if len(c.Entries) != jobs || c.Lanes[0].Sum.Jobs != jobs/cards {
		t.Errorf("%d entries, %d jobs", len(c.Entries), c.Lanes[0].Sum.Jobs)
	}
}

func TestRunsWithoutAnEnd(t *testing.T) {
	other := gpu.Epoch{Boot: "c", Driver: "580", Module: "m"}
	rebooted := ran(9, cardB, seenAs(8, cardB, 0), seenAs(9, cardB, 0))
	rebooted.Epoch = other
	unseen := seenAs(7, cardA, 0)
	unseen = ledger.End{At: seenAs(3, cardA, 0).At, Wall: unseen.Wall, Unseen: "its job began anew"}
	for name, tt := range map[string]struct {
		runs                    []ledger.Run
		to                      float64
		running, noStart, noEnd bool
	}{
		"runs": {[]ledger.Run{ran(1, cardA, seenAs(0, cardA, 0))}, 24, true, false, false},
		"ended": {[]ledger.Run{ran(1, cardA, seenAs(0, cardA, 0), seenAs(5, cardA, 0))}, 5,
			false, false, false},
		"its job began anew": {[]ledger.Run{ran(1, cardA, seenAs(0, cardA, 0)),
			ran(1, cardB, seenAs(6, cardB, 0), seenAs(7, cardB, 0))}, 6, false, false, true},
		"the card was given on": {[]ledger.Run{ran(1, cardA, seenAs(0, cardA, 0)), rebooted,
			ran(2, cardA, seenAs(4, cardA, 0), seenAs(5, cardA, 0))}, 4, false, false, true},
		"the node booted": {[]ledger.Run{ran(1, cardA, seenAs(0, cardA, 0)), rebooted}, 8, false, false,
			true},
		"a health check closed it": {[]ledger.Run{ran(1, cardA, seenAs(0, cardA, 0), unseen)}, 3, false, false,
			true},
		"closed, and ended all the same": {[]ledger.Run{ran(1, cardA, seenAs(0, cardA, 0), unseen,
			seenAs(8, cardA, 0))}, 8, false, false, false},
		"no start": {[]ledger.Run{ran(1, cardA, ledger.End{}, seenAs(5, cardA, 0))}, 5, false,
			true, false},
	} {
		c := Lay(tt.runs, Request{Now: hour(24), Since: hour(-1)})
		k := c.Lanes[0].Blocks[0]
		if !k.End.Equal(hour(tt.to)) || k.Running != tt.running || k.NoStart != tt.noStart || k.NoEnd != tt.noEnd {
			t.Errorf("%s: %+v, want the end at hour %v", name, k, tt.to)
		}
	}
}

// What Slurm says of a job's start stands in for a look that was not made, and no more than that.
func TestStartBySlurm(t *testing.T) {
	r := ran(1, cardA, ledger.End{}, seenAs(5, cardA, 0))
	r.Job.Start = hour(2)
	k := Lay([]ledger.Run{r}, Request{Now: hour(24), Since: hour(0)}).Lanes[0].Blocks[0]
	if !k.Start.Equal(hour(2)) || !k.NoStart {
		t.Errorf("%+v", k)
	}
}

func TestClockSetBack(t *testing.T) {
	c := Lay([]ledger.Run{ran(1, cardA, seenAs(5, cardA, 0), seenAs(2, cardA, 0))},
		Request{Now: hour(6), Since: hour(0)})
	if k := c.Lanes[0].Blocks[0]; k.Width() != 0 || !k.End.Equal(k.Start) {
		t.Errorf("%+v", k)
	}
}

// The most memory in use is what looks between a job's two ends saw, and accounting of processes that began in it.
func TestMost(t *testing.T) {
	end := seenAs(4, cardA, 0)
	end.Health = []gpu.Health{{Device: cardA, Accounting: gpu.Accounting{Mode: "on", Processes: []gpu.Accounted{
		{PID: 1, Peak: gpu.Bytes(90 * gib), Began: hour(-1)}, {PID: 2, Peak: gpu.Bytes(30 * gib), Began: hour(1)},
		{PID: 3, Peak: gpu.Unknown("x"), Began: hour(2)},
	}}}}
	other := ran(2, cardB, besides(seenAs(2, cardB, 0), cardA, 50*gib), seenAs(3, cardB, 0))
	sighted := ledger.Sighted{Epoch: epoch,
		Processes: []ledger.Seen{{GPU: cardA, PID: 7, Start: 1, Last: seenAs(3, cardA, 0).At,
			Bytes: gpu.Bytes(60 * gib)}}}
	for name, tt := range map[string]struct {
		runs []ledger.Run
		seen ledger.Sighted
		want gpu.Figure
	}{
		"nobody looked": {[]ledger.Run{ran(1, cardA, seenAs(0, cardA, 0), seenAs(4, cardA, 0))}, ledger.Sighted{},
			gpu.Unknown(nobodySaw)},
		"left at its end": {[]ledger.Run{ran(1, cardA, seenAs(0, cardA, 0), seenAs(4, cardA, gib))},
			ledger.Sighted{}, gpu.Bytes(gib)},
		"there at its start": {[]ledger.Run{ran(1, cardA, seenAs(0, cardA, gib), seenAs(4, cardA, 0))},
			ledger.Sighted{}, gpu.Unknown(nobodySaw)},
		"accounting": {[]ledger.Run{ran(1, cardA, seenAs(0, cardA, 0), end)}, ledger.Sighted{},
			gpu.Bytes(30 * gib)},
		"another's hook": {[]ledger.Run{ran(1, cardA, seenAs(0, cardA, 0), end), other}, ledger.Sighted{},
			gpu.Bytes(50 * gib)},
		"health checks": {[]ledger.Run{ran(1, cardA, seenAs(0, cardA, 0), end), other}, sighted,
			gpu.Bytes(60 * gib)},
	} {
		c := Lay(tt.runs, Request{Now: hour(24), Sighted: tt.seen})
		if k := c.Lanes[0].Blocks[0]; k.Most != tt.want {
			t.Errorf("%s: %+v, want %+v", name, k.Most, tt.want)
		}
	}
}
