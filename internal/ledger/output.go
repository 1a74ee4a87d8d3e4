package ledger

import (
	"fmt"
	"slices"
	"strings"
)

// OutputKind is what of a job goes to an output.
type OutputKind string

// The kinds.
const (
	ScriptOutput OutputKind = "output" // of the batch script, or of an interactive shell
	ScriptErrors OutputKind = "errors" // of the batch script, where they are kept apart
	StepOutput   OutputKind = "step"   // of a step, output or errors
)

// Name is what a job's owner calls it.
func (k OutputKind) Name() string {
	switch k {
	case ScriptOutput:
		return "its output"
	case ScriptErrors:
		return "its errors"
	}
	return "a step's output"
}

// Output is one of a job's outputs, and what was looked through of it for messages about memory.
type Output struct {
	Kind OutputKind `json:"kind"`
	// the user's claim; cut at its beginning where it is long; empty where not known
	Path string `json:"path,omitempty"`
	Size int64  `json:"size_bytes"`
	Read int64  `json:"read_bytes"` // so many bytes at its end
	// Why says why nothing of it was looked through, or, where that is no matter of its length, no more.
	Why string `json:"why,omitempty"`
}

// MaxOutputPath is the longest path of an output that is kept, in bytes.
const MaxOutputPath = 200

// NewOutput is an output that nobody has looked at yet.
func NewOutput(kind OutputKind, path string) Output {
	const cut = "..."
	if len(path) > MaxOutputPath {
		path = cut + path[len(path)-MaxOutputPath+len(cut):]
	}
	return Output{Kind: kind, Path: path}
}

// Unread words what was not looked through of a job's outputs. With none is true of all of them; it is empty where all
// was.
func Unread(outputs []Output) (words string, none bool) {
	none = true
	var reasons []string
	for _, o := range outputs {
		none = none && o.Read == 0 && o.Why != ""
		if why := o.unread(len(outputs) == 1); why != "" && !slices.Contains(reasons, why) {
			reasons = append(reasons, why)
		}
	}
	return strings.Join(reasons, "; "), none
}

// unread words what was not looked through of one output, which may be the only one.
func (o Output) unread(only bool) string {
	text := o.Why
	switch {
	case o.Read == o.Size && o.Why == "":
		return ""
	case o.Read > 0:
		text = fmt.Sprintf("only its last %d KiB", (o.Read+1023)>>10)
	}
	if only {
		return text
	}
	return o.Kind.Name() + ": " + text
}
