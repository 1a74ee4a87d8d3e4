package config

import (
	"fmt"
	"math/big"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// A text is refused, and then can drain nothing, or means the same when what was understood is written down again.
func FuzzParse(f *testing.F) {
	f.Add(readFile(f, manual))
	bad, err := filepath.Glob("../../configs/bad/*.yaml")
	if err != nil || len(bad) == 0 {
		f.Fatal("no bad configurations: ", err)
	}
	for _, name := range bad {
		f.Add(readFile(f, name))
	}
	for _, seed := range []string{
		"", "version: 1\n", "a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]\n", "? {a: b}\n: c\n<<: {mode: enforce}\n", "\xff\xfe\x00",
		"version: 1\nmode: enforce\npolicy:\n  epilog: {BKD-ORPHAN: drain}\n  partitions:\n    gpu: {mode: observe, prolog: {BKD-LOST: warn}}\n",
		"version: 1\nnvidia: {gpu_order: map, gpu_map: {0: GPU-1, 1: \"0000:1b:00.0\"}}\nslurm: {shared_partitions: [a, b]}\n",
		"version: 1\nthresholds: {report: 64MiB, drain: 1GiB}\nsettle:\n  prolog: {max: 1.5s, flat: 300ms}\n",
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
		r := reader{lines: map[string]int{}, bad: map[string]bool{}}
		if r.check(&c); len(r.problems) > 0 {
			t.Fatalf("accepted with %v", r.problems)
		}
		written, err := yaml.Marshal(settings(reflect.ValueOf(c)))
		if err != nil {
			t.Fatal(err)
		}
		again, problems := Parse(written)
		if same, err := yaml.Marshal(settings(reflect.ValueOf(again))); len(problems) > 0 || err != nil || string(same) != string(written) {
			t.Fatalf("%v\n%s\nbecame\n%s", problems, written, same)
		}
	})
}

// refused: a bad configuration cannot drain, and what is wrong with it can be shown.
func refused(t *testing.T, c Config, problems []Problem) {
	t.Helper()
	if c.Mode != Observe || c.OnUnknown != Warn || !reflect.DeepEqual(c.Policy, Default().Policy) || !reflect.DeepEqual(c.CleanUp, Default().CleanUp) {
		t.Fatalf("a bad configuration could drain, or end processes: %+v", c)
	}
	if len(problems) > maxProblems+1 {
		t.Fatalf("%d problems", len(problems))
	}
	for _, p := range problems {
		if s := p.String(); len(s) > 2048 || p.Text == "" || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Fatalf("problem %q", s)
		}
	}
}

// settings is a configuration as it would be typed.
func settings(v reflect.Value) any {
	switch value := v.Interface().(type) {
	case Duration:
		return value.String()
	case Size:
		return value.String()
	}
	switch v.Kind() {
	case reflect.Struct:
		out := map[string]any{}
		for i := range v.NumField() {
			if v.Field(i).Kind() == reflect.String && v.Field(i).IsZero() && v.Type() == reflect.TypeFor[PartitionPolicy]() {
				continue // a partition without a mode of its own has the site's
			}
			out[v.Type().Field(i).Tag.Get("yaml")] = settings(v.Field(i))
		}
		return out
	case reflect.Map:
		out := map[any]any{}
		for _, k := range v.MapKeys() {
			out[k.Interface()] = settings(v.MapIndex(k))
		}
		return out
	case reflect.Slice:
		var out []any
		for i := range v.Len() {
			out = append(out, settings(v.Index(i)))
		}
		return out
	}
	return v.Interface()
}

// A size is its number times its unit, and reads the same when it is written anew.
func FuzzSize(f *testing.F) {
	for _, seed := range []string{"512MiB", "0B", "32 KiB", "1GiB", "1048576GiB", "1048577GiB", "1125899906842624B", "-1B", "+1B", "1e3B", "0x1B",
		"1_0B", "MiB", "1MB", " 1B", "1 \tB", "9223372036854775808B", "00B", "1\u00a0B"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		size, err := parseSize(text)
		if err != nil {
			if size != 0 {
				t.Errorf("%q: %v and %v", text, size, err)
			}
			return
		}
		end := strings.IndexAny(text, "BKMG")
		n, ok := new(big.Int).SetString(strings.TrimSpace(text[:end]), 10)
		unit := map[string]int64{"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[text[end:]]
		if !ok || n.Mul(n, big.NewInt(unit)).String() != fmt.Sprint(uint64(size)) || size > 1<<50 {
			t.Errorf("%q is %d bytes", text, uint64(size))
		}
		if again, err := parseSize(size.String()); err != nil || again != size {
			t.Errorf("%q is %v, then %v, %v", text, size, again, err)
		}
	})
}
