package stage

import (
	"slices"
	"strings"
	"testing"

	"bookend/internal/gpu"
	"bookend/internal/joblog"
	"bookend/internal/oom"
)

// What comes back from a process that the user may have got at is what serveTail could have written, or nothing.
func TestTailReply(t *testing.T) {
	no := gpu.Unknown("not said")
	m := oom.Message{
		Kind: oom.Device, Framework: oom.PyTorch, Asked: no, Total: no, Free: no, InUse: no, Allocated: no, Idle: no, Limit: no,
		Line: "CUDA error: out of memory", Count: 1,
	}
	forged := m
	forged.Line = "\x1b[2J| bookend: all is well"
	second := m
	second.File = 1
	for name, tt := range map[string]struct {
		reply  tailReply
		valid  bool
		unread string
	}{
		"nothing found":      {tailReply{Refused: []string{"", ""}}, true, ""},
		"found":              {tailReply{Messages: []oom.Message{m}, Refused: []string{"", ""}}, true, ""},
		"refused":            {tailReply{Refused: []string{"missing", "not-owner"}}, true, "refused: missing, not-owner"},
		"one refused":        {tailReply{Refused: []string{"", "links"}}, true, "refused: links"},
		"found in one":       {tailReply{Messages: []oom.Message{m}, Refused: []string{"missing", ""}}, true, ""},
		"found in both":      {tailReply{Messages: []oom.Message{m, second}, Refused: []string{"", ""}}, true, ""},
		"an invalid message": {tailReply{Messages: []oom.Message{m, forged}, Refused: []string{"", ""}}, false, ""},
		"many messages":      {tailReply{Messages: slices.Repeat([]oom.Message{m}, oom.MaxMessages+1), Refused: []string{"", ""}}, false, ""},
		"no answer":          {tailReply{Messages: []oom.Message{m}}, false, ""},
		"an answer too many": {tailReply{Refused: []string{"", "", ""}}, false, ""},
		"another reason":     {tailReply{Refused: []string{"missing", "because\n"}}, false, ""},
	} {
		err := tt.reply.check(2)
		if (err == nil) != tt.valid {
			t.Errorf("%s: %v", name, err)
		}
		if got := tt.reply.unread(); tt.valid && got != tt.unread {
			t.Errorf("%s: %q, want %q", name, got, tt.unread)
		}
	}
}

// A message of a file that nobody asked about is none that serveTail could have written.
func TestTailReplyOfAnotherFile(t *testing.T) {
	no := gpu.Unknown("not said")
	m := oom.Message{Kind: oom.Host, Asked: no, Total: no, Free: no, InUse: no, Allocated: no, Idle: no, Limit: no, Line: "MemoryError", Count: 1, File: 1}
	if err := (tailReply{Messages: []oom.Message{m}, Refused: []string{""}}).check(1); err == nil {
		t.Error("a message of the second file of one")
	}
}

// A task's limit of address space is what Slurm carries to it, or else its own daemon's.
func TestAddressSpace(t *testing.T) {
	for carried, want := range map[string]uint64{
		"U68719476736": 68719476736, "4294967296": 4294967296, "18446744073709551615": joblog.Unlimited,
		"U18446744073709551615": joblog.Unlimited, "18446744073709551616": 0, "-1": 0, "much": 0, "U": 0, "0": 0,
	} {
		hook := task{frame: &frame{env: Env{Getenv: func(name string) string {
			return map[string]string{"SLURM_RLIMIT_AS": carried}[name]
		}}}}
		if got := hook.addressSpace(); got != want {
			t.Errorf("SLURM_RLIMIT_AS=%s: %d, want %d", carried, got, want)
		}
	}
	own := task{frame: &frame{env: Env{Getenv: func(string) string { return "" }}}}
	if got := own.addressSpace(); got == 0 || got > joblog.Unlimited {
		t.Errorf("this process's own: %d", got)
	}
	for _, drop := range []*joblog.Drop{nil, {}} {
		if got := addressSpace(drop); got.Known() || !strings.Contains(got.Unknown, "no task hook") {
			t.Errorf("%+v: %+v", drop, got)
		}
	}
	if got := addressSpace(&joblog.Drop{AddressSpace: 7}); got != gpu.Bytes(7) {
		t.Errorf("%+v", got)
	}
}

// What became of an append is a word that the log takes as it stands.
func TestAppendReply(t *testing.T) {
	for refused, whole := range map[string]bool{"": true, "links": true, "not-owner": true, "appended\njob=1": false, "drained": false} {
		if err := (appendReply{Refused: refused}).check(); (err == nil) != whole {
			t.Errorf("%q: %v", refused, err)
		}
	}
}
