// Package condition judges a GPU's condition by one table of what driver and kernel log report and what it means.
package condition

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
)

// Input is what is known of a job's GPUs at its end, or of a node's GPUs in a health check.
type Input struct {
	Cards []record.Assigned
	Now   []gpu.Health
	// Before is the last recorded health of each GPU, in this epoch; a GPU without one is not in it.
	Before map[gpu.ID]gpu.Health
	// Unseen are GPUs of the job, by its start, that could not be read now: only the kernel log reports on them.
	Unseen []record.Assigned
	Kernel *gpu.KernelLog // the kernel log since the job began; nil if it was not read
	// KernelDoubt makes that log's entries uncertain: the driver was reloaded since, which may have cured the GPU.
	KernelDoubt string
	// Standing are fatal errors from before the job or, for a health check, on record since an earlier hook or check.
	// All are of the driver's present epoch.
	Standing []record.StandingFault
	Doubt    string // Doubt makes every finding uncertain (the hook sees only part of the node)
}

// Judge returns what is wrong, GPU by GPU: first what the driver reports, then the kernel log. What could not be read
// is no finding; the recorded facts have it. Overwritten log entries are one, as an Xid may have been among them.
func Judge(in Input) []record.Finding {
	var out []record.Finding
	taken := map[gpu.BusID]bool{}
	for _, c := range slices.Concat(in.Cards, in.Unseen) {
		now := in.of(c)
		found := in.facts(now)
		if bus := c.Device.BusID; bus != "" && !taken[bus] {
			taken[bus] = true // MIG instances of one GPU share its lines
			if in.Kernel != nil {
				found = append(found, in.xids(c, now)...)
			}
			found = append(found, in.earlier(c, now, found)...)
		}
		for _, f := range found {
			out = append(out, in.on(c, f))
		}
	}
	if in.Kernel == nil || len(in.Cards)+len(in.Unseen) == 0 {
		return out
	}
	out = append(out, in.unnamed()...)
	if in.Kernel.Lost {
		out = append(out, record.Unsure(catalog.Untraced,
			"part of the kernel's log was overwritten before it was read: an Xid may be missing"))
	}
	return out
}

func (in Input) of(c record.Assigned) gpu.Health {
	for _, id := range []gpu.ID{c.Device.ID, c.Device.Parent} {
		for _, h := range in.Now {
			if id != "" && h.Device == id {
				return h
			}
		}
	}
	return gpu.Health{}
}

const instance = "it is a part of a GPU (MIG or partition): what its driver reports of one was never measured"

func (in Input) on(c record.Assigned, f record.Finding) record.Finding {
	index := c.Index
	f.GPU, f.Index = c.Device.ID, &index
	if c.Device.Parent != "" {
		f.Doubts = append(f.Doubts, instance)
	}
	return withDoubts(f, in.Doubt)
}

func withDoubts(f record.Finding, doubts ...string) record.Finding {
	for _, doubt := range doubts {
		if doubt != "" {
			f.Doubts = append(f.Doubts, doubt)
		}
	}
	return f
}

func (in Input) facts(now gpu.Health) []record.Finding {
	var out []record.Finding
	for _, fact := range now.Facts {
		if fact.Unknown != "" || fact.Value == "" {
			continue
		}
		last, _ := in.Before[now.Device].Fact(fact.Code)
		for _, r := range factRows() {
			if r.Fact != fact.Code {
				continue
			}
			if observed, unknown := r.judge(r, fact.Value, last); observed != "" {
				f := finding(r.Code, observed, r.Doubt)
				f.Unknown = unknown
				out = append(out, f)
				break
			}
		}
	}
	return out
}

func finding(c catalog.Code, observed, doubt string) record.Finding {
	return withDoubts(record.Finding{Code: c, Observed: observed, Expected: expected[c]}, doubt)
}

// judge applies a row to a value: it returns what was observed, empty if it does not fit, and why it is unknown.
type judge func(r Row, value string, last gpu.Fact) (observed, unknown string)

func equal(r Row, value string, _ gpu.Fact) (observed, unknown string) {
	if value != r.Value {
		return "", ""
	}
	return r.Meaning, ""
}

// another fits any number: known words have rows before this one.
func another(r Row, value string, _ gpu.Fact) (observed, unknown string) {
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil || n == 0 {
		return "", ""
	}
	return fmt.Sprintf("%s %d", r.Meaning, n), ""
}

func underWay(r Row, value string, last gpu.Fact) (observed, unknown string) {
	observed, _ = equal(r, value, last)
	return observed, observed
}

// counted compares a counter, 0 when the driver loads, with the last count. If that is doubtful, so is the result.
func counted(r Row, value string, last gpu.Fact) (observed, unknown string) {
	now, err := strconv.ParseUint(value, 10, 64)
	if err != nil || now == 0 {
		return "", ""
	}
	before, err := strconv.ParseUint(last.Value, 10, 64)
	switch {
	case err == nil && before == now:
		return "", ""
	case err == nil && before < now:
		observed = fmt.Sprintf("%d %s more than in the last sample (%d then, %d now)", now-before, r.Meaning, before,
			now)
		if last.Unknown != "" {
			unknown = observed + ": " + last.Unknown
		}
		return observed, unknown
	}
	observed = fmt.Sprintf("%d %s since the driver was loaded", now, r.Meaning)
	return observed, observed + ": there is no earlier count to say whether this job met them"
}

// slowed picks the reasons that show a fault of the machine: a power limit is normal operation of a GPU.
func slowed(r Row, value string, _ gpu.Fact) (observed, unknown string) {
	reasons := slices.DeleteFunc(strings.Split(value, "+"), func(reason string) bool {
		return !strings.Contains(reason, "thermal") && !strings.Contains(reason, "brake") &&
			!strings.Contains(reason, "slowdown")
	})
	if len(reasons) == 0 {
		return "", ""
	}
	return r.Meaning + ": " + strings.Join(reasons, ", "), ""
}

func known(h gpu.Health, c gpu.FactCode) string {
	if f, ok := h.Fact(c); ok && f.Unknown == "" {
		return f.Value
	}
	return ""
}

// Compares reports whether Judge needs Input.Before: only if the counter of memory errors is not 0.
func Compares(now []gpu.Health) bool {
	return slices.ContainsFunc(now, func(h gpu.Health) bool {
		return !slices.Contains([]string{"", "0"}, known(h, gpu.ECCUncorrected))
	})
}

// Disputed reports whether a finding's own row of the table has a doubt: a program may have caused what was seen, not a
// fault of the GPU. Other doubts, as of a fault mended since, do not count.
func Disputed(f record.Finding) bool {
	has := func(c catalog.Code, doubt string) bool {
		return c == f.Code && doubt != "" && slices.Contains(f.Doubts, doubt)
	}
	return slices.ContainsFunc(factRows(), func(r Row) bool { return has(r.Code, r.Doubt) }) ||
		slices.ContainsFunc(catalog.DriverErrors(), func(e catalog.DriverError) bool { return has(e.Code, e.Doubt) })
}
