package report

import (
	"strings"
	"testing"

	"bookend/internal/diagnosis"
	"bookend/internal/settle"
)

// why is a diagnosis as package diagnosis makes it, of a job that used up its GPU.
func why(reason diagnosis.Reason, headline string) *diagnosis.Diagnosis {
	zero := 0
	return &diagnosis.Diagnosis{Reason: reason, Headline: headline, Asked: "PyTorch ran out of GPU memory",
		Try: []string{"a smaller batch", "more GPUs", diagnosis.TellAdmin + ": bookend show 42 on n1"},
		Causes: []diagnosis.Cause{
			{Name: diagnosis.Others, Answer: diagnosis.No, Evidence: "none"},
			{Name: diagnosis.Unlisted, Answer: diagnosis.Yes, With: diagnosis.Own, Evidence: "the same"},
			{Name: diagnosis.Pool, Answer: diagnosis.Unknown, Evidence: "no figures"},
			{Name: diagnosis.Own, Answer: diagnosis.Yes, Evidence: "used 138.9 GiB", Detail: "PID 9", Index: &zero},
			{Name: diagnosis.Limits, Answer: diagnosis.No, Evidence: "the GPU's memory"},
		}}
}

func TestWhy(t *testing.T) {
	const (
		evidence = "\nbookend:   Used 138.9 GiB"
		try      = "\nbookend:   Try: a smaller batch; more GPUs"
		answers  = "\nbookend:   Ruled out: other users, limits\nbookend:   Cannot tell: fragmentation"
		details  = "\nbookend:   Details: bookend show 42 on n1"
	)
	for _, tt := range []struct {
		reason         diagnosis.Reason
		headline, want string
	}{
		{diagnosis.ByMessage, "Why out of memory: the job", "\nbookend: OUT OF MEMORY on n1 GPU 0: the job" + evidence + try + answers + details},
		{diagnosis.ByMessage, "Why out of memory (rank 3 first): the job", "\nbookend: OUT OF MEMORY on n1 GPU 0 (rank 3 first): the job" + evidence + try + answers + details},
		{diagnosis.ByMessage, "Why CUDA did not start: a limit", "\nbookend: CUDA DID NOT START on n1 GPU 0: a limit" + evidence + try + answers + details},
		{diagnosis.ByMessage, "It ran out of memory, but ended without an error: x", "\nbookend: OUT OF MEMORY on n1 GPU 0, but your job ended without an error: x" + evidence + try + answers + details},
		{diagnosis.ByFailure, "Your job failed (exit code 1)", "\nbookend: Your job failed (exit code 1)" + evidence + try + details},
		{"", "", "\nbookend: n1 GPU 0 clean: 139.8 of 139.8 GiB free"},
	} {
		s := scene(1, settle.Clean)
		s.Why = why(tt.reason, tt.headline)
		check(t, End(s), tt.want)
		if s.Clean() != !strings.Contains(tt.want, "Details") {
			t.Errorf("%s: clean %v", tt.headline, s.Clean())
		}
	}
}

// Of several GPUs each line names its own; nothing from outside leaves its line.
func TestWhyIsClean(t *testing.T) {
	s, index := scene(2, settle.Clean), 1
	s.Why = why(diagnosis.ByMessage, "Why\nexport PATH=/x")
	s.Why.Causes[3].Index, s.Why.Causes[3].Evidence, s.Why.Try = &index, "a\nb "+strings.Repeat("w", 500), []string{"\x1b[2J"}
	got := End(s)
	told(t, got, true)
	if !strings.Contains(text(got), `:   GPU 1: A\x0ab w`) {
		t.Errorf("%s", text(got))
	}
}
