package settle

import "bookend/internal/gpu"

// Stayed lists the processes that every one of these looks shows on a device, each with the smallest of its own figures,
// where the looks are enough to call something flat. What the total does meanwhile does not matter: something else on the
// GPU may move for ever. A PID names one process only with its start time, which the caller has to compare.
func Stayed(rule gpu.WatchRule, d gpu.Device, looks []gpu.Snapshot) []gpu.Process {
	if !observed(rule.Flat, looks) {
		return nil
	}
	var stayed []gpu.Process
	for i, s := range looks {
		l := lookAt(s, d)
		if l.missing != "" || l.reading.ProcessesUnknown != "" {
			return nil
		}
		if i == 0 {
			stayed = append(stayed, l.reading.Processes...)
			continue
		}
		stayed = lesser(stayed, l.reading.Processes)
	}
	return stayed
}

// lesser keeps the processes that are in both lists. A figure that either could not read is unknown.
func lesser(a, b []gpu.Process) (both []gpu.Process) {
	for _, p := range a {
		for _, q := range b {
			if q.PID != p.PID {
				continue
			}
			if p.Memory.Known() && (!q.Memory.Known() || q.Memory.Bytes < p.Memory.Bytes) {
				p.Memory = q.Memory
			}
			both = append(both, p)
			break
		}
	}
	return both
}
