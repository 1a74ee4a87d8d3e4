package publish

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/record"
	"bookend/internal/safefile"
	"bookend/internal/state"
	"bookend/test/must"
)

func emptyStore(t *testing.T) *state.Store {
	dir := filepath.Join(t.TempDir(), "run")
	must.Do(t, os.Mkdir(dir, 0o755))
	return must.Have(state.Open(dir, "n1"))(t)
}

func TestRepeat(t *testing.T) {
	s := emptyStore(t)
	for i, tc := range []struct {
		code       string
		now        time.Duration
		say        bool
		suppressed int
	}{
		{"A", time.Minute, true, 0},
		{"A", 2 * time.Minute, false, 0},
		{"B", 2 * time.Minute, true, 0},
		{"A", time.Minute + sayAgain - 1, false, 0},
		{"A", time.Minute + sayAgain, true, 2},
		{"A", time.Minute + 2*sayAgain, true, 0},
		{"A", time.Second, true, 0}, // the node has booted
		{"A", 2 * time.Second, false, 0},
	} {
		say, n := repeat(s, tc.code, tc.now)
		must.Not(t, say != tc.say || n != tc.suppressed, "%d: got %v, %d, want %+v", i, say, n, tc)
	}
}

// Damage and a lock make no fault silent.
func TestRepeatIsNeverSilent(t *testing.T) {
	s := emptyStore(t)
	says := func(now time.Duration) bool { say, _ := repeat(s, "A", now); return say }
	says(0)
	for _, text := range []string{`{"A":`, `{"version":1,"value":{"A":{"said_ns":1},"B":3}}`, "null", `{"version":1,"value":{"A":{"said_ns":-1}}}`,
		`{"version":1,"value":{"A":{"said_ns":9223372036854775807}}}`, `{"version":1,"value":{"A":null}}`} {
		must.Do(t, os.WriteFile(filepath.Join(s.Dir(), "faults.json"), []byte(text), 0o600))
		must.Be(t, text, says(1), true)
		must.Be(t, text+" repaired", says(2), false)
	}
	release := must.Have(safefile.Lock(filepath.Join(s.Dir(), "lock-shared"), 0, true))(t)
	must.Be(t, "locked", says(3), true)
	release()
}

func TestDiskTroubles(t *testing.T) {
	s, noon := emptyStore(t), time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	must.Be(t, "clean", len(state.DiskTroubles.PeekNode(s.Users.Run, "n1")), 0)
	must.Do(t, noteDisk(s, map[record.DiskTask]*record.DiskTrouble{record.DiskLog: nil, record.DiskHistory: nil}, noon))
	must.Be(t, "clean", len(state.DiskTroubles.PeekNode(s.Users.Run, "n1")), 0)
	full := record.DiskTrouble{Task: record.DiskHistory, Code: catalog.StateWrite, Detail: strings.Repeat("x", 2*maxDiskDetail), Dropped: 2}
	for i := range 3 {
		must.Do(t, noteDisk(s, map[record.DiskTask]*record.DiskTrouble{record.DiskLog: nil, record.DiskHistory: &full}, noon.Add(time.Duration(i))))
	}
	must.Do(t, noteDisk(s, map[record.DiskTask]*record.DiskTrouble{record.DiskLog: nil}, noon)) // a hook that had nothing to archive
	all := must.Have(state.DiskTroubles.Load(s))(t)
	must.Not(t, len(all) != 1 || all[0].Count != 3 || all[0].Dropped != 6 || !all[0].Since.Equal(noon) ||
		!all[0].Last.After(noon) || len(all[0].Detail) != maxDiskDetail, "%+v", all)
	hangs := record.DiskTrouble{Task: record.DiskLog, Code: catalog.LogFailed, Detail: "it hangs"}
	must.Do(t, noteDisk(s, map[record.DiskTask]*record.DiskTrouble{record.DiskLog: &hangs, record.DiskHistory: &full}, noon))
	all = must.Have(state.DiskTroubles.Load(s))(t)
	must.Not(t, len(all) != 2 || all[0].Task != record.DiskHistory || all[1].Task != record.DiskLog, "%+v", all)
	since := noon.Format(time.DateTime)
	must.Be(t, "words", all[1].Words(), "log: it hangs (1 times since "+since+")")
	must.Not(t, !strings.HasSuffix(all[0].Words(), " (4 times since "+since+"); 8 ended jobs are in no history"),
		"%s", all[0].Words())
	must.Do(t, noteDisk(s, map[record.DiskTask]*record.DiskTrouble{record.DiskHistory: nil, record.DiskLog: nil}, noon))
	must.Be(t, "over", len(state.DiskTroubles.PeekNode(s.Users.Run, "n1")), 0)
}
