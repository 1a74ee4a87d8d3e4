package wire

import "bookend/internal/gpu"

// The raw types tell a reading's figure that was left out from a 0, and a process list that was left out (or is null)
// from an empty one. They shadow fields of the values they embed.

const leftOut = "not reported by the backend"

type rawReply struct {
	Reply
	Snapshot *struct {
		gpu.Snapshot
		Readings []rawReading `json:"readings"`
	} `json:"snapshot"`
}

type rawReading struct {
	gpu.Reading
	Memory struct {
		gpu.Memory
		Total    rawFigure `json:"total"`
		Reserved rawFigure `json:"reserved"`
		Used     rawFigure `json:"used"`
		Free     rawFigure `json:"free"`
	} `json:"memory"`
	Processes *[]struct {
		gpu.Process
		Memory rawFigure `json:"memory"`
	} `json:"processes"`
}

type rawFigure struct {
	Bytes   *uint64 `json:"bytes"`
	Unknown string  `json:"unknown"`
}

func (r rawReply) reply() Reply {
	reply := r.Reply
	if r.Snapshot != nil {
		s := r.Snapshot.Snapshot
		for _, reading := range r.Snapshot.Readings {
			s.Readings = append(s.Readings, reading.reading())
		}
		reply.Snapshot = &s
	}
	return reply
}

func (r rawReading) reading() gpu.Reading {
	reading, m := r.Reading, r.Memory
	reading.Memory = m.Memory
	reading.Memory.Total, reading.Memory.Reserved = m.Total.figure(), m.Reserved.figure()
	reading.Memory.Used, reading.Memory.Free = m.Used.figure(), m.Free.figure()
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
