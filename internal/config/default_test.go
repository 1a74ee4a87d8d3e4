package config

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"bookend/internal/code"

	"gopkg.in/yaml.v3"
)

var update = flag.Bool("update", false, "rewrite docs/config.md")

const (
	manual = "../../configs/bookend.yaml"
	doc    = "../../docs/config.md"
)

func TestManualIsTheDefault(t *testing.T) {
	got, problems := Parse(readFile(t, manual))
	for _, p := range problems {
		t.Error(p)
	}
	want := Default()
	// Present and empty in the file, so that their keys can be seen.
	want.NVIDIA.GPUMap, want.Policy.Partitions = got.NVIDIA.GPUMap, got.Policy.Partitions
	want.Slurm.SharedPartitions, want.Probe.Partitions = got.Slurm.SharedPartitions, got.Probe.Partitions
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s gives\n%+v\nwant\n%+v", manual, got, want)
	}
	if len(got.NVIDIA.GPUMap)+len(got.Policy.Partitions)+len(got.Slurm.SharedPartitions)+len(got.Probe.Partitions) != 0 {
		t.Errorf("%s sets a map or list whose default is empty", manual)
	}
}

func TestManualHasEveryKey(t *testing.T) {
	in := map[string]bool{}
	for _, row := range manualRows(t) {
		in[row.key] = true
	}
	keys := keysOf(reflect.TypeFor[Config](), "")
	if len(keys) < 40 {
		t.Fatalf("found only %d keys in Config", len(keys))
	}
	for _, key := range keys {
		if !in[key] {
			t.Errorf("%s does not mention %s", manual, key)
		}
	}
	for _, e := range code.All() {
		for _, phase := range []string{"policy.prolog.", "policy.epilog.", "policy.health_check."} {
			if !in[phase+string(e.Code)] {
				t.Errorf("%s does not mention %s%s", manual, phase, e.Code)
			}
		}
	}
}

// keysOf lists the keys of a struct type, below the key at.
func keysOf(typ reflect.Type, at string) (keys []string) {
	for i := range typ.NumField() {
		if typ.Field(i).Tag.Get("old") != "" {
			continue
		}
		key := strings.TrimPrefix(at+"."+typ.Field(i).Tag.Get("yaml"), ".")
		keys = append(keys, key)
		if typ.Field(i).Type.Kind() == reflect.Struct {
			keys = append(keys, keysOf(typ.Field(i).Type, key)...)
		}
	}
	return keys
}

func TestManualNamesEachCodeByItsTitle(t *testing.T) {
	for _, row := range manualRows(t) {
		c := code.Code(row.key[strings.LastIndexByte(row.key, '.')+1:])
		if e, ok := code.Lookup(c); ok && row.comment != e.Title {
			t.Errorf("%s: comment %q, want %q", row.key, row.comment, e.Title)
		}
	}
}

func TestShippedCheckDrainsNothing(t *testing.T) {
	for c, action := range Default().Policy.HealthCheck {
		if action == Drain {
			t.Errorf("the health check drains for %s as shipped", c)
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
	}
	got := map[string][]code.Code{}
	for _, e := range code.All() {
		if e.Start == Drain {
			got["prolog"] = append(got["prolog"], e.Code)
		}
		if e.End == Drain {
			got["epilog"] = append(got["epilog"], e.Code)
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

func TestDefaultsAreNotShared(t *testing.T) {
	Default().Policy.Epilog[code.Orphan] = Ignore
	if Default().Policy.Epilog[code.Orphan] != Drain {
		t.Error("two defaults share a map")
	}
}

func TestConfigDoc(t *testing.T) {
	want := configDoc(t)
	if *update {
		if err := os.WriteFile(doc, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := string(readFile(t, doc)); got != want {
		t.Errorf("%s differs from %s: run go test ./internal/config -update", doc, manual)
	}
}

func configDoc(t *testing.T) string {
	var b strings.Builder
	b.WriteString("# Configuration\n" +
		"Generated from [bookend.yaml](../configs/bookend.yaml), which has the same in comments, by\n" +
		"`go test ./internal/config -update`. Findings are explained in [findings](findings.md).\n\n" +
		"| key | default | meaning |\n| --- | --- | --- |\n")
	for _, row := range manualRows(t) {
		value := row.value
		if value != "" {
			value = "`" + value + "`"
		}
		if !strings.Contains(row.key, ".BKD-") {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", row.key, value, row.comment)
		}
	}
	b.WriteString("\n## The shipped policy\n\n| finding | prolog | epilog | health check | |\n| --- | --- | --- | " +
		"--- | --- |\n")
	for _, e := range code.All() {
		fmt.Fprintf(&b, "| [%s](findings.md#%s) | %s | %s | %s | %s |\n",
			e.Code, strings.ToLower(string(e.Code)), e.Start, e.End, e.Check(), e.Title)
	}
	return b.String()
}

// row is one key of the manual with what its comments say.
type row struct{ key, value, comment string }

func manualRows(t *testing.T) []row {
	t.Helper()
	var root yaml.Node
	if err := yaml.Unmarshal(readFile(t, manual), &root); err != nil {
		t.Fatal(err)
	}
	return rowsOf(root.Content[0], "")
}

var commentMark = regexp.MustCompile(`(?m)^# ?`)

func rowsOf(n *yaml.Node, at string) (rows []row) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		key := strings.TrimPrefix(at+"."+name.Value, ".")
		// The file's own head is a comment with a blank line after it.
		paragraphs := strings.Split(name.HeadComment, "\n\n")
		comment := paragraphs[len(paragraphs)-1] + "\n" + name.LineComment + value.LineComment
		text := strings.Join(strings.Fields(commentMark.ReplaceAllString(comment, "")), " ")
		shown := value.Value
		if shown == "" && value.Tag == "!!str" {
			shown = `""`
		}
		if value.Kind != yaml.ScalarNode && len(value.Content) == 0 {
			shown = map[yaml.Kind]string{yaml.MappingNode: "{}", yaml.SequenceNode: "[]"}[value.Kind]
		}
		rows = append(rows, row{key, shown, text})
		rows = append(rows, rowsOf(value, key)...)
	}
	return rows
}

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
