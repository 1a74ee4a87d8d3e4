package wire

import (
	"cmp"

	"bookend/internal/gpu"
)

const leftOut = "not reported by the backend"

// shape tells a reading's figure that was left out from a 0, and a process list that was left out (or is null) from an
// empty one.
type shape struct {
	Snapshot *struct {
		Readings []struct {
			Memory struct {
				Total    figure `json:"total"`
				Reserved figure `json:"reserved"`
				Used     figure `json:"used"`
				Free     figure `json:"free"`
			} `json:"memory"`
			Processes *[]struct {
				Memory figure `json:"memory"`
			} `json:"processes"`
		} `json:"readings"`
	} `json:"snapshot"`
}

type figure struct {
	Bytes   *uint64 `json:"bytes"`
	Unknown string  `json:"unknown"`
}

// mark makes a figure with a reason unknown, whatever number stands beside it, and one that was left out.
func (f figure) mark(of *gpu.Figure) {
	if f.Unknown != "" {
		*of = gpu.Unknown(f.Unknown)
	} else if f.Bytes == nil {
		*of = gpu.Unknown(leftOut)
	}
}

// mark says of each reading what was left out.
func (s shape) mark(snapshot *gpu.Snapshot) {
	if s.Snapshot == nil || snapshot == nil {
		return
	}
	for i, told := range s.Snapshot.Readings {
		r := &snapshot.Readings[i]
		told.Memory.Total.mark(&r.Memory.Total)
		told.Memory.Reserved.mark(&r.Memory.Reserved)
		told.Memory.Used.mark(&r.Memory.Used)
		told.Memory.Free.mark(&r.Memory.Free)
		if told.Processes == nil {
			r.ProcessesUnknown = cmp.Or(r.ProcessesUnknown, leftOut)
			continue
		}
		for j, p := range *told.Processes {
			p.Memory.mark(&r.Processes[j].Memory)
		}
	}
}
