package catalog

import (
	_ "embed"
	"slices"
	"strings"
)

//go:embed findings.txt
var textTable string

// Meaning returns what the finding means, for an admin.
func (e Entry) Meaning() string { return e.text(1) }

// Remedy returns what an admin does about the finding.
func (e Entry) Remedy() string { return e.text(2) }

// text returns a field of the finding's row, empty for an unknown code. No hook needs these texts.
func (e Entry) text(field int) string {
	for _, row := range rows(textTable, 3) {
		if row[0] == string(e.Code) {
			return row[field]
		}
	}
	return ""
}

// rows returns the fields of a table's rows that have at least so many. Its comments have none.
func rows(table string, fields int) (all [][]string) {
	for line := range strings.Lines(table) {
		if row := strings.Split(strings.TrimSpace(line), " | "); len(row) >= fields {
			all = append(all, row)
		}
	}
	return all
}

// All returns every entry, in the order of the documentation.
func All() []Entry { return slices.Clone(entries) }

// Lookup returns a code's entry; false for a code that does not exist.
func Lookup(c Code) (Entry, bool) {
	if i := slices.IndexFunc(entries, func(e Entry) bool { return e.Code == c }); i >= 0 {
		return entries[i], true
	}
	return Entry{}, false
}

// Parse returns the code for user input, with or without "BKD-", in any case; false if there is no such code.
func Parse(written string) (Code, bool) {
	name := Code(strings.ToUpper(strings.TrimSpace(written)))
	for _, c := range []Code{name, "BKD-" + name} {
		if _, ok := Lookup(c); ok {
			return c, true
		}
	}
	return "", false
}

// entries is a slice, not a map: hooks start for every job, and a literal of strings costs them nothing.
var entries = []Entry{
	// one GPU
	{Orphan, Serious, Card, Job, "process outlived its job",
		Traits{Exit: 10, Start: ToWarn, End: ToDrain, Memory: OwnProcess}},
	{Residue, Serious, Card, Node, "memory in use, no process",
		Traits{Exit: 11, Start: ToWarn, End: ToDrain, Memory: Unlisted}},
	{Phantom, Serious, Card, Job, "driver lists a dead process",
		Traits{Exit: 12, Start: ToWarn, End: ToDrain, Memory: Unlisted}},
	{Dirty, Warning, Card, Node, "GPU was not clean at the start",
		Traits{Exit: 14, Start: ToWarn, End: ToNote, Memory: Inherited}},
	{Foreign, Warning, Card, Node, "another job is on the GPU",
		Traits{Exit: 15, Start: ToWarn, End: ToWarn, Memory: Others}},
	{Stray, Serious, Card, Node, "process of no job that had this GPU",
		Traits{Exit: 13, Start: ToWarn, End: ToDrain, Memory: Strangers}},
	{Moving, Warning, Card, Node, "memory still changing", Traits{Start: ToWarn, End: ToWarn}},
	{Lost, Serious, Card, Node, "GPU is lost or needs a reset",
		Traits{Exit: 20, Start: ToDrain, End: ToDrain, Unusable: true,
			Fault: "the GPU fell off the bus or needs a reset"}},
	{Missing, Serious, Card, Node, "assigned GPU does not exist",
		Traits{Exit: 21, Start: ToRepeat, End: ToRepeat, Unusable: true, Fault: "a GPU that Slurm gave is not there",
			Doubtful: true}},
	{NoAnswer, Serious, Card, Node, "GPU does not answer",
		Traits{Exit: 19, Start: ToRepeat, End: ToRepeat, Unusable: true, Fault: "the GPU did not answer the driver",
			Doubtful: true}},
	{Unread, Warning, Card, Node, "GPU could not be read",
		Traits{Start: ToWarn, End: ToWarn, Silence: "a GPU could not be read"}},
	{Trespass, Warning, Elsewhere, Node, "job on a GPU it was not given",
		Traits{Start: ToWarn, End: ToWarn}},
	{Unjudged, Note, Card, Node, "memory use of this GPU cannot be judged",
		Traits{Start: ToNote, End: ToNote}},
	{Ended, Note, Card, Job, "leftover process ended by Bookend", Traits{Start: ToNote, End: ToNote}},

	{Gap, Warning, Card, Node, "free memory is fragmented",
		Traits{Exit: 16, Start: ToWarn, End: ToWarn, Condition: true, Milder: "had fragmented memory"}},
	{Blocked, Serious, Card, Node, "no memory could be allocated",
		Traits{Exit: 17, Start: ToWarn, End: ToWarn, Condition: true, Unusable: true,
			Silence: "a test allocation got no memory, or the GPU's compute mode lets no program in"}},
	{Broken, Serious, Card, Node, "CUDA does not work on the GPU",
		Traits{Exit: 18, Start: ToWarn, End: ToRepeat, Condition: true, Unusable: true,
			Fault: "CUDA did not work in a test after your job", Doubtful: true,
			Silence: "a test allocation failed; that may be the test's own"}},
	{Bits, Serious, Card, Node, "memory gives back wrong bits",
		Traits{Exit: 30, Start: ToWarn, End: ToDrain, Condition: true,
			Fault: "the GPU's memory gave back wrong bits in a test after your job", Doubtful: true}},
	{SlowMemory, Note, Card, Node, "memory is slower than it was",
		Traits{Start: ToNote, End: ToNote, Condition: true, Milder: "was slow"}},
	{Reset, Serious, Card, Node, "reset did not repair the GPU",
		Traits{Start: ToNote, End: ToNote, Condition: true, Unusable: true}},
	{Diagnosed, Serious, Card, Node, "DCGM's test failed",
		Traits{Start: ToNote, End: ToNote, Condition: true, Unusable: true}},
	{Recovery, Serious, Card, Node, "driver asks for recovery",
		Traits{Exit: 27, Start: ToWarn, End: ToDrain, Condition: true, Unusable: true,
			Fault: "the driver asks to recover the GPU"}},
	{RemapFailed, Serious, Card, Node, "row remapping failed",
		Traits{Exit: 28, Start: ToWarn, End: ToDrain, Condition: true,
			Fault: "a bad memory row could not be replaced"}},
	{RemapPending, Warning, Card, Node, "row remapping waits for a reset",
		Traits{Start: ToWarn, End: ToWarn, Condition: true}},
	{Pages, Warning, Card, Node, "pages wait to be retired",
		Traits{Start: ToWarn, End: ToWarn, Condition: true}},
	{ECC, Warning, Card, Node, "uncorrectable memory errors",
		Traits{Start: ToWarn, End: ToWarn, Condition: true, Fault: "uncorrectable memory errors"}},
	{Fabric, Warning, Card, Node, "NVLink fabric is not ready",
		Traits{Start: ToWarn, End: ToWarn, Condition: true, Unusable: true, Fault: "the NVLink fabric is not ready"}},
	{Xid, Warning, Card, Job, "driver reported an error (Xid)",
		Traits{Start: ToNote, End: ToWarn, Condition: true, Milder: "met an error"}},
	{XidFatal, Serious, Card, Node, "driver reported a GPU fault (Xid)",
		Traits{Exit: 29, Start: ToWarn, End: ToDrain, Condition: true, Unusable: true,
			Fault: "the driver reported a fault of the GPU"}},
	{Throttle, Note, Card, Node, "GPU is slowed down",
		Traits{Start: ToNote, End: ToNote, Condition: true, Milder: "was slow"}},
	{Persistence, Note, Card, Site, "persistence mode is off",
		Traits{Start: ToNote, End: ToNote, Condition: true, Milder: "was slow to wake up"}},
	{Exclusive, Note, Card, Site, "exclusive compute mode",
		Traits{Start: ToNote, End: ToNote, Condition: true, Milder: "admits one process at a time"}},

	// the driver as a whole
	{NoDriver, Serious, Driver, Node, "no GPU driver",
		Traits{Exit: 22, Start: ToRepeat, End: ToRepeat, Fault: "no GPU driver, or not its library", Doubtful: true}},
	{Mismatch, Serious, Driver, Node, "driver and library differ",
		Traits{Exit: 23, Start: ToRepeat, End: ToRepeat, Fault: "driver and library are of different versions"}},
	{DriverKO, Serious, Driver, Node, "driver reported an error",
		Traits{Exit: 24, Start: ToRepeat, End: ToRepeat, Silence: "the driver reported an error"}},
	{Old, Note, Driver, Node, "driver lacks a call", Traits{Start: ToNote, End: ToNote}},
	{Hang, Serious, Driver, Node, "driver does not answer",
		Traits{Exit: 26, Start: ToWarn, End: ToWarn, Silence: "the driver did not answer in time"}},
	{Stuck, Serious, Driver, Node, "driver still does not answer",
		Traits{Exit: 25, Start: ToWarn, End: ToWarn, Fault: "the driver hangs: a process stays stuck in it",
			Doubtful: true}},
	{Slow, Warning, Driver, Node, "driver too slow for the window",
		Traits{Start: ToWarn, End: ToWarn, Silence: "the driver was too slow to be asked for everything"}},
	{KernelLog, Warning, Driver, Node, "kernel log has a fault of unnamed GPUs",
		Traits{Start: ToNote, End: ToWarn, Condition: true, Milder: "may have had a fault",
			Silence: "the kernel log has a fault that names no GPU"}},
	{External, Serious, Driver, Node, "the site's own check found a fault",
		Traits{Start: ToWarn, End: ToWarn}},

	// the host's memory
	{SharedMemory, Warning, Host, Job, "shared memory left behind", Traits{Start: ToWarn, End: ToWarn}},
	{HostMemory, Warning, Host, Node, "host memory did not come back",
		Traits{Start: ToWarn, End: ToWarn}},
	{Survivor, Warning, Host, Job, "process left running", Traits{Start: ToWarn, End: ToWarn}},

	{BackendMissing, Warning, Own, Site, "backend is missing",
		Traits{Exit: 32, Start: ToWarn, End: ToWarn}},
	{BackendRefused, Warning, Own, Site, "backend is not trusted",
		Traits{Exit: 33, Start: ToWarn, End: ToWarn}},
	{BackendCrash, Warning, Own, Node, "backend crashed",
		Traits{Exit: 34, Start: ToWarn, End: ToWarn, Silence: "asking the driver failed"}},
	{BackendGarbage, Warning, Own, Self, "backend answer is malformed",
		Traits{Exit: 35, Start: ToWarn, End: ToWarn}},
	{BackendVersion, Warning, Own, Site, "backend speaks another version",
		Traits{Exit: 36, Start: ToWarn, End: ToWarn}},
	{BackendFlood, Warning, Own, Self, "backend answer is too long",
		Traits{Exit: 37, Start: ToWarn, End: ToWarn}},

	{Untraced, Note, Own, Node, "search is incomplete", Traits{Start: ToNote, End: ToNote}},
	{Ambiguous, Warning, Own, Site, "cannot tell which GPUs", Traits{Start: ToWarn, End: ToWarn}},
	{NoRecord, Note, Own, None, "no record of the job's start", Traits{Start: ToNote, End: ToNote}},
	{Again, Note, Own, None, "end of a job seen twice", Traits{Start: ToNote, End: ToNote}},
	{RunInJob, Note, Own, None, "hook runs inside the job", Traits{Start: ToNote, End: ToNote}},
	{BadEnv, Warning, Own, Site, "unusable environment",
		Traits{Exit: 31, Start: ToWarn, End: ToWarn, Unchecked: true}},
	{BadConfig, Warning, Own, Site, "configuration is not valid", Traits{Start: ToWarn, End: ToWarn}},
	{StateDamage, Warning, Own, Self, "record is damaged",
		Traits{Exit: 38, Start: ToWarn, End: ToWarn}},
	{StateWrite, Warning, Own, Site, "record could not be written",
		Traits{Exit: 39, Start: ToWarn, End: ToWarn}},
	{StateLock, Note, Own, Self, "record was locked", Traits{Start: ToNote, End: ToNote}},
	{LogFailed, Warning, Own, Site, "log could not be written", Traits{Start: ToWarn, End: ToWarn}},
	{Output, Note, Own, None, "job's output could not be reached", Traits{Start: ToNote, End: ToNote}},
	{ReasonFailed, Warning, Own, Site, "drain reason not written", Traits{Start: ToWarn, End: ToWarn}},
	{Panicked, Warning, Own, Self, "internal error in Bookend",
		Traits{Exit: 41, Start: ToWarn, End: ToWarn, Unchecked: true}},
	{Deadline, Warning, Own, Node, "hook ran out of time",
		Traits{Exit: 42, Start: ToWarn, End: ToWarn, Unchecked: true}},
}
