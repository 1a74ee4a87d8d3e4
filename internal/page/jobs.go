package page

import (
	"math"
	"slices"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/ledger"
)

// Block is one job on a card, or several that are too short to be told apart.
type Block struct {
	From, To float64
	Row      int // of Rows: jobs that had the card at one time stand on top of each other
	Rows     int // of the whole lane
	// Y and Tall are the block's place and height in the lane, UseY and Used those of the memory in use.
	Y, Tall, UseY, Used float64

	Jobs       int
	Job        string // its name; of several none
	User       string // raw
	Start, End time.Time
	// Running: it has not ended. NoStart and NoEnd: that end is not on record, and Start or End only bounds it.
	Running, NoStart, NoEnd bool
	// Most is the most memory seen in use meanwhile, a lower bound.
	Most gpu.Figure
	run  *ledger.Run
}

const (
	// mostRows is how many jobs that share a card are drawn apart.
	mostRows = 4
	// cell is the part of a lane below which what lies beside each other is drawn as one: about a pixel.
	cell = 1.0 / 1000
	// rowTall leaves a line between rows; least is what is known to be more than nothing, and so is visible.
	rowTall, least = 0.96, 0.05
)

// readJobs finds the jobs of each card in the order in which they came.
func (h *history) readJobs() {
	for i := range h.runs {
		k, ok := h.block(&h.runs[i])
		for _, d := range h.runs[i].Devices {
			if ok && d.Device.ID != "" {
				h.jobs[d.Device.ID] = append(h.jobs[d.Device.ID], h.used(k, d.Device.ID))
			}
		}
	}
	for _, list := range h.jobs {
		slices.SortStableFunc(list, func(a, b Block) int { return a.Start.Compare(b.Start) })
	}
}

// block is a run's time on its cards, and whether any is known.
func (h *history) block(r *ledger.Run) (k Block, ok bool) {
	if len(r.Both()) == 0 {
		return k, false
	}
	k = Block{run: r, Jobs: 1, Job: r.JobName(), User: r.Job.User, Most: gpu.Unknown("not sampled"),
		Start: r.First().Wall, End: h.ask.Now, NoStart: r.Start == nil}
	switch next := r.Superseded(h.runs); {
	case r.Epilog() != nil:
		k.End = r.Epilog().Wall
	case r.Closed(): // by a health check, which came later
		k.NoEnd, k.End = true, r.Ends[0].Wall
	case next != nil:
		k.NoEnd, k.End = true, next.First().Wall
	default:
		k.Running = true
	}
	if begun := r.Job.Start; k.NoStart && !begun.IsZero() && begun.Before(k.Start) {
		k.Start = begun // Slurm's word: nobody looked then
	}
	k.Start, k.End = k.Start.In(h.ask.Zone), later(k.End, k.Start).In(h.ask.Zone) // a clock may have been set back
	return k, true
}

// used notes the most memory of one card that health checks saw in use during a job, or that the driver accounted for.
func (h *history) used(k Block, id gpu.ID) Block {
	ended := time.Duration(math.MaxInt64)
	if k.run.Closed() {
		ended = k.run.Ends[0].At
	}
	for _, seen := range h.ask.Sighted.During(*k.run, k.run.First().At, ended) {
		if seen.Device == id {
			k.use(seen.Bytes)
		}
	}
	for _, e := range k.run.Ends {
		for _, a := range e.Health {
			for _, p := range a.Accounting.Processes {
				if a.Device == id && !p.Began.Before(k.Start) && !p.Began.After(k.End) {
					k.use(p.Peak)
				}
			}
		}
	}
	return k
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

// blocks are the jobs of a card in the time shown. Each gets the first row that is free when it begins, the last where
// none is.
func (h *history) blocks(c Card) (blocks []Block) {
	var free [mostRows]time.Time
	last := [mostRows]int{-1, -1, -1, -1}
	rows := 1
	for _, k := range h.jobs[c.ID] {
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

// join adds a job to a block that is too short to show it apart.
func (k *Block) join(o Block) {
	k.Jobs, k.Job, k.User = k.Jobs+1, "", ""
	k.To, k.End = max(k.To, o.To), later(k.End, o.End)
	k.Running, k.NoStart, k.NoEnd = k.Running || o.Running, k.NoStart && o.NoStart, k.NoEnd || o.NoEnd
	k.use(o.Most)
}
