package joblog

import (
	"strings"
	"testing"
)

// Whatever is in a report, each of its lines in a job's log is marked as Bookend's.
func FuzzQuote(f *testing.F) {
	f.Add("bookend: GPU 0 of n1 clean\n\n\ra")
	f.Fuzz(func(t *testing.T, text string) {
		for line := range strings.Lines(Quote(text)) {
			if !strings.HasPrefix(line, "| ") {
				t.Fatalf("line %q of a job's log", line)
			}
		}
	})
}
