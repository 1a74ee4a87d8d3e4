package page

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/must"
)

const (
	gib  = 1 << 30
	gpuA = gpu.ID("GPU-aaaaaaaa")
	gpuB = gpu.ID("GPU-bbbbbbbb")
)

var (
	noon  = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	epoch = gpu.Epoch{Boot: "b", Driver: "580", Module: "m"}
)

func hour(h float64) time.Time { return noon.Add(time.Duration(h * float64(time.Hour))) }

// seenAs is one look at a GPU: its memory in use, and what was found.
func seenAs(h float64, id gpu.ID, used uint64, found ...record.Finding) record.End {
	e := record.End{At: time.Duration(h*3600+86400) * time.Second, Wall: hour(h), Findings: found}
	e.Snapshot.Readings = []gpu.Reading{readingOf(id, used)}
	e.Curves = map[gpu.ID]record.Curve{id: {State: record.Clean}}
	if len(found) > 0 {
		e.Curves[id] = record.Curve{State: record.Flat}
	}
	for range found {
		e.Verdict.Judged = append(e.Verdict.Judged, record.Judged{Action: config.Warn})
	}
	return e
}

func readingOf(id gpu.ID, used uint64) gpu.Reading {
	minor := int(id[4] - 'a')
	return gpu.Reading{
		Device: gpu.Device{ID: id, Name: "NVIDIA H200", Minor: &minor},
		Memory: gpu.Memory{Total: gpu.Bytes(100 * gib), Used: gpu.Bytes(used)},
	}
}

func finds(c catalog.Code, id gpu.ID, bytes uint64) record.Finding {
	return record.Finding{Code: c, GPU: id, Bytes: gpu.Bytes(bytes)}
}

// ran is a job of one GPU, of which either end may be missing.
func ran(job slurm.JobID, id gpu.ID, ends ...record.End) record.Run {
	index := int(id[4] - 'a')
	r := record.Run{Key: fmt.Sprint("w", job), Job: slurm.Job{ID: job, User: "alice"}, Epoch: epoch,
		Devices: []record.Assigned{{Index: index, Device: gpu.Device{ID: id}}}}
	if len(ends) > 0 && ends[0].Wall != (time.Time{}) {
		r.Start = &ends[0]
	}
	if len(ends) > 1 {
		r.Ends = ends[1:]
	}
	return r
}

// busyDay is a node's day on which much happens.
func busyDay() []record.Run {
	drain := seenAs(4, gpuA, 20*gib, finds(catalog.Orphan, gpuA, 20*gib))
	drain.Verdict = record.Verdict{Action: config.Drain, Exit: 10, Code: catalog.Orphan,
		Judged: []record.Judged{{Action: config.Drain}}}
	blind := seenAs(15, gpuB, 0, record.Finding{Code: catalog.NoDriver})
	blind.Snapshot, blind.Curves = gpu.Snapshot{}, nil
	return []record.Run{
		ran(1, gpuA, seenAs(0, gpuA, 0), drain),
		ran(2, gpuA, seenAs(6, gpuA, 20*gib, finds(catalog.Dirty, gpuA, 20*gib)), seenAs(8, gpuA, 20*gib)),
		ran(3, gpuB, seenAs(9, gpuB, 0), seenAs(10, gpuB, 0)),
		ran(4, gpuA, seenAs(11, gpuA, 0), seenAs(14, gpuA, 0)),
		ran(5, gpuB, seenAs(12, gpuB, 0), blind),
		ran(6, gpuB, record.End{}, seenAs(17, gpuB, 0)),
		ran(7, gpuA, seenAs(18, gpuA, 0)),
		ran(8, gpuA, seenAs(19, gpuA, 30*gib), seenAs(20, gpuA, 30*gib)),
	}
}

// sketch writes a lane's blocks and pieces as text: places in hours.
func sketch(c Chart, l Lane) string {
	var b strings.Builder
	at := func(from, to time.Time) string {
		return fmt.Sprintf("%.0f-%.0f", from.Sub(noon).Hours(), to.Sub(noon).Hours())
	}
	for _, k := range l.Blocks {
		ends := map[bool]string{k.Running: " running", k.NoStart: " nostart", k.NoEnd: " noend"}[true]
		fmt.Fprintf(&b, "job %s row %d of %d %s%s; ", k.Job, k.Row, k.Rows, at(k.Start, k.End), ends)
	}
	for _, h := range l.Held {
		fmt.Fprintf(&b, "held %s %s %s by %s; ", at(h.Start, h.End), figure(h.Bytes), h.Fate, h.By)
	}
	for _, m := range l.Marks {
		fmt.Fprintf(&b, "mark %v; ", m.Entries)
	}
	return b.String()
}

func TestLayout(t *testing.T) {
	day := busyDay()
	day[0].Start.Verdict.Held = "observe mode"
	c := Lay(day, Request{Now: hour(24)})
	if c.Jobs != 8 || c.Running != 1 || c.Drains != 1 || c.HeldDrains != 1 || len(c.Codes) != 3 || len(c.Lanes) != 2 || len(c.Node) != 1 ||
		len(c.Entries) != 3 || c.Entries[1].Phase != "start" || c.Entries[1].Job != "2" || c.Entries[2].Grave() != 4 {
		t.Fatalf("%+v", c)
	}
	for i, want := range []string{
		"job 1 row 0 of 2 0-4; job 2 row 0 of 2 6-8; job 4 row 0 of 2 11-14; job 7 row 0 of 2 18-24 running; " +
			"job 8 row 1 of 2 19-20; held 4-6 20.0 GiB stayed by a hook of job 1; held 6-8 20.0 GiB stayed by a hook of job 2; " +
			"held 8-11 20.0 GiB gone by a hook of job 2; mark [2]; " +
			"mark [1]; ",
		"job 3 row 0 of 1 9-10; job 5 row 0 of 1 12-15; job 6 row 0 of 1 17-17 nostart; ",
	} {
		if got := sketch(c, c.Lanes[i]); got != want {
			t.Errorf("lane %d: got\n%s\nwant\n%s", i, got, want)
		}
	}
}

// Ticks stand at times of the calendar, whatever the zone, and never so near that their labels touch.
func TestTicks(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin") // its clocks went back on 25 October 2026: 25 hours
	must.Do(t, err)
	defer func() { time.Local = time.UTC }()
	for name, tt := range map[string]struct {
		since, until string
		zone         *time.Location
		want         string
	}{
		"an hour":           {"2026-11-21 12:01", "2026-11-21 13:01", time.UTC, "12:15 12:30 12:45 13:00"},
		"over midnight":     {"2026-11-21 22:10", "2026-11-22 03:00", time.UTC, "23:00 22 Nov* 01:00 02:00 03:00"},
		"a day of 25 hours": {"2026-10-24 22:00", "2026-10-26 02:00", berlin, "25 Oct* 06:00 12:00 18:00 26 Oct*"},
		"a day in a zone of its own": {"2026-11-21 22:00", "2026-11-22 02:30", time.FixedZone("", 5*3600+1800),
			"22:00 23:00 22 Nov* 01:00 02:00"},
		"nothing, the shortest there": {"2026-11-21 12:00", "2026-11-21 12:00", time.UTC, "12:00 12:01"},
	} {
		since, _ := time.ParseInLocation("2006-01-02 15:04", tt.since, tt.zone)
		until, _ := time.ParseInLocation("2006-01-02 15:04", tt.until, tt.zone)
		var got []string
		time.Local = tt.zone
		for _, k := range Lay(nil, Request{Since: since, Until: until}).Ticks {
			got = append(got, k.Label+map[bool]string{true: "*"}[k.Day])
		}
		if text := strings.Join(got, " "); text != tt.want {
			t.Errorf("%s: %s, want %s", name, text, tt.want)
		}
	}
	time.Local = berlin
	for whole := time.Second; whole < 100*365*24*time.Hour; whole = whole/3*5 + 7*time.Second {
		ticks, last := Lay(nil, Request{Since: noon.Add(-whole), Until: noon}).Ticks, -1.0
		for _, k := range ticks {
			if k.At < 0 || k.At > 1 || k.At <= last || len(ticks) > mostTicks+1 {
				t.Errorf("%v: one of %d ticks at %v after %v", whole, len(ticks), k.At, last)
			}
			last = k.At
		}
	}
}

func TestTimeShown(t *testing.T) {
	runs := []record.Run{ran(1, gpuA, seenAs(0, gpuA, 0), seenAs(4, gpuA, 0))}
	for name, tt := range map[string]struct {
		ask          Request
		since, until time.Time
	}{
		"all that is on record":      {Request{Now: hour(10)}, hour(0), hour(10)},
		"a copy ends with its looks": {Request{}, hour(0), hour(4)},
		"as asked":                   {Request{Now: hour(10), Since: hour(2), Until: hour(3)}, hour(2), hour(3)},
		"the wrong way round":        {Request{Now: hour(10), Since: hour(3), Until: hour(2)}, hour(3), hour(3).Add(shortest)},
	} {
		if c := Lay(runs, tt.ask); !c.Since.Equal(tt.since) || !c.Until.Equal(tt.until) {
			t.Errorf("%s: %v to %v, want %v to %v", name, c.Since, c.Until, tt.since, tt.until)
		}
	}
}

// Jobs that have a GPU at one time stand on top of each other; of more than there are rows for the last share one.
func TestRows(t *testing.T) {
	var runs []record.Run
	for i, times := range [][2]float64{{0, 9}, {1, 2}, {3, 8}, {4, 5}, {4.5, 6}, {4.6, 7}} {
		runs = append(runs, ran(slurm.JobID(i+1), gpuA, seenAs(times[0], gpuA, 0), seenAs(times[1], gpuA, 0)))
	}
	got := ""
	for _, k := range Lay(runs, Request{Now: hour(24)}).Lanes[0].Blocks {
		got += fmt.Sprintf("%d/%d ", k.Row, k.Rows)
	}
	if want := "0/4 1/4 1/4 2/4 3/4 3/4 "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Ninety days of eight gpus and thousands of jobs come to a bounded number of blocks, marks and pieces, and every job
// is in one of the blocks.
func TestDense(t *testing.T) {
	var runs []record.Run
	const jobs, gpus = 6000, 8
	for i := range jobs {
		id := gpu.ID("GPU-" + string(rune('a'+i%gpus)))
		at := float64(i/gpus) * 90 * 24 / (jobs / gpus)
		end := seenAs(at+2, id, 20*gib, finds("BKD-ORPHAN", id, 20*gib))
		runs = append(runs, ran(slurm.JobID(i+1), id, seenAs(at, id, 0), end))
	}
	began := time.Now()
	c := Lay(runs, Request{})
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
	for _, l := range c.Lanes {
		total := 0
		for _, k := range l.Blocks {
			total += k.Jobs
		}
		if len(l.Blocks) > 2/cell || len(l.Held) > 2/cell || len(l.Marks) > 65 || total != jobs/gpus {
			t.Errorf("%d blocks of %d jobs, %d pieces, %d marks", len(l.Blocks), total, len(l.Held), len(l.Marks))
		}
	}
	if len(c.Entries) != jobs || c.Jobs != jobs {
		t.Errorf("%d entries, %d jobs", len(c.Entries), c.Jobs)
	}
}

func TestRunsWithoutAnEnd(t *testing.T) {
	start := seenAs(0, gpuA, 0)
	open := ran(1, gpuA, start)
	bySlurm := ran(1, gpuA, record.End{}, seenAs(5, gpuA, 0))
	bySlurm.Job.Start = hour(2)
	rebooted := ran(9, gpuB, seenAs(8, gpuB, 0), seenAs(9, gpuB, 0))
	rebooted.Epoch = gpu.Epoch{Boot: "c", Driver: "580", Module: "m"}
	unseen := record.End{At: seenAs(3, gpuA, 0).At, Wall: hour(7), Unseen: "its job began again"}
	for name, tt := range map[string]struct {
		runs []record.Run
		want string
	}{
		"runs":                           {[]record.Run{open}, "0-24 running"},
		"ended":                          {[]record.Run{ran(1, gpuA, start, seenAs(5, gpuA, 0))}, "0-5"},
		"its job began again":            {[]record.Run{open, ran(1, gpuB, seenAs(6, gpuB, 0), seenAs(7, gpuB, 0))}, "0-6 noend"},
		"the node booted":                {[]record.Run{open, rebooted}, "0-8 noend"},
		"a health check closed it":       {[]record.Run{ran(1, gpuA, start, unseen)}, "0-7 noend"},
		"closed, and ended all the same": {[]record.Run{ran(1, gpuA, start, unseen, seenAs(8, gpuA, 0))}, "0-8"},
		"no start":                       {[]record.Run{ran(1, gpuA, record.End{}, seenAs(5, gpuA, 0))}, "5-5 nostart"},
		"no start, but Slurm's word":     {[]record.Run{bySlurm}, "2-5 nostart"},
		"the clock was set back":         {[]record.Run{ran(1, gpuA, seenAs(5, gpuA, 0), seenAs(2, gpuA, 0))}, "5-5"},
	} {
		c := Lay(tt.runs, Request{Now: hour(24), Since: hour(-1)})
		want := "job 1 row 0 of 1 " + tt.want
		if got := sketch(c, c.Lanes[0]); !strings.HasPrefix(got, want+";") {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// The most memory in use is what the recorder saw between a job's two ends.
func TestMost(t *testing.T) {
	recorded := seenAs(4, gpuA, 0)
	recorded.Recording = &record.Recording{GPUs: []record.GPURecording{{ID: gpuA, Peak: record.Most{Bytes: 60 * gib}}}}
	crashed := record.End{At: recorded.At, Wall: hour(4), Unseen: "the node booted", Recording: recorded.Recording}
	for name, tt := range map[string]struct {
		end  record.End
		want gpu.Figure
	}{
		"no one looked": {seenAs(4, gpuA, gib), gpu.Unknown("not sampled")},
		"the recorder":  {recorded, gpu.Bytes(60 * gib)},
		"no epilog":     {crashed, gpu.Bytes(60 * gib)},
	} {
		c := Lay([]record.Run{ran(1, gpuA, seenAs(0, gpuA, gib), tt.end)}, Request{Now: hour(24)})
		if k := c.Lanes[0].Blocks[0]; k.Most != tt.want {
			t.Errorf("%s: %+v, want %+v", name, k.Most, tt.want)
		}
	}
}

// What stays on a GPU is drawn between looks that saw it, and no look's word goes further than what it saw.
func TestHeld(t *testing.T) {
	leaves := ran(1, gpuA, seenAs(0, gpuA, 0), seenAs(2, gpuA, 20*gib, finds(catalog.Orphan, gpuA, 20*gib)))
	// got is a job's start that found so much, and its end with what it found itself
	got := func(id slurm.JobID, start, end float64, had, left uint64, more ...record.Finding) record.Run {
		return ran(id, gpuA, seenAs(start, gpuA, had, finds(catalog.Dirty, gpuA, had)), seenAs(end, gpuA, left, more...))
	}
	clean := func(id slurm.JobID, start, end float64) record.Run {
		return ran(id, gpuA, seenAs(start, gpuA, 0), seenAs(end, gpuA, 0))
	}
	unread := seenAs(6, gpuA, 0, record.Finding{Code: catalog.Unread, GPU: gpuA, Unknown: "no answer"})
	unread.Curves = map[gpu.ID]record.Curve{gpuA: {State: record.Unreadable}}
	reloaded := got(2, 6, 8, 9*gib, 0)
	reloaded.Epoch.Module = "m2"
	vague := seenAs(2, gpuA, gib, record.Finding{Code: catalog.Residue, GPU: gpuA, Bytes: gpu.Unknown("x")})
	vague.Snapshot.Readings[0].Memory.Used = gpu.Unknown("x")
	unseen := record.End{At: seenAs(8, gpuA, 0).At, Wall: hour(8), Unseen: "its job began again"}
	checked := func(used uint64) *record.Check {
		return &record.Check{Wall: hour(5), Epoch: epoch, Snapshot: seenAs(5, gpuA, used).Snapshot}
	}
	leaked, stopped := checked(20*gib), checked(0)
	leaked.Leaked, stopped.Stopped = map[gpu.ID]uint64{gpuA: 20 * gib}, true
	type runs = []record.Run
	for name, tt := range map[string]struct {
		runs  runs
		check *record.Check
		want  string
	}{
		"nothing":                       {runs{clean(1, 0, 2)}, nil, ""},
		"not sampled since":             {runs{leaves}, nil, "2-24 20 unseen"},
		"gone when the next job came":   {runs{leaves, clean(2, 6, 8)}, nil, "2-6 20 gone"},
		"found again":                   {runs{leaves, got(2, 6, 8, 20*gib, 0)}, nil, "2-6 20 stayed, 6-8 20 gone"},
		"the driver was reloaded":       {runs{leaves, reloaded}, nil, "2-6 20 gone, 6-8 9 gone"},
		"how much is unknown":           {runs{ran(1, gpuA, seenAs(0, gpuA, 0), vague)}, nil, "2-24 ? unseen"},
		"in use, by an unknown process": {runs{clean(1, 0, 2)}, checked(gib), ""},
		"a health check saw it":         {runs{leaves}, leaked, "2-5 20 stayed, 5-24 20 unseen"},
		"a health check saw it gone":    {runs{leaves}, checked(0), "2-5 20 gone"},
		"a health check that was ended": {runs{leaves}, stopped, "2-24 20 unseen"},
		"kept over a job that adds none": {runs{leaves, got(2, 6, 8, 20*gib, 20*gib)}, nil,
			"2-6 20 stayed, 6-8 20 stayed, 8-24 20 unseen"},
		"a job adds to it": {runs{leaves, got(2, 6, 8, 20*gib, 50*gib, finds(catalog.Orphan, gpuA, 30*gib))}, nil,
			"2-6 20 stayed, 6-8 20 stayed, 8-24 50 unseen"},
		"the next look could not tell": {runs{leaves, ran(2, gpuA, unread, seenAs(8, gpuA, 0)), clean(3, 9, 10)}, nil,
			"2-9 20 gone"},
		"while another job has the GPU": {runs{clean(1, 0, 9), got(2, 3, 4, gib, 0)}, nil, ""},
		"left while another job runs": {runs{ran(1, gpuA, seenAs(0, gpuA, 0), seenAs(9, gpuA, gib)),
			ran(2, gpuA, seenAs(3, gpuA, 0), seenAs(4, gpuA, 50*gib, finds(catalog.Orphan, gpuA, gib)))}, nil, ""},
		"an end that was not seen": {runs{leaves, ran(2, gpuA, *got(2, 6, 8, 20*gib, 0).Start, unseen),
			clean(3, 10, 11)}, nil, "2-6 20 stayed, 6-10 20 gone"},
	} {
		c := Lay(tt.runs, Request{Now: hour(24), Since: hour(0), Check: tt.check})
		var got []string
		for _, h := range c.Lanes[0].Held {
			bytes := fmt.Sprint(h.Bytes.Bytes / gib)
			if !h.Bytes.Known() {
				bytes = "?"
			}
			got = append(got, fmt.Sprintf("%.0f-%.0f %s %s", h.Start.Sub(noon).Hours(), h.End.Sub(noon).Hours(), bytes,
				h.Fate))
		}
		if text := strings.Join(got, ", "); text != tt.want {
			t.Errorf("%s: %s, want %s", name, text, tt.want)
		}
	}
}

func TestCheckIsAnEntry(t *testing.T) {
	check := &record.Check{Wall: hour(5), Epoch: epoch, Snapshot: seenAs(5, gpuB, 0).Snapshot,
		Cards:    []record.Assigned{{Index: 6, Device: gpu.Device{ID: gpuB}}},
		Findings: []record.Finding{finds(catalog.Trespass, gpuB, gib)}}
	c := Lay([]record.Run{ran(1, gpuA, seenAs(0, gpuA, 0), seenAs(2, gpuA, 0))},
		Request{Now: hour(24), Check: check})
	if len(c.Entries) != 1 || c.Entries[0].Phase != "health check" || c.Entries[0].Job != "" || len(c.Lanes) != 2 ||
		*c.Lanes[1].GPU.Index != 6 || len(c.Lanes[1].Marks) != 1 {
		t.Errorf("%+v", c)
	}
}

// Where marks would cover each other one stands for all, the gravest first.
func TestMarks(t *testing.T) {
	var runs []record.Run
	for i, at := range []float64{1, 1.1, 1.2, 10} {
		c := []catalog.Code{catalog.Dirty, catalog.Throttle, catalog.Orphan, catalog.Dirty}[i]
		runs = append(runs, ran(1, gpuA, record.End{}, seenAs(at, gpuA, gib, finds(c, gpuA, gib))))
	}
	c := Lay(runs, Request{Since: hour(0), Until: hour(24), Now: hour(24)})
	m := c.Lanes[0].Marks
	if len(m) != 2 || len(m[0].Entries) != 3 || c.Entries[m[0].Entries[0]].Finding.Code != catalog.Orphan ||
		c.Entries[m[0].Entries[2]].Finding.Code != catalog.Throttle {
		t.Errorf("%+v", m)
	}
}

// What policy ignores is no entry; what lies outside the time shown is none either.
func TestEntries(t *testing.T) {
	quiet := seenAs(2, gpuA, gib, finds(catalog.Orphan, gpuA, gib), finds("BKD-NEW", gpuA, 0))
	quiet.Verdict.Judged[0].Action = "ignore"
	c := Lay([]record.Run{ran(1, gpuA, seenAs(0, gpuA, gib, finds(catalog.Dirty, gpuA, gib)), quiet)},
		Request{Since: hour(1), Until: hour(3), Now: hour(24)})
	if len(c.Entries) != 1 || c.Entries[0].Finding.Code != "BKD-NEW" || c.Entries[0].Kind.Title == "" {
		t.Errorf("%+v", c.Entries)
	}
}
