package config

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"bookend/internal/code"
	"bookend/internal/slurm"
)

var update = flag.Bool("update", false, "rewrite docs/config.md")

const (
	manual = "../../configs/bookend.yaml"
	doc    = "../../docs/config.md"
)

// The shipped file says what is so anyway, and is short enough to be read.
func TestShippedFileIsTheDefault(t *testing.T) {
	text := readFile(t, manual)
	got, problems := Parse(text)
	for _, p := range append(problems, got.Unused...) {
		t.Error(p)
	}
	want := Default()
	// Present and empty in the file, so that their keys can be seen.
	want.Policy.Partitions, want.Slurm.SharedPartitions = map[string]PartitionPolicy{}, []string{}
	got.Policy.Partitions = map[string]PartitionPolicy{}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s gives\n%+v\nwant\n%+v", manual, got, want)
	}
	if n := strings.Count(string(text), "\n"); n > 25 {
		t.Errorf("%s has %d lines", manual, n)
	}
}

var docRow = regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\| (?:`(.*?)`)? ?\\|")

// The document has each key with its default, and no other.
func TestEveryKeyIsDocumented(t *testing.T) {
	got := map[string]string{}
	for _, row := range docRow.FindAllStringSubmatch(string(readFile(t, doc)), -1) {
		got[row[1]] = row[2]
	}
	want := map[string]string{}
	defaultsOf(reflect.ValueOf(Default()), "", want)
	if len(want) < 40 {
		t.Fatalf("found only %d keys in Config", len(want))
	}
	if !maps.Equal(got, want) {
		t.Errorf("%s has\n%q\nwant\n%q", doc, got, want)
	}
}

// defaultsOf lists the keys of a struct, below the key at, as a file has their values; a section has none.
func defaultsOf(v reflect.Value, at string, all map[string]string) {
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Tag.Get("yaml")
		key := strings.TrimPrefix(at+"."+name, ".")
		switch text := fmt.Sprint(f.Interface()); {
		case name == "-", key == "deadlines.prolog.append": // a prolog appends nothing
		case f.Kind() == reflect.Struct:
			all[key] = ""
			defaultsOf(f, key, all)
		case f.Kind() == reflect.Map:
			all[key] = strings.Replace(text, "map[]", "{}", 1)
		case f.Kind() == reflect.Slice:
			all[key] = strings.ReplaceAll(text, " ", ", ")
		case text == "":
			all[key] = `""`
		default:
			all[key] = text
		}
	}
}

// The drains as shipped, in full: a change here changes what takes nodes away from users.
func TestShippedDrains(t *testing.T) {
	want := map[string][]code.Code{
		"prolog": {code.Lost},
		"epilog": {
			code.Orphan, code.Residue, code.Phantom, code.Stray, code.Lost, code.Recovery, code.RemapFailed,
			code.XidFatal,
		},
		"leftovers": {code.Orphan, code.Residue, code.Phantom, code.Stray},
		"check":     nil,
	}
	got := map[string][]code.Code{"check": nil}
	for _, e := range code.All() {
		for of, is := range map[string]bool{
			"prolog": e.Start == Drain, "epilog": e.End == Drain, "check": e.Check() == Drain,
			"leftovers": e.End == Drain && e.Group() == code.Leftovers,
		} {
			if is {
				got[of] = append(got[of], e.Code)
			}
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("shipped drains are %v, want %v", got, want)
	}
}

// promise is the README's, of the default configuration.
var promise = regexp.MustCompile(`prolog\b[^.|]*? (\d+) s\b[^.|]*?epilog\b[^.|]*? (\d+) s\b`)

// What the README promises of hooks is the default configuration's.
func TestPromisedDeadlines(t *testing.T) {
	m := promise.FindSubmatch(readFile(t, "../../README.md"))
	if m == nil {
		t.Fatal("README.md does not say how long a prolog and an epilog may take")
	}
	d := Default().Deadlines
	for said, total := range map[string]Duration{string(m[1]): d.Prolog.Total, string(m[2]): d.Epilog.Total} {
		if seconds, err := strconv.Atoi(said); err != nil || Duration(seconds)*Duration(time.Second) != total {
			t.Errorf("README.md promises %s s, the default is %v", said, total)
		}
	}
}

// What the steps of each hook leave of its time, beyond what check asks of any configuration.
func TestReserves(t *testing.T) {
	d, settle := Default().Deadlines, Default().Settle.Epilog
	epilog := d.Epilog.Driver + d.Epilog.Scan + d.Epilog.Append + d.Epilog.Outputs
	// An unclean card is watched, searched for and watched again.
	check := d.HealthCheck.Scan + d.HealthCheck.Slurm + d.HealthCheck.Outputs + 2*(settle.Max+driverMargin)
	for name, c := range map[string]struct{ got, least Duration }{
		"prolog, before slurmd logs it as slow": {seconds(5) - d.Prolog.Total, 0},
		"prolog":                                {d.Prolog.Total - d.Prolog.Driver - d.Prolog.Outputs, seconds(0.5)},
		"epilog":                                {d.Epilog.Total - epilog, d.Epilog.Probe},
		"health check":                          {d.HealthCheck.Total - check, seconds(5)},
		"health check, settling":                {d.HealthCheck.Driver - settle.Max, driverMargin},
		"flat, beyond workers that end by themselves": {settle.Flat - seconds(3), 1},
	} {
		if c.got < c.least {
			t.Errorf("%s: %v is left, want at least %v", name, c.got, c.least)
		}
	}
}

// Who switches clean-up on need not change anything else; who does not is not held to its budget.
func TestCleanUpFitsTheShippedTimes(t *testing.T) {
	if Default().CleanUp.Enabled {
		t.Error("clean-up is on as shipped")
	}
	for text, fits := range map[string]bool{
		"clean_up: {enabled: true}":                                               true,
		"clean_up: {enabled: true, grace: 3s}":                                    true,
		"clean_up: {enabled: true, grace: 4s}":                                    false,
		"clean_up: {enabled: false, grace: 4s}":                                   true,
		"clean_up: {enabled: true, grace: 4s}\ndeadlines: {epilog: {total: 16s}}": true,
	} {
		if _, problems := Parse([]byte(text)); (len(problems) == 0) != fits {
			t.Errorf("%s: %v", text, problems)
		}
	}
}

func TestPolicyDoc(t *testing.T) {
	const mark = "<!-- the catalogue's: generated by go test ./internal/config -update -->\n"
	got := string(readFile(t, doc))
	before, _, marked := strings.Cut(got, mark)
	if !marked {
		t.Fatalf("%s has no place for the policy", doc)
	}
	var b strings.Builder
	b.WriteString(before + mark + "\n| finding | prolog | epilog | health check | |\n| --- | --- | --- | --- | --- |\n")
	for _, e := range code.All() {
		fmt.Fprintf(&b, "| [%s](findings.md#%s) | %s | %s | %s | %s |\n",
			e.Code, strings.ToLower(string(e.Code)), e.Start, e.End, e.Check(), e.Title)
	}
	if *update {
		if err := os.WriteFile(doc, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if got != b.String() {
		t.Errorf("%s differs from the catalogue: run go test ./internal/config -update", doc)
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
		of        code.Code
		want      Action
	}{
		{slurm.Prolog, "", code.Dirty, Note},
		{slurm.Prolog, "", code.Lost, Drain},
		{slurm.Epilog, "", code.Dirty, Note},
		{slurm.Epilog, "", code.Lost, Drain},
		{slurm.Epilog, "", code.Residue, Warn}, // its group drains not
		{slurm.Epilog, "", code.Stray, Drain},  // by name it does
		{slurm.Epilog, "", code.Orphan, Note},
		{slurm.Epilog, "own", code.Orphan, Drain},
		{slurm.HealthCheck, "own", code.Orphan, Warn},
		{slurm.HealthCheck, "", code.Trespass, Ignore},
		{slurm.Epilog, "", "BKD-NEW", Warn},
	} {
		if got := c.Action(tt.phase, tt.partition, tt.of); got != tt.want {
			t.Errorf("%s of %s in %q: got %s, want %s", tt.of, tt.phase, tt.partition, got, tt.want)
		}
	}
}

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
