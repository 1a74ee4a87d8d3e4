package record

import (
	"fmt"
	"slices"
	"strings"
)

// OutputKind is which part of a job's output a file receives.
type OutputKind string

const (
	ScriptOutput OutputKind = "output" // of the batch script, or of an interactive shell
	ScriptErrors OutputKind = "errors" // of the batch script, if they are kept apart
	StepOutput   OutputKind = "step"   // of a step, output or errors
)

// Output is one of a job's outputs, and how much of it was searched for messages about memory.
type Output struct {
	Kind OutputKind `json:"kind"`
	// Path is the user's claim; cut at its beginning if it is long; empty if it is not known.
	Path string `json:"path,omitempty"`
	Size int64  `json:"size_bytes"`
	Read int64  `json:"read_bytes"` // bytes searched, at its end
	// Why is why nothing of it was searched or, unless its length is the reason, no more.
	Why string `json:"why,omitempty"`
}

// Name returns how a text calls it to the job's owner.
func (k OutputKind) Name() string {
	switch k {
	case ScriptOutput:
		return "its output"
	case ScriptErrors:
		return "its errors"
	}
	return "a step's output"
}

// MaxOutputPath is the longest path of an output that is kept, in bytes.
const MaxOutputPath = 200

// NewOutput returns an output that has not been searched yet.
func NewOutput(kind OutputKind, path string) Output {
	const cut = "..."
	if len(path) > MaxOutputPath {
		path = cut + path[len(path)-MaxOutputPath+len(cut):]
	}
	return Output{Kind: kind, Path: path}
}

// Unread describes what was not searched of a job's outputs, empty if all was. none means that nothing was.
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

// unread describes what was not searched of one output. only is set if it is the job's only one.
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
