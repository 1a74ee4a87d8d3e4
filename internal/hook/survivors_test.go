package hook

import (
	"testing"

	"bookend/internal/record"
	"bookend/test/must"
)

// A process that another finding names is not named again.
func TestNamedProcess(t *testing.T) {
	holder := record.Holder{Process: record.Process{PID: 4711}}
	for name, f := range map[string]record.Finding{"holder": {Holder: &holder}, "candidate": {Candidates: []record.Holder{holder}}} {
		must.Be(t, "the "+name, isNamed(4711, []record.Finding{{}, f}), true)
		must.Be(t, "not the "+name, isNamed(4712, []record.Finding{{}, f}), false)
	}
}
