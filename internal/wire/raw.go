package wire

import "bookend/internal/gpu"

// The raw types tell a figure that was left out from a 0, and a process list that was left out (or is null)
// from an empty one. They shadow fields of the values they embed.

const leftOut = "not reported by the backend"

type rawReply struct {
	Reply
	Snapshot *rawSnapshot `json:"snapshot"`
	Health   []rawHealth  `json:"health"`
	Probe    *rawProbe    `json:"probe"`
}

type rawHealth struct {
	gpu.Health
	Accounting struct {
		gpu.Accounting
		Processes []struct {
			gpu.Accounted
			Peak rawFigure `json:"peak"`
		} `json:"processes"`
	} `json:"accounting"`
}

type rawProbe struct {
	gpu.Probe
	Free    rawFigure `json:"free"`
	Largest rawFigure `json:"largest"`
}

type rawSnapshot struct {
	gpu.Snapshot
	Readings []rawReading `json:"readings"`
}

type rawReading struct {
	gpu.Reading
	Memory    rawMemory     `json:"memory"`
	Processes *[]rawProcess `json:"processes"`
}

type rawMemory struct {
	gpu.Memory
	Total    rawFigure `json:"total"`
	Reserved rawFigure `json:"reserved"`
	Used     rawFigure `json:"used"`
	Free     rawFigure `json:"free"`
}

type rawProcess struct {
	gpu.Process
	Memory rawFigure `json:"memory"`
}

type rawFigure struct {
	Bytes   *uint64 `json:"bytes"`
	Unknown string  `json:"unknown"`
}

func (r rawReply) reply() Reply {
	reply := r.Reply
	if r.Snapshot != nil {
		s := r.Snapshot.snapshot()
		reply.Snapshot = &s
	}
	for _, h := range r.Health {
		reply.Health = append(reply.Health, h.health())
	}
	if r.Probe != nil {
		p := r.Probe.Probe
		p.Free, p.Largest = r.Probe.Free.figure(), r.Probe.Largest.figure()
		reply.Probe = &p
	}
	return reply
}

func (r rawHealth) health() gpu.Health {
	h := r.Health
	h.Accounting = r.Accounting.Accounting
	for _, raw := range r.Accounting.Processes {
		p := raw.Accounted
		p.Peak = raw.Peak.figure()
		h.Accounting.Processes = append(h.Accounting.Processes, p)
	}
	return h
}

func (r rawSnapshot) snapshot() gpu.Snapshot {
	s := r.Snapshot
	for _, reading := range r.Readings {
		s.Readings = append(s.Readings, reading.reading())
	}
	return s
}

func (r rawReading) reading() gpu.Reading {
	reading := r.Reading
	reading.Memory = r.Memory.memory()
	if r.Processes == nil {
		if reading.ProcessesUnknown == "" {
			reading.ProcessesUnknown = leftOut
		}
		return reading
	}
	reading.Processes = make([]gpu.Process, 0, len(*r.Processes)) // an empty list stays one, also when sent on
	for _, p := range *r.Processes {
		process := p.Process
		process.Memory = p.Memory.figure()
		reading.Processes = append(reading.Processes, process)
	}
	return reading
}

func (r rawMemory) memory() gpu.Memory {
	m := r.Memory
	m.Total, m.Reserved, m.Used, m.Free = r.Total.figure(), r.Reserved.figure(), r.Used.figure(), r.Free.figure()
	return m
}

// figure makes a figure with a reason unknown, whatever number stands beside it.
func (r rawFigure) figure() gpu.Figure {
	switch {
	case r.Unknown != "":
		return gpu.Unknown(r.Unknown)
	case r.Bytes == nil:
		return gpu.Unknown(leftOut)
	}
	return gpu.Bytes(*r.Bytes)
}
