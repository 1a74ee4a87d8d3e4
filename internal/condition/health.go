// Package condition judges a GPU's condition by one table of what the driver and the kernel log report, what it means
// and what NVIDIA's guidance makes of it.
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
	// Kernel is the kernel log since the job began; nil if it was not read.
	Kernel *gpu.KernelLog
	// KernelDoubt makes that log's entries uncertain: the driver was reloaded since, which may have cured the GPU.
	KernelDoubt string
	// Blind is set if the driver reported no GPU's condition: whether a GPU recovered is then unknown.
	Blind bool
	// Doubt makes every finding uncertain (the hook sees only part of the node).
	Doubt string
}

// Judge returns what is wrong, GPU by GPU: first what the driver reports, then the kernel log. What could not be read
// is no finding; the recorded facts have it. Overwritten log entries are one, as an Xid may have been among them.
func Judge(in Input) []record.Finding {
	var out []record.Finding
	told := map[gpu.BusID]bool{}
	for _, c := range slices.Concat(in.Cards, in.Unseen) {
		now := in.of(c)
		found := in.facts(now)
		if bus := c.Device.BusID; in.Kernel != nil && bus != "" && !told[bus] {
			told[bus] = true // MIG instances of one GPU share its lines
			found = append(found, in.xids(c, now)...)
		}
		for _, f := range found {
			out = append(out, in.about(c, f))
		}
	}
	if in.Kernel != nil && in.Kernel.Lost && len(in.Cards)+len(in.Unseen) > 0 {
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

func (in Input) about(c record.Assigned, f record.Finding) record.Finding {
	index := c.Index
	f.GPU, f.Index = c.Device.ID, &index
	if c.Device.Parent != "" {
		f.Doubts = append(f.Doubts, instance)
	}
	if in.Doubt != "" {
		f.Doubts = append(f.Doubts, in.Doubt)
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
		for _, r := range factRows {
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
	f := record.Finding{Code: c, Observed: observed, Expected: expected[c]}
	if doubt != "" {
		f.Doubts = []string{doubt}
	}
	return f
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
	return r.Meaning + strconv.FormatUint(n, 10), ""
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
	return r.Meaning + strings.Join(reasons, ", "), ""
}

func known(h gpu.Health, c gpu.FactCode) string {
	if f, ok := h.Fact(c); ok && f.Unknown == "" {
		return f.Value
	}
	return ""
}

// Compares reports whether Judge needs Input.Before: only if a counter is not 0.
func Compares(now []gpu.Health) bool {
	return slices.ContainsFunc(now, func(h gpu.Health) bool {
		return slices.ContainsFunc(factRows, func(r Row) bool {
			return r.counter && !slices.Contains([]string{"", "0"}, known(h, r.Fact))
		})
	})
}

// Disputed reports whether a finding's own row of the table has a doubt: a program may have caused what was seen, not a
// fault of the GPU. Other doubts, as of a fault mended since, do not count.
func Disputed(f record.Finding) bool {
	has := func(c catalog.Code, doubt string) bool {
		return c == f.Code && doubt != "" && slices.Contains(f.Doubts, doubt)
	}
	return slices.ContainsFunc(factRows, func(r Row) bool { return has(r.Code, r.Doubt) }) ||
		slices.ContainsFunc(catalog.DriverErrors(), func(e catalog.DriverError) bool { return has(e.Code, e.Doubt) })
}

// xids judges the kernel log's lines about one GPU: all lines with one number are one finding.
func (in Input) xids(c record.Assigned, now gpu.Health) []record.Finding {
	var out []record.Finding
	told := map[int]bool{}
	for _, x := range in.Kernel.Xids {
		if x.BusID != c.Device.BusID || told[x.Code] {
			continue
		}
		told[x.Code] = true
		other := func(y gpu.Xid) bool { return y.BusID != x.BusID || y.Code != x.Code }
		out = append(out, in.xid(c, now, slices.DeleteFunc(slices.Clone(in.Kernel.Xids), other)))
	}
	return out
}

func (in Input) xid(c record.Assigned, now gpu.Health, alike []gpu.Xid) record.Finding {
	r, _ := catalog.LookupXid(alike[0].Code)
	f := finding(r.Code, describe(r.Meaning, alike), r.Doubt)
	f.Xid = alike[0].Code
	if in.KernelDoubt != "" {
		f.Doubts = append(f.Doubts, in.KernelDoubt)
	}
	if f.Code == catalog.XidFatal && known(now, gpu.RecoveryAction) == "none" {
		f.Doubts = append(f.Doubts, "the driver itself asks for no recovery of the GPU")
	}
	if f.Code == catalog.XidFatal && alike[0].Code != fallenOffTheBus && in.Blind {
		f.Doubts = append(f.Doubts, "the driver did not say whether the GPU recovered")
	}
	if c.Device.Parent != "" && !slices.ContainsFunc(alike, func(x gpu.Xid) bool { return x.Instance == "" }) {
		f.Unknown = fmt.Sprintf("Xid %d (%s) in the kernel log is of MIG %s: whether that is this job's cannot be told",
			alike[0].Code, r.Meaning, strings.Join(instances(alike), ", "))
	}
	return f
}

// fallenOffTheBus is the Xid after which no driver reports anything about the GPU any more.
const fallenOffTheBus = 79

const mostText = 120 // bytes

// describe returns number, meaning, count and times by the log's clock, MIG instances, and the last line's text.
func describe(meaning string, alike []gpu.Xid) string {
	first, last := alike[0], alike[len(alike)-1]
	written := 0 // lines, kept or not
	for _, x := range alike {
		written += 1 + x.More
	}
	s := fmt.Sprintf("%s (%s)", gpu.Error(first.Code), meaning)
	if written == 1 {
		s += fmt.Sprintf(" at %.6f s of the kernel log", first.At.Seconds())
	} else {
		s += fmt.Sprintf(", %d times from %.6f to %.6f s of the kernel log", written, first.At.Seconds(),
			last.At.Seconds())
	}
	for _, more := range instances(alike) {
		s += ", " + more
	}
	if last.PID != 0 {
		s += fmt.Sprintf(", PID %d", last.PID)
	}
	if last.Text != "" {
		s += ": " + last.Text[:min(len(last.Text), mostText)]
	}
	return s
}

func instances(alike []gpu.Xid) (out []string) {
	for _, x := range alike {
		if x.Instance != "" && !slices.Contains(out, x.Instance) {
			out = append(out, x.Instance)
		}
	}
	return out
}
