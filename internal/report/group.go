package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/safetext"
)

// group is findings of which a text says the same, apart from processes and GPUs: n workers of one name are one line.
type group struct {
	finding record.Finding // the first, with the memory of all
	pids    []int
	gpus    []string // Slurm's indexes, of the job's GPUs
}

// grouped groups findings by key, in order of the first of each; a finding with an empty key stays alone.
func (s Scene) grouped(all []record.Finding, key func(record.Finding) string) (groups []*group) {
	known := map[string]*group{}
	for _, f := range all {
		k := key(f)
		g := known[k]
		if g == nil || k == "" {
			g = &group{finding: f}
			known[k], groups = g, append(groups, g)
		} else {
			bytes := &g.finding.Bytes
			bytes.Bytes, bytes.Unknown = bytes.Bytes+f.Bytes.Bytes, cmp.Or(bytes.Unknown, f.Bytes.Unknown)
		}
		if f.Holder != nil && !slices.Contains(g.pids, f.Holder.PID) {
			g.pids = append(g.pids, f.Holder.PID)
		}
		if n := fmt.Sprint(numberOf(s, f.GPU)); n != "-1" && !slices.Contains(g.gpus, n) {
			g.gpus = append(g.gpus, n)
		}
	}
	return groups
}

// groups groups a report's findings about memory by what their text says without PID, GPU and amount.
func (s Scene) groups(all []record.Finding, at moment) []*group {
	return s.grouped(all, func(f record.Finding) string {
		if !aboutMemory(f) || f.Code == catalog.Trespass {
			return ""
		}
		known := f.Bytes.Known()
		f.GPU, f.Bytes = "", gpu.Figure{}
		if f.Holder != nil {
			h := *f.Holder
			h.PID, f.Holder = 0, &h
		}
		return fmt.Sprint(known, s.problem(group{finding: f}, at))
	})
}

// of returns the words for the group's one process, or those for several.
func (g group) of(one, several string) string {
	if len(g.pids) <= 1 {
		return one
	}
	return several
}

// name names the group's processes, which are all of one name.
func (g group) name() string {
	const width, most = 32, 4 // of the name in bytes, and PIDs
	name := safetext.Clean(g.finding.Holder.Name, width)
	one := fmt.Sprintf("process %d (%s)", g.finding.Holder.PID, name)
	list := strings.Join(strings.Fields(fmt.Sprint(g.pids[:min(len(g.pids), most)])), ", ")
	if list = strings.Trim(list, "[]"); len(g.pids) > most {
		list += ", ..."
	}
	return g.of(one, fmt.Sprintf("%d processes (%s: %s)", len(g.pids), name, list))
}

// place names the group's GPUs, or what follows if they are none of the job's.
func (g group) place(otherwise string) string {
	switch len(g.gpus) {
	case 0:
		return otherwise
	case 1:
		return "GPU " + g.gpus[0]
	}
	return "GPUs " + strings.Join(g.gpus, ",")
}
