package page

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
)

// Block is one job on a GPU, or several that are too short to be drawn separately.
type Block struct {
	From, To float64
	Row      int // of Rows: jobs that had the GPU at the same time are stacked
	Rows     int // number of rows in the lane
	// Y and Tall are the block's position and height in the lane; UseY and Used are those of the memory in use.
	Y, Tall, UseY, Used float64

	Jobs       int
	Job        string // its name; empty for several jobs
	User       string // unescaped
	Start, End time.Time
	// Running: it has not ended. NoStart and NoEnd: that end is not recorded, and Start or End is only a bound for it.
	Running, NoStart, NoEnd bool
	Most                    gpu.Figure // the largest recorded memory use, a lower bound
	// Course draws the recorded memory in use: in total, then of the largest processes if there are several.
	// Horizontally, one step is 1/Wide of the block; vertically, 1/100 of the GPU's memory.
	Course []string
	Wide   int

	end      *record.End          // the first that an epilog saw; nil if there is none
	sampled  *record.End          // the one with a recording; nil if there is none
	recorded *record.GPURecording // what that has of the GPU; nil if it has nothing
}

const (
	// mostRows is how many jobs sharing a GPU are drawn separately.
	mostRows = 4
	// cell is a fraction of a lane, about a pixel. Neighbours that fit within one cell are drawn as one.
	cell = 1.0 / 1000
	// rowTall leaves a gap between rows. least is the smallest height for memory use above zero, so that it is visible.
	rowTall, least = 0.96, 0.05
)

// readJobs collects each GPU's jobs, and counts the jobs and drains, also those held back, in the time shown.
func (h *layout) readJobs() {
	for i := range h.runs {
		r := &h.runs[i]
		k, ok := h.block(r)
		if !ok {
			continue
		}
		for _, d := range r.Devices {
			if d.Device.ID != "" {
				h.jobs[d.Device.ID] = append(h.jobs[d.Device.ID], k.on(d.Device.ID))
			}
		}
		if !h.shows(k.Start, k.End) {
			continue
		}
		if h.Jobs++; k.Running {
			h.Running++
		}
		for _, e := range r.AllEnds() {
			switch v := e.Verdict; {
			case !h.shows(e.Wall, e.Wall):
			case v.Held != "":
				h.HeldDrains++
			case v.Action == catalog.ToDrain && v.Exit != 0:
				h.Drains++
			}
		}
	}
	for _, list := range h.jobs {
		slices.SortStableFunc(list, func(a, b Block) int { return a.Start.Compare(b.Start) })
	}
}

func (h *layout) block(r *record.Run) (k Block, ok bool) {
	if len(r.AllEnds()) == 0 {
		return k, false
	}
	k = Block{end: r.Epilog(), sampled: sampled(r), Jobs: 1, Job: r.JobName(), User: r.Job.User,
		Most: gpu.Unknown("not sampled"), Start: r.First().Wall, End: h.ask.Now, NoStart: r.Start == nil}
	switch next := r.Superseded(h.runs); {
	case k.end != nil:
		k.End = k.end.Wall
	case r.Closed(): // closed by a health check, which ran later
		k.NoEnd, k.End = true, r.Ends[0].Wall
	case next != nil:
		k.NoEnd, k.End = true, next.First().Wall
	default:
		k.Running = true
	}
	if begun := r.Job.Start; k.NoStart && !begun.IsZero() && begun.Before(k.Start) {
		k.Start = begun // as Slurm reports it; there is no earlier sample
	}
	k.End = later(k.End, k.Start) // the clock may have been set back
	return k, true
}

// on returns a job's block on one of its GPUs, with what the recorder saw there.
func (k Block) on(id gpu.ID) Block {
	if k.sampled == nil {
		return k
	}
	gpus := k.sampled.Recording.GPUs
	if i := slices.IndexFunc(gpus, func(g record.GPURecording) bool { return g.ID == id }); i >= 0 {
		k.recorded, k.Most = &gpus[i], gpu.Bytes(gpus[i].Peak.Bytes)
	}
	return k
}

// sampled returns the end that has what was recorded of a run: an epilog's, or the health check's that closed the run.
func sampled(r *record.Run) *record.End {
	if e := r.Epilog(); e != nil && e.Recording != nil {
		return e
	}
	for i := range r.Ends {
		if r.Ends[i].Recording != nil {
			return &r.Ends[i]
		}
	}
	return nil
}

func (k *Block) use(f gpu.Figure) {
	if f.Known() && (!k.Most.Known() || f.Bytes > k.Most.Bytes) {
		k.Most = f
	}
}

func share(f, total gpu.Figure) float64 {
	if !f.Known() || !total.Known() || total.Bytes == 0 {
		return 0
	}
	return min(float64(f.Bytes)/float64(total.Bytes), 1)
}

// blocks returns the jobs of a GPU in the time shown. Each gets the first row free at its start, or the last.
func (h *layout) blocks(c GPU) (blocks []Block) {
	var free [mostRows]time.Time
	last := [mostRows]int{-1, -1, -1, -1}
	rows := 1
	for _, k := range h.jobs[c.Device.ID] {
		if !h.shows(k.Start, k.End) {
			continue
		}
		k.Row = slices.IndexFunc(free[:], func(t time.Time) bool { return !k.Start.Before(t) })
		if k.Row < 0 {
			k.Row = mostRows - 1
		}
		rows, free[k.Row] = max(rows, k.Row+1), later(free[k.Row], k.End)
		k.From, k.To = h.at(k.Start), h.at(k.End)
		if i := last[k.Row]; i >= 0 && k.To-blocks[i].From < cell {
			blocks[i].join(k)
			continue
		}
		last[k.Row] = len(blocks)
		h.course(&k, c)
		blocks = append(blocks, k)
	}
	for i := range blocks {
		k := &blocks[i]
		k.Rows, k.Y, k.Tall = rows, float64(k.Row)/float64(rows), rowTall/float64(rows)
		if part := share(k.Most, c.Total); part > 0 {
			k.Used = max(part, least) * k.Tall
		}
		k.UseY = k.Y + k.Tall - k.Used
	}
	return blocks
}

// course draws a job's recording on a GPU, with at most one point for each cell of the block.
func (h *layout) course(k *Block, c GPU) {
	g, total := k.recorded, c.Total.Bytes>>20
	k.Wide = int((k.To - k.From) / cell)
	if g == nil || len(g.Curve.Used) < 2 || k.Wide < 2 || !c.Total.Known() || total == 0 {
		return
	}
	at := func(i int) int { // the cell of a step
		when := k.sampled.Clock(k.sampled.Recording.From + time.Duration(i)*g.Curve.Step)
		return int((h.at(when) - k.From) / cell)
	}
	k.Course = append(k.Course, path(g.Curve.Used, at, total, true))
	for _, p := range g.Processes {
		if len(g.Processes) > 1 && len(p.Curve) > 1 {
			k.Course = append(k.Course, path(p.Curve, at, total, false))
		}
	}
}

// path returns SVG path data with the maximum of each cell; an area is closed along the bottom.
func path(used []uint32, at func(int) int, total uint64, area bool) string {
	var b strings.Builder
	high, from, to := uint32(0), at(0), 0
	for i, mib := range used {
		if high = max(high, mib); i+1 < len(used) && at(i+1) == at(i) {
			continue
		}
		to = at(i + 1)
		fmt.Fprintf(&b, "L%d %dH%d", at(i), 100-min(100, uint64(high)*100/total), to)
		high = 0
	}
	if area {
		return fmt.Sprintf("M%d 100%sV100Z", from, b.String())
	}
	return "M" + b.String()[1:]
}

func (k *Block) join(o Block) {
	k.Jobs, k.Job, k.User, k.Course = k.Jobs+1, "", "", nil
	k.To, k.End = max(k.To, o.To), later(k.End, o.End)
	k.Running, k.NoStart, k.NoEnd = k.Running || o.Running, k.NoStart && o.NoStart, k.NoEnd || o.NoEnd
	k.use(o.Most)
}

// look is a sample that shows whether a GPU had memory or a process that belongs to no running job.
type look struct {
	at    time.Time
	epoch gpu.Epoch
	by    string // which hook took the sample
	left  bool
	bytes gpu.Figure
}

func (h *layout) readLooks() {
	for _, r := range h.runs {
		for _, d := range r.Devices {
			h.addLooks(r, d.Device.ID)
		}
	}
	h.addCheck()
	for _, list := range h.looks {
		slices.SortStableFunc(list, func(a, b look) int { return a.at.Compare(b.at) })
	}
}

// addLooks adds a job's samples of a GPU, except while another job has it. Memory that was left before the job and is
// still there is not a finding of its end; after a start that shows nothing, an end that finds nothing shows nothing.
func (h *layout) addLooks(r record.Run, id gpu.ID) {
	leftBefore, knownBefore := false, true
	for i, e := range r.AllEnds() {
		if e.Unseen != "" {
			continue
		}
		reading, _ := e.Snapshot.Reading(id)
		l := look{at: e.Wall, epoch: r.EpochOf(*e), by: "a hook of job " + r.JobName(), bytes: usedOf(reading)}
		busy := h.busy(id, e.Wall)
		stays := leftBefore && l.bytes.Known() && l.bytes.Bytes >= record.WorthTelling
		l.left = !busy && (stays || leaves(*e, id))
		known := !busy && (l.left || knownBefore && e.Curves[id].State == record.Clean)
		if known {
			h.looks[id] = append(h.looks[id], l)
		}
		if i == 0 && r.Start != nil {
			leftBefore, knownBefore = l.left, known
		}
	}
}

func leaves(e record.End, id gpu.ID) bool {
	return slices.ContainsFunc(e.Findings, func(f record.Finding) bool {
		kind, _ := catalog.Lookup(f.Code)
		of := kind.Traits.Memory
		return f.GPU == id && f.Unknown == "" && (of.Stays() || of == catalog.Inherited)
	})
}

// busy reports whether a job has a GPU at a time, other than one that begins or ends then.
func (h *layout) busy(id gpu.ID, t time.Time) bool {
	return slices.ContainsFunc(h.jobs[id], func(k Block) bool { return k.Start.Before(t) && k.End.After(t) })
}

func usedOf(r gpu.Reading) gpu.Figure {
	if r.Device.ID == "" || r.Memory.Unjudged != "" {
		return gpu.Unknown("not read")
	}
	return r.Memory.Used
}

// addCheck adds the last health check's sample, which lists leaked memory. Other memory may belong to an unknown job.
func (h *layout) addCheck() {
	c := h.ask.Check
	if c == nil || c.Stopped {
		return
	}
	for _, reading := range c.Snapshot.Readings {
		id, used := reading.Device.ID, usedOf(reading)
		leaked := c.Leaked[id]
		if leaked > 0 || !h.busy(id, c.Wall) && used.Known() && used.Bytes <= record.MaxBaseline {
			h.looks[id] = append(h.looks[id], look{c.Wall, c.Epoch, "the health check", leaked > 0, gpu.Bytes(leaked)})
		}
	}
}

// Held is memory that belongs to no running recorded job, from the sample that found it to the next conclusive one.
type Held struct {
	From, To   float64
	Start, End time.Time
	Bytes      gpu.Figure // in the first sample
	Share      float64    // fraction of the GPU's memory, at least the smallest visible one
	// Fate is what outcome of it: stayed (in both samples), gone, or unseen (no later sample is conclusive).
	Fate string
	By   string // which hook took the first sample
}

func (h *layout) held(c GPU) (all []Held) {
	list := h.looks[c.Device.ID]
	for i, l := range list {
		if !l.left {
			continue
		}
		k := Held{Start: l.at, End: later(l.at, h.ask.Now), Bytes: l.bytes, Fate: "unseen", By: l.by,
			Share: max(share(l.bytes, c.Total), 3*least)}
		if i+1 < len(list) {
			next := list[i+1]
			k.End, k.Fate = next.at, "gone"
			if next.left && !l.epoch.Changed(next.epoch) {
				k.Fate = "stayed"
			}
		}
		k.From, k.To = h.at(k.Start), h.at(k.End)
		switch n := len(all); {
		case !h.shows(k.Start, k.End):
		case n > 0 && k.To-all[n-1].From < cell: // too short to be drawn separately
			all[n-1].To, all[n-1].End, all[n-1].Fate = k.To, k.End, k.Fate
		default:
			all = append(all, k)
		}
	}
	return all
}
