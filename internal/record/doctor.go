package record

const (
	DoctorOK      = "ok"
	DoctorWarning = "warning" // it works, but slower, less protected, or with gaps
	DoctorWrong   = "wrong"   // Bookend cannot work, jobs or nodes suffer, or a user could change what root runs
	DoctorUnknown = "unknown" // it could not be checked
)

// DoctorResult is the result of one check. Path and Seen may contain strings from outside; Printable cleans them.
type DoctorResult struct {
	Check string // its name
	Level string // OK, Warning, Wrong or Unknown
	Path  string // the file, or another subject of the check
	Seen  string // the actual state
	Why   string // why it matters; only if Level is not OK
	Fix   string // a command to run, or what to change
}
