package condition

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
)

// sameFault is the time after a finding within which another finding on the GPU belongs to the same fault. A fault of
// the hardware shows up in several places, and hooks may find it one after the other.
const sameFault = 10 * time.Minute

// StruckBy returns the GPUs with faults that the records prove within the time before now, by Slurm's index; with so
// many faults one is a repeat offender. Only what has neither doubts nor an unknown part counts, and no error that a
// program can cause. A GPU is left out if, by the driver or else the newest record, another is at its bus id by now.
func StruckBy(runs []record.Run, driver gpu.Snapshot, faults int, within time.Duration, now time.Time,
) []record.Struck {
	present := map[gpu.BusID]record.Assigned{}
	runs = record.Newest(runs)
	for _, r := range slices.Backward(runs) {
		for _, c := range r.Devices {
			if c.Device.ID != "" && c.Device.BusID != "" && c.Device.Parent == "" {
				present[c.Device.BusID] = c
			}
		}
	}
	for _, r := range driver.Readings {
		if r.Device.ID != present[r.Device.BusID].Device.ID {
			delete(present, r.Device.BusID)
		}
	}
	all := []record.Struck{}
	for _, c := range present {
		s := record.Struck{Device: c.Device, Faults: strikes(runs, c.Device), Hours: int(within.Hours())}
		if c.Index >= 0 {
			s.Index = &c.Index
		}
		s.Faults = slices.DeleteFunc(s.Faults, func(one record.Strike) bool { return now.Sub(one.At) > within })
		s.Repeats = len(s.Faults) >= faults
		if len(s.Faults) > 0 {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b record.Struck) int {
		return cmp.Or(cmp.Compare(len(a.Name()), len(b.Name())), cmp.Compare(a.Name(), b.Name()))
	})
	return all
}

func strikes(runs []record.Run, d gpu.Device) (all []record.Strike) {
	counted, boots, last := map[string]bool{}, record.BootsOf(runs), time.Time{}
	for _, r := range slices.Backward(runs) {
		for _, e := range r.AllEnds() {
			at := boots.Time(r, *e)
			for _, f := range e.Findings {
				before := len(counted)
				for _, key := range keysOf(f, *e, r.EpochOf(*e).Boot, d) {
					counted[key] = true
				}
				if len(counted) == before {
					continue
				}
				if len(all) == 0 || at.Sub(last) > sameFault {
					all = append(all, record.Strike{At: at, Job: r.Job.ID})
				}
				last = at
				one := &all[len(all)-1]
				if !slices.Contains(one.Codes, f.Code) {
					one.Codes = append(one.Codes, f.Code)
				}
				if f.Xid != 0 && !slices.Contains(one.Xids, f.Xid) {
					one.Xids = append(one.Xids, f.Xid)
				}
			}
		}
	}
	return all
}

// isElsewhere reports whether another GPU has the same at the same time: then the cause may be what both depend on.
func isElsewhere(e record.End, f record.Finding) bool {
	return slices.ContainsFunc(e.Findings, func(g record.Finding) bool {
		return g.GPU != "" && g.GPU != f.GPU && g.Code == f.Code && g.Xid == f.Xid
	})
}

// keysOf identify what a finding is about, so that what several hooks find is counted once: a fault that stands until a
// reset once a boot, and an Xid by its lines in the kernel log. There are none if it does not speak against the GPU.
func keysOf(f record.Finding, e record.End, boot string, d gpu.Device) []string {
	if f.GPU != d.ID || f.Unknown != "" || len(f.Doubts) > 0 || isElsewhere(e, f) {
		return nil
	}
	switch f.Code {
	case catalog.RemapFailed: // stands until the GPU is replaced
		return []string{string(f.Code)}
	case catalog.Lost, catalog.Recovery, catalog.RemapPending, catalog.Pages, catalog.ECC:
		return []string{boot + string(f.Code)}
	}
	x, _ := catalog.LookupXid(f.Xid)
	if f.Code != catalog.Xid && f.Code != catalog.XidFatal || !x.OfGPU() {
		return nil
	}
	keys := []string{fmt.Sprintf("%s xid %d", boot, f.Xid)}
	if e.Kernel != nil {
		for _, line := range e.Kernel.Xids {
			if line.Code == f.Xid && line.BusID == d.BusID {
				keys = append(keys, fmt.Sprintf("%s at %d", keys[0], line.Seq))
			}
		}
	}
	return keys
}
