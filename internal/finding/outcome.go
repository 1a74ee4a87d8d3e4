package finding

// Outcome is what became of a process that clean-up was to end. The values are part of records and of the command
// line's documents: they keep their names.
type Outcome string

// The outcomes.
const (
	AlreadyGone Outcome = "gone" // before anything was sent to it
	ByTerm      Outcome = "sigterm"
	ByKill      Outcome = "sigkill"
	StillThere  Outcome = "still_there" // SIGKILL was sent: it hangs in the kernel
	Refused     Outcome = "refused"     // nothing was sent to it
)

// Signal names what ended the process, as signal(7) does; empty where clean-up did not end it.
func (o Outcome) Signal() string {
	switch o {
	case ByTerm:
		return "SIGTERM"
	case ByKill:
		return "SIGKILL"
	}
	return ""
}

// Text words an outcome.
func (o Outcome) Text() string {
	if signal := o.Signal(); signal != "" {
		return "ended by " + signal
	}
	switch o {
	case AlreadyGone:
		return "already gone"
	case StillThere:
		return "still there"
	}
	return string(o)
}
