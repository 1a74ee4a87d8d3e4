package settle

import "bookend/internal/gpu"

// Stayed lists the processes that every one of these looks shows on a device, each with the smallest of its own figures,
// where the looks are enough to call something flat. What the total does meanwhile does not matter: something else on the
// GPU may move for ever. A PID names one process only with its start time, which the caller has to compare.
func Stayed(rule gpu.WatchRule, d gpu.Device, looks []gpu.Snapshot) []gpu.Process {
	var stayed []gpu.Process
	for i, r := range Readings(rule, d, looks) {
		if r.ProcessesUnknown != "" {
			return nil
		}
		if i == 0 {
			stayed = append(stayed, r.Processes...)
			continue
		}
		stayed = lesser(stayed, r.Processes)
	}
	return stayed
}

// Readings are what each of these looks read of a device; none where one of them did not, or where they are too few or too
// far apart for what they have in common to be called lasting.
func Readings(rule gpu.WatchRule, d gpu.Device, looks []gpu.Snapshot) (all []gpu.Reading) {
	if !observed(rule.Flat, looks) {
		return nil
	}
	for _, s := range looks {
		l := lookAt(s, d)
		if l.missing != "" {
			return nil
		}
		all = append(all, l.reading)
	}
	return all
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
