package stage

import (
	"testing"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
)

func TestOnCardWords(t *testing.T) {
	index := 3
	f := finding.Finding{
		Code: code.Orphan, GPU: "GPU-a", Index: &index, Bytes: gpu.Bytes(2 << 30), Holder: &finding.Holder{Process: attrib.Process{PID: 70, Name: "x"}},
		Owner: &finding.Owner{Job: 9, Level: attrib.BySighting},
	}
	if got, want := words(f), "GPU 3, 2048 MiB, process 70, job 9 (sighting)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	f = finding.Finding{Code: code.Unread, GPU: "GPU-a", Unknown: "no reading"}
	if got, want := words(f), "GPU GPU-a, unknown: no reading"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if a, b := subject(finding.Finding{Code: code.Residue, GPU: "GPU-a", Bytes: gpu.Bytes(1)}), subject(finding.Finding{Code: code.Residue, GPU: "GPU-a", Bytes: gpu.Bytes(2)}); a != b {
		t.Errorf("%q, then %q: a figure that wanders is said again", a, b)
	}
}
