package condition

import (
	"errors"
	"fmt"

	"bookend/internal/gpu"
	"bookend/internal/record"
)

// AcceptableBaseline returns the baseline for a GPU on which there is no more than allowed, apart from services of the
// node.
func AcceptableBaseline(r gpu.Reading, who map[int]record.Process, limits record.Limits) (record.Baseline, error) {
	b := record.Baseline{GPU: r.Device.ID, Accepted: true, Holder: "accepted"}
	if r.ProcessesUnknown != "" {
		return b, fmt.Errorf("its processes are unknown: %.200q", r.ProcessesUnknown)
	}
	for _, p := range r.Processes {
		facts := who[p.PID]
		if facts.Gone || facts.Why != "" || !facts.OfSystem() || facts.EnvJobID != 0 || !p.Memory.Known() ||
			p.Memory.Bytes > record.MaxBaseline {
			return b, fmt.Errorf("process %d (%.48q) is on it, and is no small service of the node: end it first",
				p.PID, facts.Name)
		}
		b.Residents = append(b.Residents, record.Resident{
			PID: p.PID, Start: facts.Start, Bytes: p.Memory.Bytes, Service: facts.Service,
		})
	}
	rest := record.Unexplained(r, limits, record.Baseline{})
	switch {
	case !rest.Known():
		return b, fmt.Errorf("how much that is is unknown: %.200q", rest.Unknown)
	case rest.Bytes == 0:
		return b, errors.New("there is nothing: all memory in use is explained")
	case rest.Bytes > record.MaxBaseline:
		return b, fmt.Errorf("%s are more than the %d MiB that a GPU may carry: somebody holds them. Look who has "+
			"the driver open (fuser -v /dev/nvidia*) and end it; if the memory stays, reset the GPU or reboot the "+
			"node", gpu.Size(rest.Bytes), record.MaxBaseline>>20)
	}
	b.Bytes = rest.Bytes
	return b, nil
}
