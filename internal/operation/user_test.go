package operation

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/gpu"
	"bookend/internal/oom"
	"bookend/internal/state"
)

// Many ends of one user wait for one another only until a child has come back from that user's files; where the lock of
// the visits is out of use each hook is on its own.
func TestTurn(t *testing.T) {
	run := filepath.Join(t.TempDir(), "run")
	if err := os.Chmod(filepath.Dir(run), 0o755); err != nil {
		t.Fatal(err)
	}
	store, err := state.Open(run, "n1")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Hour
	v := &Visit{Store: store, UID: 7, Now: func() time.Duration { return now }, Left: func() time.Duration { return 0 }}
	enter := func(op string, want error, when string) (met func(bool)) {
		t.Helper()
		met, err := v.enter(op)
		if !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", when, err, want)
		}
		return met
	}
	met := enter(Append.Name, nil, "the first")
	enter(Append.Name, errInVisit, "beside one who has not come back")
	met(true)
	enter(Append.Name, nil, "one has come back")
	defer enter(Tail.Name, nil, "another operation")(false)
	enter(Append.Name, nil, "one has come back from writing, and another reads")
	enter(Tail.Name, errInVisit, "it came back from writing, not from reading")
	if err := os.RemoveAll(run); err != nil {
		t.Fatal(err)
	}
	enter(Tail.Name, nil, "no lock")(true)
}

// Which readers of /proc keep a new one from being started.
func TestHung(t *testing.T) {
	at := []attrib.Instance{{PID: 70, Start: 1}}
	many := make([]state.Reader, state.MaxReaders)
	for i := range many {
		many[i] = state.Reader{Stuck: state.Stuck{Op: Holders.Name}, At: at}
	}
	for name, tt := range map[string]struct {
		readers []state.Reader
		at      int
		blocked bool
	}{
		"none":              {nil, 0, false},
		"one":               {many[:1], 1, false},
		"did not say":       {[]state.Reader{{Stuck: state.Stuck{Op: Holders.Name}}}, 0, true},
		"another operation": {[]state.Reader{{Stuck: state.Stuck{Op: Processes.Name}}}, 0, false},
		"nearly too many":   {many[1:], state.MaxReaders - 1, false},
		"too many":          {many, state.MaxReaders, true},
	} {
		if skip, blocked := Hung(Holders.Name, tt.readers); len(skip) != tt.at || blocked != tt.blocked {
			t.Errorf("%s: got %d places, blocked %v, want %d, %v", name, len(skip), blocked, tt.at, tt.blocked)
		}
	}
}

// What comes back from a process that the user may have got at is what Tail could have written, or nothing.
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
	one, two := Searched{Size: 70, Read: 70}, []Searched{{Size: 70, Read: 70}, {}}
	no2 := func(why string) []Searched { return []Searched{one, {Refused: why}} }
	for name, tt := range map[string]struct {
		reply TailReply
		valid bool
	}{
		"nothing found":             {TailReply{Files: two}, true},
		"found":                     {TailReply{Messages: []oom.Message{m}, Files: two}, true},
		"refused":                   {TailReply{Files: []Searched{{Refused: "missing"}, {Refused: "not-owner"}}}, true},
		"found in one":              {TailReply{Messages: []oom.Message{m}, Files: no2("links")}, true},
		"found in both":             {TailReply{Messages: []oom.Message{m, second}, Files: two}, true},
		"an invalid message":        {TailReply{Messages: []oom.Message{m, forged}, Files: two}, false},
		"many messages":             {TailReply{Messages: slices.Repeat([]oom.Message{m}, oom.MaxMessages+1), Files: two}, false},
		"no answer":                 {TailReply{Messages: []oom.Message{m}}, false},
		"an answer too many":        {TailReply{Files: []Searched{one, one, one}}, false},
		"another reason":            {TailReply{Files: no2("because\n")}, false},
		"found in one refused":      {TailReply{Messages: []oom.Message{second}, Files: no2("links")}, false},
		"found in the same":         {TailReply{Messages: []oom.Message{second}, Files: []Searched{one, {Same: true}}}, false},
		"more read than there is":   {TailReply{Files: []Searched{one, {Size: 5, Read: 6}}}, false},
		"less than nothing":         {TailReply{Files: []Searched{one, {Size: -1, Read: -1}}}, false},
		"a message of a third file": {TailReply{Messages: []oom.Message{func() oom.Message { t := m; t.File = 2; return t }()}, Files: two}, false},
	} {
		if err := tt.reply.Check(2); (err == nil) != tt.valid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What became of an append is one of the known words, or the reply is none.
func FuzzAppendReply(f *testing.F) {
	for _, seed := range []string{`{}`, `{"refused":"missing"}`, `{"refused":"full\nexport X"}`, `{"refused":"\u001b"}`, `null`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var reply AppendReply
		if json.Unmarshal(data, &reply) != nil || reply.Check() != nil || reply.Refused == "" {
			return
		}
		if strings.Trim(reply.Refused, "abcdefghijklmnopqrstuvwxyz-") != "" || len(reply.Refused) > 12 {
			t.Fatalf("%q", reply.Refused)
		}
	})
}
