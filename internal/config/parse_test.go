package config

import (
	"cmp"
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
	"bookend/test/must"
)

func TestNothingSaidIsTheDefault(t *testing.T) {
	for _, text := range []string{"", "\n", "# a comment\n", "---\n", "{}", "policy:\n", "version: 1"} {
		got, problems := Parse([]byte(text))
		must.Not(t, len(problems) > 0 || !reflect.DeepEqual(got, Default()),
			"%q: problems %v, config %+v", text, problems, got)
	}
}

func TestParseTakesOver(t *testing.T) {
	got, problems := Parse([]byte(`
mode: enforce
on_own_error: drain
paths: {run: /run/other}
nvidia:
  gpu_map: {0: GPU-a, 1: "0000:3b:00.0"}
slurm:
  shared_partitions: [debug, mps]
  run_in_job_backend: true
  shards: no
  gres_conf: /srv/slurm/gres.conf
deadlines: {epilog: {total: 1m}}
settle: {epilog: {stable: 3600ms}}
thresholds: {drain: 2 GiB, report: 65536KiB}
clean_up: {enabled: true, grace: 500ms}
drain: {reason_by: none, max_restarts: 0, resume: {after: 5}}
policy:
  epilog: {BKD-ORPHAN: warn}
  health_check: {BKD-EXTERNAL: drain}
  partitions:
    debug: {mode: observe, prolog: {BKD-LOST: note}}
log: {format: json, syslog: FALSE}
health: {external: {program: /opt/hv, arguments: [check, "--node class"], limit: 30s, drain_on: [7, 125]}}
`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	want := Default()
	want.Mode, want.OnOwnError = Enforce, Drain
	want.Paths.Run = "/run/other"
	want.NVIDIA.GPUMap = map[int]string{0: "GPU-a", 1: "0000:3b:00.0"}
	want.Slurm.SharedPartitions, want.Slurm.RunInJobBackend = []string{"debug", "mps"}, true
	want.Slurm.Shards, want.Slurm.GresConf = ShardsNo, "/srv/slurm/gres.conf"
	want.CleanUp = CleanUp{Enabled: true, Grace: seconds(0.5)}
	want.Deadlines.Epilog.Total = Duration(time.Minute)
	want.Settle.Epilog.Flat = seconds(3.6)
	want.Thresholds.Drain, want.Thresholds.Report = 2<<30, 64<<20
	want.Drain = DrainRules{ReasonBy: ReasonByNone, Resume: Resume{After: 5}}
	want.Policy.Epilog = map[catalog.Code]Action{catalog.Orphan: Warn}
	want.Policy.HealthCheck = map[catalog.Code]Action{catalog.External: Drain}
	want.Health.External = External{Program: "/opt/hv", Arguments: []string{"check", "--node class"}, Limit: seconds(30), DrainOn: []int{7, 125}}
	debug := PartitionPolicy{Mode: Observe, Prolog: map[catalog.Code]Action{catalog.Lost: Note}}
	want.Policy.Partitions = map[string]PartitionPolicy{"debug": debug}
	want.Log.Format, want.Log.Syslog = JSON, false
	must.Not(t, !reflect.DeepEqual(got, want), "got\n%+v\nwant\n%+v", got, want)
}

// Each file in configs/bad breaks one rule and says in "# want:" lines what is to be reported.
func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("../../configs/bad/*.yaml")
	must.Not(t, err != nil || len(files) < 20, "found %d bad files, %v", len(files), err)
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			text := []byte(must.Read(t, name))
			var want []string
			for line := range strings.Lines(string(text)) {
				if problem, ok := strings.CutPrefix(line, "# want: "); ok {
					want = append(want, strings.TrimSpace(problem))
				}
			}
			c, problems := Parse(text)
			var got []string
			for _, p := range problems {
				got = append(got, p.String())
			}
			must.Not(t, len(want) == 0 || !reflect.DeepEqual(got, want),
				"got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			must.Not(t, c.Mode != Observe || !reflect.DeepEqual(c.Policy, Default().Policy),
				"a bad file gave mode %q and policy %v", c.Mode, c.Policy)
		})
	}
}

func TestDegradedKeepsWhatSaysWhere(t *testing.T) {
	sections := []struct {
		good, bad string
		set       func(*Config)
	}{
		{"paths: {log: /srv/log}", "paths: {log: srv/log}", func(c *Config) { c.Paths.Log = "/srv/log" }},
		{"backend: /opt/gpu", "backend: gpu", func(c *Config) { c.Backend = "/opt/gpu" }},
		{"nvidia: {driver_proc: /srv/nv}", "nvidia: {driver_proc: nv}", func(c *Config) { c.NVIDIA.DriverProc = "/srv/nv" }},
		{"log: {format: json}", "log: {format: xml}", func(c *Config) { c.Log.Format = JSON }},
		{`metrics: {textfile: ""}`, "metrics: {textfile: x.prom}", func(c *Config) { c.Metrics.Textfile = "" }},
		{"mode: enforce", "mode: off", func(*Config) {}},
	}
	for spoilt := range sections {
		want, text := Default(), "policy: {epilog: {BKD-LOST: note}}\n"
		for i, s := range sections {
			if i == spoilt {
				text += s.bad + "\n"
				continue
			}
			text += s.good + "\n"
			s.set(&want)
		}
		got, problems := Parse([]byte(text))
		must.Not(t, len(problems) != 1 || !reflect.DeepEqual(got, want),
			"%s: got\n%v\n%+v\nwant\n%+v", text, problems, got, want)
	}
}

func TestLimits(t *testing.T) {
	if _, p := Parse(make([]byte, MaxBytes+1)); len(p) != 1 || p[0].Text != "longer than 256 KiB" {
		t.Errorf("too long: %v", p)
	}
	var many strings.Builder
	for i := range 500 {
		fmt.Fprintf(&many, "key%d: 1\n", i)
	}
	if _, p := Parse([]byte(many.String())); len(p) != maxProblems {
		t.Errorf("%d problems, want %d", len(p), maxProblems)
	}
	long := strings.Repeat("x", 10000)
	partition := "policy: {partitions: {" + long + ": {mode: observe}}}"
	for _, text := range []string{"mode: " + long, long + ": 1", partition, "*" + long} {
		_, p := Parse([]byte(text))
		must.Not(t, len(p) == 0 || len(p[0].String()) > 300, "%.30s…: %d problems, %.300s", text, len(p), p)
	}
}

// Each key can be read: its tag says what it may be, and its default is that.
func TestEveryKeyCanBeRead(t *testing.T) {
	for _, s := range Settings(nil) {
		text := nested(s.Key, s.Value)
		if got, problems := Parse([]byte(text)); len(problems) > 0 || !reflect.DeepEqual(emptied(got), emptied(Default())) {
			t.Errorf("%s: %v", text, problems)
		}
	}
}

// emptied is a configuration in which a map or list that is empty is none.
func emptied(c Config) Config {
	for _, v := range []any{&c.NVIDIA.GPUMap, &c.NVIDIA.MPSUIDs, &c.Slurm.SharedPartitions, &c.Policy.Partitions,
		&c.Health.External.Arguments, &c.Health.External.DrainOn, &c.Reset.Stop} {
		if at := reflect.ValueOf(v).Elem(); at.Len() == 0 {
			at.SetZero()
		}
	}
	return c
}

func TestUnits(t *testing.T) {
	for text, want := range map[string]Size{"0B": 0, "1KiB": 1 << 10, "1 GiB": 1 << 30, "1048576GiB": 1 << 50} {
		if got, ok := parseSize(text); !ok || got != want {
			t.Errorf("parseSize(%q) = %d, %v", text, got, ok)
		}
	}
	for _, text := range []string{
		"", "32", "MiB", "-1MiB", "+1B", "1.5GiB", "1e3B", "0x1B", "1_0B", "32MB", "32mib", "1048577GiB",
		"9223372036854775808B", "99999999999999999999B",
	} {
		if got, ok := parseSize(text); ok {
			t.Errorf("parseSize(%q) = %d", text, got)
		}
	}
	for size, want := range map[Size]string{0: "0B", 1: "1B", 1536: "1536B", 32 << 20: "32MiB", 3 << 40: "3072GiB"} {
		must.Not(t, size.String() != want, "%d is written %s, want %s", size, size, want)
	}
}

// A single word is as good as a section.
func TestJobLog(t *testing.T) {
	for text, want := range map[string]Show{
		"all":                           ShowAll,
		"none":                          ShowNone,
		"{show: problems, read: false}": ShowProblems,
		"{privacy: jobs}":               ShowSummary,
	} {
		c, problems := Parse([]byte("job_log: " + text))
		must.Not(t, len(problems) > 0 || c.JobLog.Show != want,
			"%s: %q, want %q; %v", text, c.JobLog.Show, want, problems)
	}
	if _, problems := Parse([]byte("job_log: some")); len(problems) != 1 {
		t.Errorf("%v", problems)
	}
}

// A setting has the line that sets it.
func TestSettings(t *testing.T) {
	const text = `mode: enforce
settle:
  epilog: {max: 4s}
policy:
  epilog: {BKD-STRAY: warn, BKD-ORPHAN: note}
  partitions: {debug: {mode: observe}}
nvidia: {gpu_map: {1: GPU-b, 0: GPU-a}}
slurm: {shared_partitions: [a, b]}
job_log: all
`
	got := map[string]Setting{}
	for _, s := range Settings([]byte(text)) {
		got[s.Key] = s
	}
	for key, want := range map[string]Setting{
		"mode":                    {Value: "enforce", Line: 1},
		"settle.epilog.max":       {Value: "4s", Line: 3},
		"settle.prolog.max":       {Value: Default().Settle.Prolog.Max.String()},
		"policy.epilog":           {Value: "{BKD-ORPHAN: note, BKD-STRAY: warn}", Line: 5},
		"policy.partitions":       {Value: "{debug: {mode: observe}}", Line: 6},
		"nvidia.gpu_map":          {Value: "{0: GPU-a, 1: GPU-b}", Line: 7},
		"slurm.shared_partitions": {Value: "[a, b]", Line: 8},
		"thresholds.drain":        {Value: "512MiB"},
		"help_url":                {Value: `""`},
		"job_log.show":            {Value: "all", Line: 9},
		"job_log.privacy":         {Value: "own"},
	} {
		want.Key = key
		must.Be(t, key, got[key], want)
	}
	for _, s := range Settings([]byte("mode: enforce\nnonsense: 1\n")) {
		must.Not(t, s.Key == "mode" && (s.Value != "observe" || s.Line != 0), "of a file with a mistake: %+v", s)
	}
}

// A text is refused, and then can drain nothing, or contradicts itself nowhere.
func FuzzParse(f *testing.F) {
	f.Add([]byte(must.Read(f, manual)))
	bad, err := filepath.Glob("../../configs/bad/*.yaml")
	if err != nil || len(bad) == 0 {
		f.Fatal("no bad configurations: ", err)
	}
	for _, name := range bad {
		f.Add([]byte(must.Read(f, name)))
	}
	for _, seed := range []string{
		"", "version: 1\n", "a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]\n",
		"? {a: b}\n: c\n<<: {mode: enforce}\n", "\xff\xfe\x00", "mode: enforce\npolicy: {epilog: {BKD-ORPHAN: " +
			"drain}}\n",
		"policy: {partitions: {gpu: {mode: observe, prolog: {BKD-LOST: warn}}}}\n",
		"nvidia: {gpu_map: {0: GPU-1, 1: \"0000:1b:00.0\"}}\nslurm: {shared_partitions: [a, b]}\n",
		"version: 1\nthresholds: {report: 64MiB, drain: 1GiB}\nsettle:\n  prolog: {max: 1.5s, stable: 300ms}\n",
		"\"\\e[2J\\u202e\": 1\nversion: \"\\x07\"\n", "version: 1\n---\nversion: 1\n", "version: 1\n\tmode: x\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, problems := Parse(data)
		if len(problems) > 0 {
			refused(t, c, problems)
			return
		}
		r := reader{lines: map[string]int{}}
		if r.check(&c); len(r.problems) > 0 {
			t.Fatalf("accepted with %v", r.problems)
		}
	})
}

// refused: a bad configuration cannot drain, and what is wrong with it can be shown.
func refused(t *testing.T, c Config, problems []Problem) {
	t.Helper()
	d := Default()
	if c.Mode != Observe || c.OnOwnError != Warn || !reflect.DeepEqual(c.Policy, d.Policy) || c.CleanUp != d.CleanUp {
		t.Fatalf("a bad configuration could drain, or end processes: %+v", c)
	}
	must.Not(t, len(problems) > maxProblems+1, "%d problems", len(problems))
	for _, p := range problems {
		if s := p.String(); len(s) > 2048 || p.Text == "" || !plain(s) {
			t.Fatalf("problem %q", s)
		}
	}
}

// What 1.0.0 could say still loads, with a word about each key that is called something else now or has no effect.
func TestFormerKeys(t *testing.T) {
	defaults := map[string]string{}
	for _, s := range Settings(nil) {
		defaults[s.Key] = s.Value
	}
	texts := map[string]string{"policy.partitions.debug.epilog.BKD-BARMAP": "drain", "policy.prolog.BKD-BARMAP": "warn"}
	for key, now := range former {
		section := key[:strings.LastIndexByte(key, '.')+1]
		texts[key] = cmp.Or(defaults[section+now], "{holders: false}")
		must.Not(t, now != "" && defaults[section+now] == "", "%s is called %s now, which is no key", key, section+now)
	}
	for key, value := range texts {
		text := nested(key, value)
		got, problems := Parse([]byte(text))
		must.Not(t, len(problems) > 0 || len(got.Unused) != 1 || got.Unused[0].Key != key || got.Unused[0].Line != 1,
			"%s: problems %v, unused %v", text, problems, got.Unused)
		got.Unused, got.Policy = nil, Policy{}
		must.Not(t, !reflect.DeepEqual(got, Default()), "%s gives %+v", text, got)
	}
	got, problems := Parse([]byte("on_unknown: drain\nsettle: {epilog: {flat: 3600ms}}\n"))
	must.Not(t, len(problems) > 0 || got.OnOwnError != Drain || got.Settle.Epilog.Flat != seconds(3.6),
		"%v, %+v", problems, got)
}

// A key under both its names would be two values.
func TestOldAndNewName(t *testing.T) {
	if _, problems := Parse([]byte("drain: {reason_by: hook, \"\": none}\n")); len(problems) != 1 {
		t.Errorf("an empty key: %v", problems)
	}
	for _, text := range []string{"on_unknown: drain\non_own_error: warn\n", "on_own_error: warn\non_unknown: drain\n"} {
		if _, problems := Parse([]byte(text)); len(problems) != 1 || problems[0].Line != 2 {
			t.Errorf("%q: %v", text, problems)
		}
	}
}

const (
	manual = "../../configs/bookend.yaml"
	doc    = "../../docs/config.md"
)

// The shipped file says what is so anyway, and is short enough to be read.
func TestShippedFileIsTheDefault(t *testing.T) {
	text := []byte(must.Read(t, manual))
	got, problems := Parse(text)
	for _, p := range problems {
		t.Error(p)
	}
	want := Default()
	// Present and empty in the file, so that their keys can be seen.
	want.Policy.Partitions, want.Slurm.SharedPartitions = map[string]PartitionPolicy{}, []string{}
	got.Policy.Partitions = map[string]PartitionPolicy{}
	must.Not(t, !reflect.DeepEqual(got, want), "%s gives\n%+v\nwant\n%+v", manual, got, want)
	if n := strings.Count(string(text), "\n"); n > 25 {
		t.Errorf("%s has %d lines", manual, n)
	}
}

var docRow = regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\| (?:`(.*?)`)? ?\\|")

// The document has each key with its default, and no other.
func TestEveryKeyIsDocumented(t *testing.T) {
	rows := map[string]string{}
	for _, row := range docRow.FindAllStringSubmatch(must.Read(t, doc), -1) {
		if row[2] != "" { // a section has none
			rows[row[1]] = row[2]
		}
	}
	keys := Settings(nil)
	must.Not(t, len(keys) < 40, "found only %d keys in Config", len(keys))
	for _, s := range keys {
		must.Not(t, rows[s.Key] != s.Value,
			"%s has %q, want a row that begins | `%s` | `%s` |", doc, rows[s.Key], s.Key, s.Value)
		delete(rows, s.Key)
	}
	must.Not(t, len(rows) > 0, "%s has rows of keys that do not exist: %q", doc, rows)
}

// The longest duration and a huge number are refused for each key, by the bounds in its tag or by a comparison.
func TestEveryNumberIsBounded(t *testing.T) {
	for _, s := range Settings(nil) {
		huge := "1000000000"
		if _, err := time.ParseDuration(s.Value); err == nil {
			huge = "99999h"
		} else if _, err := strconv.Atoi(s.Value); err != nil {
			continue
		}
		if _, problems := Parse([]byte(nested(s.Key, huge))); len(problems) == 0 {
			t.Errorf("%s may be %s: give its field bounds (allow)", s.Key, huge)
		}
	}
}

// nested is a configuration with one key.
func nested(key, value string) string {
	return strings.ReplaceAll(key, ".", ": {") + ": " + value + strings.Repeat("}", strings.Count(key, "."))
}

// The drains as shipped, in full: a change here changes what takes nodes away from users.
func TestShippedDrains(t *testing.T) {
	want := map[string][]catalog.Code{
		"prolog": {catalog.Lost},
		"epilog": {
			catalog.Orphan, catalog.Residue, catalog.Phantom, catalog.Stray, catalog.Lost, catalog.Bits, catalog.Recovery,
			catalog.RemapFailed, catalog.XidFatal,
		},
		"leftovers": {catalog.Orphan, catalog.Residue, catalog.Phantom, catalog.Stray},
		"check":     nil,
	}
	got := map[string][]catalog.Code{"check": nil}
	for _, e := range catalog.All() {
		for of, is := range map[string]bool{
			"prolog": e.Start == Drain, "epilog": e.End == Drain, "check": e.Check() == Drain,
			"leftovers": e.End == Drain && e.Group() == catalog.Leftovers,
		} {
			if is {
				got[of] = append(got[of], e.Code)
			}
		}
	}
	for of, codes := range got {
		for _, c := range codes {
			must.Not(t, !slices.Contains(want[of], c), "%s drains by default (%s): list it here if that is meant", c, of)
		}
		must.Not(t, len(codes) != len(want[of]), "%s: %q drain by default, want %q", of, codes, want[of])
	}
}

// promise is the README's, of the default configuration.
var promise = regexp.MustCompile(`prolog\b[^.|]*?\s(\d+) s\b[^.|]*?epilog\b[^.|]*?\s(\d+) s\b`)

// What the README promises of hooks, and of what is off, is the default configuration's.
func TestPromisedDeadlines(t *testing.T) {
	m := promise.FindStringSubmatch(must.Read(t, "../../README.md"))
	if m == nil {
		t.Fatal("README.md does not say how long a prolog and an epilog may take")
	}
	d := Default().Deadlines
	must.Not(t, Default().CleanUp.Enabled || Default().Drain.Resume.Enabled,
		"clean-up and resume are promised to be off")
	for said, total := range map[string]Duration{string(m[1]): d.Prolog.Total, string(m[2]): d.Epilog.Total} {
		if seconds, err := strconv.Atoi(said); err != nil || Duration(seconds)*Duration(time.Second) != total {
			t.Errorf("README.md promises %s s, the default is %v", said, total)
		}
	}
}

// What of an admin's policy counts: the partition's, the file's, then the catalogue's.
func TestAction(t *testing.T) {
	c, problems := Parse([]byte(`
drain_on: [faults]
policy:
  prolog: {BKD-DIRTY: note}
  epilog: {BKD-STRAY: drain, BKD-ORPHAN: note}
  health_check: {BKD-TRESPASS: ignore}
  partitions: {own: {epilog: {BKD-ORPHAN: drain}}}
`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for _, tt := range []struct {
		phase     slurm.Context
		partition string
		of        catalog.Code
		want      Action
	}{
		{slurm.Prolog, "", catalog.Dirty, Note},
		{slurm.Prolog, "", catalog.Lost, Drain},
		{slurm.Epilog, "", catalog.Dirty, Note},
		{slurm.Epilog, "", catalog.Lost, Drain},
		{slurm.Epilog, "", catalog.Residue, Warn}, // its group drains not
		{slurm.Epilog, "", catalog.Stray, Drain},  // by name it does
		{slurm.Epilog, "", catalog.Orphan, Note},
		{slurm.Epilog, "own", catalog.Orphan, Drain},
		{slurm.HealthCheck, "own", catalog.Orphan, Warn},
		{slurm.HealthCheck, "", catalog.Trespass, Ignore},
		{slurm.Epilog, "", "BKD-NEW", Warn},
	} {
		must.Be(t, fmt.Sprintf("%s of %s in %q", tt.of, tt.phase, tt.partition), c.Action(tt.phase, tt.partition, tt.of), tt.want)
	}
}

// The configuration knows AMD's GPUs by the name that package gpu gives them.
func TestVendorName(t *testing.T) {
	if amd != gpu.AMD.Name {
		t.Errorf("amd is %q, package gpu says %q", amd, gpu.AMD.Name)
	}
}

// A misspelt name gets the one that is most like it, if any is.
func TestClosest(t *testing.T) {
	known := []string{"main", "debug", "gpu-h100", "a"}
	for name, want := range map[string]string{"mian": "main", "dbug": "debug", "DEBUG": "debug", "h100": "", "gpu-h200": "gpu-h100",
		"gpuh10": "gpu-h100", "b": "a", "": "", "xyz": "", "mainframe": "", strings.Repeat("x", 1<<16): ""} {
		must.Be(t, name, Closest(name, known), want)
	}
}
