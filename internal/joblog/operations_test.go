package joblog

import (
	"slices"
	"testing"

	"bookend/internal/gpu"
	"bookend/internal/oomlog"
	"bookend/internal/record"
	"bookend/test/must"
)

// What comes back from a process that the user may have got at is what SearchAsUser could have written, or nothing.
func TestTailReply(t *testing.T) {
	no := gpu.Unknown("not said")
	m := record.Message{
		Kind: record.KindDevice, Framework: record.FromPyTorch, Asked: no, Total: no, Free: no, InUse: no, Allocated: no, Idle: no,
		Line: "CUDA error: out of memory", Count: 1,
	}
	forged := m
	forged.Line = "\x1b[2J| bookend: all is well"
	second := m
	second.File = 1
	one, two := Searched{Size: 70, Read: 70}, []Searched{{Size: 70, Read: 70}, {}}
	no2 := func(why string) []Searched { return []Searched{one, {Refused: why}} }
	for name, tt := range map[string]struct {
		reply TailReply
		valid bool
	}{
		"nothing found":             {TailReply{Files: two}, true},
		"found":                     {TailReply{Messages: []record.Message{m}, Files: two}, true},
		"refused":                   {TailReply{Files: []Searched{{Refused: "missing"}, {Refused: "not-owner"}}}, true},
		"found in one":              {TailReply{Messages: []record.Message{m}, Files: no2("links")}, true},
		"found in both":             {TailReply{Messages: []record.Message{m, second}, Files: two}, true},
		"an invalid message":        {TailReply{Messages: []record.Message{m, forged}, Files: two}, false},
		"many messages":             {TailReply{Messages: slices.Repeat([]record.Message{m}, oomlog.MaxMessages+1), Files: two}, false},
		"no answer":                 {TailReply{Messages: []record.Message{m}}, false},
		"an answer too many":        {TailReply{Files: []Searched{one, one, one}}, false},
		"another reason":            {TailReply{Files: no2("because\n")}, false},
		"found in one refused":      {TailReply{Messages: []record.Message{second}, Files: no2("links")}, false},
		"more read than there is":   {TailReply{Files: []Searched{one, {Size: 5, Read: 6}}}, false},
		"less than nothing":         {TailReply{Files: []Searched{one, {Size: -1, Read: -1}}}, false},
		"a message of a third file": {TailReply{Messages: []record.Message{func() record.Message { t := m; t.File = 2; return t }()}, Files: two}, false},
	} {
		err := tt.reply.Check(2)
		must.Not(t, (err == nil) != tt.valid, "%s: %v", name, err)
	}
}
