package catalog

import (
	_ "embed"
	"slices"
	"strings"
)

//go:embed findings.txt
var textTable string

// Meaning returns what the finding means, for an admin.
func (e Entry) Meaning() string { return e.text(2) }

// Remedy returns what an admin does about the finding.
func (e Entry) Remedy() string { return e.text(3) }

// text returns a field of the finding's row, empty for an unknown code. No hook needs these texts.
func (e Entry) text(field int) string {
	for _, row := range rows(textTable, 4) {
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
	{Orphan, Serious, Card, "process outlived its job",
		Traits{Exit: 10, Start: ToWarn, End: ToDrain, Memory: OwnProcess}},
	{Residue, Serious, Card, "memory in use, no process",
		Traits{Exit: 11, Start: ToWarn, End: ToDrain, Memory: Unlisted}},
	{Phantom, Serious, Card, "driver lists a dead process",
		Traits{Exit: 12, Start: ToWarn, End: ToDrain, Memory: Unlisted}},
	{Dirty, Warning, Card, "GPU was not clean at the start",
		Traits{Exit: 14, Start: ToWarn, End: ToNote, Memory: Inherited}},
	{Foreign, Warning, Card, "another job is on the GPU",
		Traits{Exit: 15, Start: ToWarn, End: ToWarn, Memory: Others}},
	{Stray, Serious, Card, "process of no job that had this GPU",
		Traits{Exit: 13, Start: ToWarn, End: ToDrain, Memory: Strangers}},
	{Moving, Warning, Card, "memory still changing", Traits{Start: ToWarn, End: ToWarn}},
	{Lost, Serious, Card, "GPU is lost or needs a reset",
		Traits{Exit: 20, Start: ToDrain, End: ToDrain, Unusable: true,
			Fault: "the GPU fell off the bus or needs a reset"}},
	{Missing, Serious, Card, "assigned GPU does not exist",
		Traits{Exit: 21, Start: ToRepeat, End: ToRepeat, Unusable: true, Fault: "a GPU that Slurm gave is not there",
			Doubtful: true}},
	{NoAnswer, Serious, Card, "GPU does not answer",
		Traits{Exit: 19, Start: ToRepeat, End: ToRepeat, Unusable: true, Fault: "the GPU did not answer the driver",
			Doubtful: true}},
	{Unread, Warning, Card, "GPU could not be read",
		Traits{Start: ToWarn, End: ToWarn, Silence: "a GPU could not be read"}},
	{Trespass, Warning, Elsewhere, "job on a GPU it was not given",
		Traits{Start: ToWarn, End: ToWarn}},
	{Unjudged, Note, Card, "memory use of this GPU cannot be judged",
		Traits{Start: ToNote, End: ToNote}},
	{Ended, Note, Card, "leftover process ended by Bookend", Traits{Start: ToNote, End: ToNote}},

	{Gap, Warning, Card, "free memory is fragmented",
		Traits{Exit: 16, Start: ToWarn, End: ToWarn, Condition: true, Milder: "had fragmented memory"}},
	{Blocked, Serious, Card, "no memory could be allocated",
		Traits{Exit: 17, Start: ToWarn, End: ToWarn, Condition: true, Unusable: true,
			Silence: "a test allocation got no memory, or the GPU's compute mode lets no program in"}},
	{Broken, Serious, Card, "CUDA does not work on the GPU",
		Traits{Exit: 18, Start: ToWarn, End: ToRepeat, Condition: true, Unusable: true,
			Fault: "CUDA did not work in a test after your job", Doubtful: true,
			Silence: "a test allocation failed; that may be the test's own"}},
	{Bits, Serious, Card, "memory gives back wrong bits",
		Traits{Exit: 30, Start: ToWarn, End: ToDrain, Condition: true,
			Fault: "the GPU's memory gave back wrong bits in a test after your job", Doubtful: true}},
	{SlowMemory, Note, Card, "memory is slower than it was",
		Traits{Start: ToNote, End: ToNote, Condition: true, Milder: "was slow"}},
	{Reset, Serious, Card, "reset did not repair the GPU",
		Traits{Start: ToNote, End: ToNote, Condition: true, Unusable: true}},
	{Diagnosed, Serious, Card, "DCGM's test failed",
		Traits{Start: ToNote, End: ToNote, Condition: true, Unusable: true}},
	{Recovery, Serious, Card, "driver asks for recovery",
		Traits{Exit: 27, Start: ToWarn, End: ToDrain, Condition: true, Unusable: true,
			Fault: "the driver asks to recover the GPU"}},
	{RemapFailed, Serious, Card, "row remapping failed",
		Traits{Exit: 28, Start: ToWarn, End: ToDrain, Condition: true,
			Fault: "a bad memory row could not be replaced"}},
	{RemapPending, Warning, Card, "row remapping waits for a reset",
		Traits{Start: ToWarn, End: ToWarn, Condition: true}},
	{Pages, Warning, Card, "pages wait to be retired",
		Traits{Start: ToWarn, End: ToWarn, Condition: true}},
	{ECC, Warning, Card, "uncorrectable memory errors",
		Traits{Start: ToWarn, End: ToWarn, Condition: true, Fault: "uncorrectable memory errors"}},
	{Fabric, Warning, Card, "NVLink fabric is not ready",
		Traits{Start: ToWarn, End: ToWarn, Condition: true, Unusable: true, Fault: "the NVLink fabric is not ready"}},
	{Xid, Warning, Card, "driver reported an error (Xid)",
		Traits{Start: ToNote, End: ToWarn, Condition: true, Milder: "met an error"}},
	{XidFatal, Serious, Card, "driver reported a GPU fault (Xid)",
		Traits{Exit: 29, Start: ToWarn, End: ToDrain, Condition: true, Unusable: true,
			Fault: "the driver reported a fault of the GPU"}},
	{Throttle, Note, Card, "GPU is slowed down",
		Traits{Start: ToNote, End: ToNote, Condition: true, Milder: "was slow"}},
	{Persistence, Note, Card, "persistence mode is off",
		Traits{Start: ToNote, End: ToNote, Condition: true, Milder: "was slow to wake up"}},
	{Exclusive, Note, Card, "exclusive compute mode",
		Traits{Start: ToNote, End: ToNote, Condition: true, Milder: "admits one process at a time"}},

	// the driver as a whole
	{NoDriver, Serious, Driver, "no GPU driver",
		Traits{Exit: 22, Start: ToRepeat, End: ToRepeat, Fault: "no GPU driver, or not its library", Doubtful: true}},
	{Mismatch, Serious, Driver, "driver and library differ",
		Traits{Exit: 23, Start: ToRepeat, End: ToRepeat, Fault: "driver and library are of different versions"}},
	{DriverKO, Serious, Driver, "driver reported an error",
		Traits{Exit: 24, Start: ToRepeat, End: ToRepeat, Silence: "the driver reported an error"}},
	{Old, Note, Driver, "driver lacks a call", Traits{Start: ToNote, End: ToNote}},
	{Hang, Serious, Driver, "driver does not answer",
		Traits{Exit: 26, Start: ToWarn, End: ToWarn, Silence: "the driver did not answer in time"}},
	{Stuck, Serious, Driver, "driver still does not answer",
		Traits{Exit: 25, Start: ToWarn, End: ToWarn, Fault: "the driver hangs: a process stays stuck in it",
			Doubtful: true}},
	{Slow, Warning, Driver, "driver too slow for the window",
		Traits{Start: ToWarn, End: ToWarn, Silence: "the driver was too slow to be asked for everything"}},
	{KernelLog, Warning, Driver, "kernel log has a fault of unnamed GPUs",
		Traits{Start: ToNote, End: ToWarn, Condition: true, Milder: "may have had a fault",
			Silence: "the kernel log has a fault that names no GPU"}},
	{External, Serious, Driver, "the site's own check found a fault",
		Traits{Start: ToWarn, End: ToWarn}},

	// the host's memory
	{SharedMemory, Warning, Host, "shared memory left behind", Traits{Start: ToWarn, End: ToWarn}},
	{HostMemory, Warning, Host, "host memory did not come back", Traits{Start: ToWarn, End: ToWarn}},
	{Survivor, Warning, Host, "process left running", Traits{Start: ToWarn, End: ToWarn}},

	{BackendMissing, Warning, Own, "backend is missing",
		Traits{Exit: 32, Start: ToWarn, End: ToWarn}},
	{BackendRefused, Warning, Own, "backend is not trusted",
		Traits{Exit: 33, Start: ToWarn, End: ToWarn}},
	{BackendCrash, Warning, Own, "backend crashed",
		Traits{Exit: 34, Start: ToWarn, End: ToWarn, Silence: "asking the driver failed"}},
	{BackendGarbage, Warning, Own, "backend answer is malformed",
		Traits{Exit: 35, Start: ToWarn, End: ToWarn}},
	{BackendVersion, Warning, Own, "backend speaks another version",
		Traits{Exit: 36, Start: ToWarn, End: ToWarn}},
	{BackendFlood, Warning, Own, "backend answer is too long",
		Traits{Exit: 37, Start: ToWarn, End: ToWarn}},

	{Untraced, Note, Own, "search is incomplete", Traits{Start: ToNote, End: ToNote}},
	{Ambiguous, Warning, Own, "cannot tell which GPUs", Traits{Start: ToWarn, End: ToWarn}},
	{NoRecord, Note, Own, "no record of the job's start", Traits{Start: ToNote, End: ToNote}},
	{Again, Note, Own, "end of a job seen twice", Traits{Start: ToNote, End: ToNote}},
	{RunInJob, Note, Own, "hook runs inside the job", Traits{Start: ToNote, End: ToNote}},
	{BadEnv, Warning, Own, "unusable environment",
		Traits{Exit: 31, Start: ToWarn, End: ToWarn, Unchecked: true}},
	{BadConfig, Warning, Own, "configuration is not valid", Traits{Start: ToWarn, End: ToWarn}},
	{StateDamage, Warning, Own, "record is damaged", Traits{Exit: 38, Start: ToWarn, End: ToWarn}},
	{StateWrite, Warning, Own, "record could not be written",
		Traits{Exit: 39, Start: ToWarn, End: ToWarn}},
	{StateLock, Note, Own, "record was locked", Traits{Start: ToNote, End: ToNote}},
	{LogFailed, Warning, Own, "log could not be written", Traits{Start: ToWarn, End: ToWarn}},
	{Output, Note, Own, "job's output could not be reached", Traits{Start: ToNote, End: ToNote}},
	{ReasonFailed, Warning, Own, "drain reason not written", Traits{Start: ToWarn, End: ToWarn}},
	{Panicked, Warning, Own, "internal error in Bookend",
		Traits{Exit: 41, Start: ToWarn, End: ToWarn, Unchecked: true}},
	{Deadline, Warning, Own, "hook ran out of time",
		Traits{Exit: 42, Start: ToWarn, End: ToWarn, Unchecked: true}},
}
