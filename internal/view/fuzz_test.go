package view

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/config"
	"bookend/internal/record"
	"bookend/internal/safetext"
)

// show writes everything that is shown of a run.
func show(w io.Writer, run record.Run, path, name string) {
	runs := []record.Run{run, run}
	safetext.KeepAll(NewShow(name, name, runs, runs, nil), 400).Text(w)
	safetext.KeepAll(NewHistory(name, runs, runs, 1), 400).Text(w)
	safetext.KeepAll(NewOffenders(name, runs), 400).Text(w)
	safetext.KeepAll(NewOwnReport("node", name, path, false, "its report\n"+path, path, ""), 400).Text(w)
	for _, e := range run.Ends {
		who := map[int]record.Process{}
		for _, p := range e.Processes {
			who[p.PID] = p
		}
		at := func(boot time.Duration) time.Time { return e.Wall.Add(boot) }
		scene := Readings{Now: e.Snapshot, Who: who, At: at, Runs: runs}
		safetext.KeepAll(NewSnapshot(scene, path), 400).Text(w)
		s := Status{Node: name, Mode: string(config.Observe), GPUs: NewGPUs(scene), Damaged: []string{path}, Drain: name,
			Driver: &DriverStatus{Release: name, Problem: path}, Slurm: &SlurmNode{State: name, Reason: name, By: path},
			Recorder: &Recorder{Problem: path}}
		s.AddTrouble("", path)
		s.AddTrouble(catalog.Stuck, name)
		safetext.KeepAll(NewStatus(s, runs), 400).Text(w)
	}
}

// Where a text from outside may stand it is cleaned: it begins no line of its own, and needs no Terminal.
func FuzzOutside(f *testing.F) {
	f.Add("python3")
	f.Add("\x1b[2J\n\r\u202e\xff\\")
	f.Add("\nend: 2026-11-21 07:00:00, clean")
	f.Fuzz(func(t *testing.T, text string) {
		quoted, err := json.Marshal(text + "\n\x1bFORGED")
		if err != nil {
			t.Fatal(err)
		}
		var run record.Run
		if err := json.Unmarshal([]byte(strings.ReplaceAll(outside, "OUTSIDE", strings.Trim(string(quoted), `"`))),
			&run); err != nil {
			return // a text of quotes alone
		}
		var b strings.Builder
		show(&b, run, text+"\n\x1bFORGED", text+"\n\x1bFORGED")
		if i := slices.IndexFunc([]byte(b.String()),
			func(c byte) bool { return c != '\n' && (c < ' ' || c > '~') }); i >= 0 {
			t.Fatalf("byte %#x behind %q", b.String()[i], b.String()[max(0, i-80):i])
		}
		if i := strings.Index(b.String(), "\nFORGED"); i >= 0 || len(text) < short &&
			!strings.Contains(b.String(), "FORGED") {
			t.Fatalf("a line of somebody else's at %d of %.2000q", i, b.String())
		}
	})
}

// short is a text of which no line cuts off what is behind it.
const short = 8

// outside is a record in which OUTSIDE stands wherever a hook takes over what a user, a process or a backend says.
const outside = `{"version":1,"key":"t5","job":{"id":7,"node":"n1","user":"OUTSIDE","partition":"OUTSIDE","work_dir":"OUTSIDE"},
"devices":[{"index":0,"device":{"id":"OUTSIDE","name":"OUTSIDE"}}],
"ends":[{"at_ns":5,"wall":"2026-11-21T07:00:00Z","snapshot":{"readings":[{"device":{"id":"OUTSIDE"},"memory":{"used":{"bytes":5},"free":{"unknown":"OUTSIDE"}},
"processes":[{"pid":7,"memory":{"bytes":1}}],"processes_unknown":"OUTSIDE"}],"faults":[{"code":"lost","device":"OUTSIDE"}]},
"processes":[{"pid":7,"name":"OUTSIDE","state":"S","start_ns":3,"exe":"OUTSIDE"}],
"health":[{"device":"OUTSIDE","facts":[{"code":"recovery_action","value":"OUTSIDE","unknown":"OUTSIDE","source":"OUTSIDE"}]}],
"kernel":{"xids":[{"bus_id":"0000:1b:00.0","code":79,"name":"OUTSIDE","text":"OUTSIDE"}],"kills":[{"pid":7,"name":"OUTSIDE","cgroup":"OUTSIDE"}],"unknown":"OUTSIDE","mismatch":"OUTSIDE"},
"probes":[{"device":"OUTSIDE","result":"broken","why":"OUTSIDE","error":{"call":"OUTSIDE","name":"OUTSIDE","meaning":"OUTSIDE","remedy":"OUTSIDE"}},{"device":"OUTSIDE","result":"skipped","why":"OUTSIDE"}],
"messages":[{"kind":"device","framework":"PyTorch","line":"OUTSIDE","count":2,"asked":{"unknown":"OUTSIDE"}}],
"diagnosis":{"reason":"message","headline":"OUTSIDE","causes":[{"name":"pool","answer":"yes","evidence":"OUTSIDE"}],"try":["OUTSIDE"]},
"findings":[{"code":"BKD-ORPHAN","gpu":"OUTSIDE","observed":"OUTSIDE","holder":{"pid":7,"name":"OUTSIDE","service":"OUTSIDE","container":"OUTSIDE","exe":"OUTSIDE","open":["OUTSIDE"]},
"owner":{"job":5,"level":"cgroup"},"candidates":[{"pid":8,"why":"OUTSIDE"}],"doubts":["OUTSIDE"]},{"code":"BKD-UNREAD","unknown":"OUTSIDE"}],
"verdict":{"action":"drain","code":"BKD-ORPHAN","held":"OUTSIDE","judged":[{"action":"drain","why":"OUTSIDE"}]}}]}`
