package condition

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/record"
)

func DescribeBaseline(b record.Baseline, now gpu.Epoch, booted time.Time) string {
	how, when := "learned", " before the last driver reload or reboot: no longer counts"
	if b.Accepted {
		how = "accepted"
	} else if b.Holder != "" {
		how = "held by " + b.Holder + ", learned"
	}
	if b.Epoch.Same(now) {
		when = " " + booted.Add(b.At).Local().Format(time.DateTime)
	}
	text := fmt.Sprintf("%s  %s without a process, %s%s\n", b.GPU, gpu.Size(b.Bytes), how, when)
	for _, r := range b.Residents {
		text += fmt.Sprintf("  PID %d (%s), %s\n", r.PID, r.Service, gpu.Size(r.Bytes))
	}
	return text
}

// Holding returns the name of a running job that has a GPU, a part of it, or the GPU that it is a part of.
func Holding(runs []record.Run, d gpu.Device, epoch gpu.Epoch) string {
	related := func(a record.Assigned) bool { return a.Device.ID == d.Parent || a.Device.Parent == d.ID }
	for _, run := range runs {
		if run.Running(runs) && !run.Epoch.OtherBoot(epoch) &&
			(run.Given(d.ID) || slices.ContainsFunc(run.Devices, related)) {
			return run.JobName()
		}
	}
	return ""
}

// SettledBaseline is AcceptableBaseline for a GPU that was sampled twice. unread and busy are why it cannot be judged.
func SettledBaseline(first, second gpu.Reading, who map[int]record.Process, l record.Limits, unread error, busy string,
) (record.Baseline, error) {
	b, err := AcceptableBaseline(second, who, l)
	switch {
	case unread != nil:
		err = unread
	case busy != "":
		err = errors.New(busy)
	case second.Memory.Used != first.Memory.Used:
		err = errors.New("it is still changing")
	}
	return b, err
}

// AcceptableBaseline returns the baseline for a GPU with no more on it than allowed, apart from services of the node.
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
