package metrics

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/test/golden"
	"bookend/test/must"
)

var update = flag.Bool("update", false, "rewrite docs/metrics.md and testdata/bookend.prom")

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// at is a run of a hook, minutes after noon, that found troubles.
func at(minute int, hook Hook, troubles ...catalog.Code) JobRun {
	r := JobRun{Version: "1.2", Hook: hook, Job: 7, At: noon.Add(time.Duration(minute) * time.Minute), Action: config.Note}
	for _, c := range troubles {
		r.Findings = append(r.Findings, Finding{Code: c, Own: true, Detail: "seen in minute " + strconv.Itoa(minute)})
	}
	return r
}

// host is a folder of root's, as a node has it.
func host(t *testing.T) Files {
	t.Helper()
	dir := must.RootsDir(t)
	return Files{Var: filepath.Join(dir, "var"), Textfile: filepath.Join(dir, "var/bookend.prom")}
}

func recordRuns(t *testing.T, f Files, runs ...JobRun) {
	t.Helper()
	for _, r := range runs {
		must.Do(t, Record(f, r))
	}
}

// shown are the series of the textfile, which must be of the exposition format.
func shown(t *testing.T, f Files) map[string]float64 {
	t.Helper()
	return must.Have(parse(must.Read(t, f.Textfile)))(t)
}

// Runs of every kind, and the whole textfile that they come to: testdata/bookend.prom, in which troubles that were not
// met are left out but for one. A bound belongs to its bucket. What a health check saw stands until the next one, which reads another number of GPU-a, and less.
func TestTextfile(t *testing.T) {
	f := host(t)
	if s, err := Read(f.Var); err != nil || len(s.Last)+len(s.Troubles) > 0 {
		t.Errorf("before the first run: %+v, %v", s, err)
	}
	drained, held := at(3, Epilog), at(4, Epilog)
	drained.Action, drained.Findings = config.Drain, []Finding{{Code: catalog.Orphan}, {Code: catalog.Orphan}}
	held.Action, held.Held = config.Warn, true
	held.Quarantined = []GPUJob{{Job: 9, Slurm: 3, UUID: "GPU-c"}, {Job: 8, Slurm: 2}}
	held.Version = "1.3\n\"\\" // an update: there is one version, not two
	end := at(5, Epilog)
	end.Mode, end.Took = "observe", 120*time.Millisecond
	for _, bound := range settleBounds {
		took := time.Duration(bound * float64(time.Second))
		end.Settled = append(end.Settled, took, took+time.Millisecond)
	}
	end.OutOfMemory = []record.CauseName{record.CauseOwn, record.CauseShare}
	end.Settled = append(end.Settled, -time.Second) // a clock that stepped back
	a, b, one := gpu.Device{ID: "GPU-a"}, gpu.Device{ID: "GPU-b"}, gpu.Bytes(1<<30)
	both := map[gpu.ID]uint64{"GPU-a": 1, "GPU-b": 1}
	recordRuns(t, f, at(0, Prolog), at(1, Epilog, catalog.BackendMissing, catalog.NoDriver), at(2, Prolog, catalog.BackendMissing),
		drained, end, checked(6, record.Check{Cards: []record.Assigned{{Index: 0, Device: a}, {Index: 1, Device: b}},
			Unexplained: both, Leaked: both}, one, one),
		checked(7, record.Check{Cards: []record.Assigned{{Index: -1, Device: a}, {Index: 1, Device: b}},
			Unexplained: map[gpu.ID]uint64{"GPU-b": 1}}, gpu.Bytes(0)))
	for _, again := range []bool{false, true, true} { // a fault that stands: the node is drained once
		check := checked(7, record.Check{Cards: []record.Assigned{{Index: -1, Device: a}}}, gpu.Bytes(0))
		check.Action, check.Again = config.Drain, again
		recordRuns(t, f, check)
	}
	recordRuns(t, f, held)
	shown(t, f)
	unmet := regexp.MustCompile(`bookend_own_errors_total\{code="BKD-([^P]|P[^A])[^"]*"\} 0\n`)
	got := unmet.ReplaceAll(must.Have(os.ReadFile(f.Textfile))(t), nil)
	golden.File(t, *update, "testdata/bookend.prom", string(got))
	recordRuns(t, f, checked(8, record.Check{})) // the driver could not be asked
	gauges := regexp.MustCompile(`(?m)^bookend_gpu_.*$`).FindAllString(must.Read(t, f.Textfile), -1)
	must.Not(t, len(gauges) > 0, "%q", gauges)
	if s, err := Read(f.Var); err != nil || !s.Last[HealthCheck].Equal(noon.Add(8*time.Minute)) {
		t.Errorf("%v, %v", s.Last, err)
	}
}

// A trouble goes on until there was a day without it.
func TestTroublesOverTime(t *testing.T) {
	const refused, missing, day = catalog.BackendRefused, catalog.BackendMissing, 24 * 60
	for name, tt := range map[string]struct {
		runs []JobRun
		want string // since and last in minutes after noon, how many runs by which hook, how many without it since
	}{
		"once":           {[]JobRun{at(1, Prolog, refused)}, "1 to 1: 1, prolog; 0"},
		"twice in a run": {[]JobRun{at(1, Prolog, refused, refused)}, "1 to 1: 1, prolog; 0"},
		"by both":        {[]JobRun{at(1, Prolog, refused), at(2, Epilog, refused)}, "1 to 2: 2, epilog; 0"},
		"by one of two": {[]JobRun{at(1, Epilog, refused), at(2, Prolog), at(day, Epilog, refused), at(day+1, Prolog)},
			"1 to 1440: 2, epilog; 1"},
		"over": {[]JobRun{at(1, Epilog, refused), at(2, Prolog), at(3, Epilog)}, "1 to 1: 1, epilog; 2"},
		"back": {[]JobRun{at(1, Epilog, refused), at(9, Epilog, missing), at(day+2, Epilog, refused)},
			"1442 to 1442: 1, epilog; 0"},
		"clock stepped back": {[]JobRun{at(9, Epilog, refused), at(1, Epilog, refused)}, "9 to 1: 2, epilog; 0"},
	} {
		f := host(t)
		recordRuns(t, f, tt.runs...)
		state := must.Have(Read(f.Var))(t)
		got := state.Troubles[slices.IndexFunc(state.Troubles, func(x Trouble) bool { return x.Code == refused })]
		since, last := got.Since.Sub(noon).Minutes(), got.Last.Sub(noon).Minutes()
		text := fmt.Sprintf("%v to %v: %d, %s; %d", since, last, got.Count, got.Hook, got.Clear)
		if seen := fmt.Sprintf("seen in minute %v", last); text != tt.want || string(got.Detail) != seen || got.Job != 7 {
			t.Errorf("%s: %s, %q of job %d, want %s, %q", name, text, got.Detail, got.Job, tt.want, seen)
		}
	}
}

// What this release does not know is dropped, after a downgrade; its own counts go on.
func TestCountersOfALaterRelease(t *testing.T) {
	f := host(t)
	recordRuns(t, f, at(0, Prolog, catalog.BadConfig))
	data := must.Read(t, f.book())
	later := strings.NewReplacer(`"version":1`, `"version":1,"fleet":{"nodes":[1,2]}`,
		`"samples":[`, `"samples":[{"name":"bookend_heat_kelvin","labels":["0","GPU-a"],"value":-3,"unit":"K"},`,
		`"troubles":[`, `"troubles":[{"code":"BKD-NEW-KIND","count":4,"hook":"night_watch","mood":"bad"},`)
	must.Do(t, os.WriteFile(f.book(), []byte(later.Replace(data)), 0o600))
	recordRuns(t, f, at(1, Prolog))
	data = must.Read(t, f.book())
	must.Not(t, strings.Contains(data, "heat") || strings.Contains(data, "NEW"), "%s", data)
	wants(t, shown(t, f), map[string]float64{
		`bookend_hook_runs_total{hook="prolog",action="note"}`: 2,
		`bookend_own_errors_total{code="BKD-CONFIG"}`:          1,
		`bookend_own_errors_total{code="BKD-ST-DAMAGED"}`:      0,
	})
}

// Whatever lies where the counts should be is said and replaced, and counting goes on.
func TestDamagedCounts(t *testing.T) {
	f := host(t)
	recordRuns(t, f, at(0, Prolog))
	whole, label := must.Read(t, f.book()), `{"name":"`+drains+`","labels":["a"]}`
	put := func(text string) func() { return func() { must.Do(t, os.WriteFile(f.book(), []byte(text), 0o600)) } }
	for name, damage := range map[string]func(){
		"empty": put(""), "cut off": put(whole[:len(whole)/2]), "null": put("null"), "huge": put(strings.Repeat(" ", maxBook+1)),
		"newer":     put(strings.Replace(whole, `"version":1`, `"version":2`, 1)),
		"negative":  put(strings.Replace(whole, `"value":1`, `"value":-1`, 1)),
		"twice":     put(`{"version":1,"samples":[` + label + "," + label + "]}"),
		"a label":   put(`{"version":1,"samples":[{"name":"` + drains + `","value":1}]}`),
		"another's": func() { put(whole)(); must.Do(t, os.Chown(f.book(), 65534, 65534)) },
		"writable":  func() { put(whole)(); must.Do(t, os.Chmod(f.book(), 0o666)) },
	} {
		t.Log(name)
		must.Do(t, os.RemoveAll(f.book()))
		damage()
		must.Fail(t, name, Record(f, at(1, Epilog)), ErrDamaged)
		wants(t, shown(t, f), map[string]float64{
			`bookend_hook_runs_total{hook="epilog",action="note"}`: 1,
			`bookend_own_errors_total{code="BKD-ST-DAMAGED"}`:      1,
		})
		recordRuns(t, f, at(2, Epilog))
		must.Be(t, name+": runs afterwards", shown(t, f)[`bookend_hook_runs_total{hook="epilog",action="note"}`], 2)
	}
	must.Do(t, os.WriteFile(f.book(), []byte("{"), 0o600))
	must.Fail(t, "reading", must.Err(Read(f.Var)), ErrDamaged)
	must.Be(t, "the counts, read", must.Read(t, f.book()), "{")
}

func (f Files) book() string { return filepath.Join(f.Var, folderName, bookName) }

// A folder that others can write to, or that is not there, gets no file; the counts go on, and the failure is among
// them.
func TestTextfileIsOnlyWrittenWhereRootAloneCanWrite(t *testing.T) {
	for name, harm := range map[string]func(folder string) error{
		"missing":        os.Remove,
		"another's":      func(folder string) error { return os.Chown(folder, 65534, 0) },
		"open to all":    func(folder string) error { return os.Chmod(folder, 0o777|os.ModeSticky) },
		"below a user's": func(folder string) error { return os.Chown(filepath.Dir(folder), 65534, 0) },
	} {
		f := host(t)
		folder := filepath.Join(filepath.Dir(f.Var), "exporter/textfiles")
		must.Do(t, os.MkdirAll(folder, 0o755))
		f.Textfile = filepath.Join(folder, "bookend.prom")
		must.Do(t, harm(folder))
		written := Record(f, at(0, Prolog))
		if _, err := os.Lstat(f.Textfile); written == nil || err == nil {
			t.Errorf("%s: the file is there: %v, %v", name, written, err)
		}
		s := must.Have(Read(f.Var))(t)
		if len(s.Troubles) != 1 || s.Troubles[0].Code != catalog.StateWrite ||
			!strings.Contains(string(s.Troubles[0].Detail), "write metrics") {
			t.Errorf("%s: %+v", name, s.Troubles)
		}
	}
}

// What killed writers leave goes; what is not theirs stays. node_exporter can read the file, nobody the counts.
func TestFilesInTheFolders(t *testing.T) {
	f := host(t)
	recordRuns(t, f, at(0, Prolog))
	for _, dir := range []string{f.Var, filepath.Dir(f.book())} {
		for _, name := range []string{".tmp-0123456789abcdef", ".tmp-mine", "other.prom"} {
			must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o644))
		}
	}
	recordRuns(t, f, at(1, Prolog))
	for _, dir := range []string{f.Var, filepath.Dir(f.book())} {
		for name, stays := range map[string]bool{".tmp-0123456789abcdef": false, ".tmp-mine": true,
			"other.prom": true} {
			if _, err := os.Stat(filepath.Join(dir, name)); errors.Is(err, fs.ErrNotExist) == stays {
				t.Errorf("%s in %s: %v", name, dir, err)
			}
		}
	}
	for path, want := range map[string]fs.FileMode{
		f.Textfile: 0o644, f.book(): 0o600, filepath.Dir(f.book()): 0o700 | fs.ModeDir, f.Var: 0o755 | fs.ModeDir,
	} {
		if st, err := os.Stat(path); err != nil || st.Mode() != want {
			t.Errorf("%s: %v %v, want %v", path, st.Mode(), err, want)
		}
	}
	f.Textfile = ""
	recordRuns(t, f, at(2, Prolog))
}

// However much is found, the file of counts stays below its bound.
func TestCountsAreBounded(t *testing.T) {
	f := host(t)
	r := at(0, Epilog)
	for _, e := range catalog.All() {
		r.Findings = append(r.Findings, Finding{Code: e.Code, Own: true, Detail: strings.Repeat("\x00\xff\"\\", 1000)})
	}
	recordRuns(t, f, r)
	must.Not(t, len(must.Read(t, f.book())) > maxBook/4, "more than %d bytes", maxBook/4)
	shown(t, f)
}

func FuzzDecode(f *testing.F) {
	b := book{Version: bookVersion}
	b.add(at(1, Prolog, catalog.BadConfig))
	data, err := json.Marshal(b)
	must.Do(f, err)
	f.Add(data)
	f.Add([]byte(`{"version":1,"samples":[{"name":"bookend_drains_total","labels":["\n\"\\\u0000"],"value":1e300}]}`))
	f.Add([]byte(`{"version":1,"epoch":[{}],"samples":[{"name":"bookend_new","value":1,"unit":"K"}],` +
		`"troubles":[{"code":"BKD-NEW"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := decode(data)
		if err != nil {
			return
		}
		again := must.Have(json.Marshal(got))(t)
		if _, err := decode(again); err != nil {
			t.Fatalf("%v: %q, written again as %q", err, data, again)
		}
		got.add(at(2, Epilog, catalog.BadConfig, catalog.Hang))
		must.Have(parse(string(text(got, "v"))))(t)
	})
}

// Lines of the text exposition format, without time stamps.
var (
	sampleForm = regexp.MustCompile(`^([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? ([0-9.]+)\n$`)
	headForm   = regexp.MustCompile(`^# (HELP bookend_[a-z_]+ [ -\[\]-~]+|TYPE bookend_[a-z_]+ (counter|gauge|histogram))\n$`)
)

// parse reads that format strictly, no series twice. In which order its lines are testdata/bookend.prom shows.
func parse(text string) (map[string]float64, error) {
	series := map[string]float64{}
	for line := range strings.Lines(text) {
		m := sampleForm.FindStringSubmatch(line)
		if m == nil && !headForm.MatchString(line) {
			return nil, fmt.Errorf("%q is no line of the format", line)
		}
		if m == nil {
			continue
		}
		key := m[1] + "{" + m[2] + "}"
		if _, twice := series[key]; twice {
			return nil, fmt.Errorf("%s stands twice", key)
		}
		value, err := strconv.ParseFloat(m[3], 64)
		if series[key] = value; err != nil {
			return nil, err
		}
	}
	return series, nil
}

func wants(t *testing.T, got map[string]float64, want map[string]float64) {
	t.Helper()
	for series, value := range want {
		if have, is := got[series]; !is || have != value {
			t.Errorf("%s is %v (%v), want %v", series, have, is, value)
		}
	}
}

// checked is a health check that saw so much in use on each card.
func checked(minute int, c record.Check, used ...gpu.Figure) JobRun {
	for i, f := range used {
		d := gpu.Device{ID: c.Cards[i].Device.ID}
		c.Snapshot.Readings = append(c.Snapshot.Readings, gpu.Reading{Device: d, Memory: gpu.Memory{Used: f}})
	}
	r := at(minute, HealthCheck)
	r.Job, r.Action, r.Check = 0, config.Ignore, &c
	return r
}

// The table in docs/metrics.md is that of the families. No label names a job, a user or a process, but for the one that
// is off by default.
func TestMetricsDoc(t *testing.T) {
	table := "| metric | labels | kind | meaning |\n| --- | --- | --- | --- |\n"
	for _, name := range slices.Sorted(maps.Keys(families())) {
		f := families()[name]
		must.Not(t, strings.HasSuffix(name, "_total") != (f.kind == "counter"), "%s is a %s", name, f.kind)
		for _, label := range f.labels {
			must.Not(t, name != gpuJobInfo && regexp.MustCompile(`job|(^|[^u])uid|pid|user|^le$`).MatchString(label),
				"%s has the label %s", name, label)
		}
		table += fmt.Sprintf("| `%s` | %s | %s | %s |\n", name, strings.Join(f.labels, ", "), f.kind, f.help)
	}
	golden.Part(t, *update, "../../docs/metrics.md", "<!-- metrics: generated by go test ./internal/metrics -update -->",
		"<!-- end of metrics -->", table)
}
