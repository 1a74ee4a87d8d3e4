package config

import (
	"path/filepath"
	"reflect"
	"testing"
)

// A text is refused, and then can drain nothing, or contradicts itself nowhere.
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
		"", "version: 1\n", "a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]\n",
		"? {a: b}\n: c\n<<: {mode: enforce}\n", "\xff\xfe\x00", "mode: enforce\npolicy: {epilog: {BKD-ORPHAN: " +
			"drain}}\n",
		"policy: {partitions: {gpu: {mode: observe, prolog: {BKD-LOST: warn}}}}\n",
		"nvidia: {gpu_map: {0: GPU-1, 1: \"0000:1b:00.0\"}}\nslurm: {shared_partitions: [a, b]}\n",
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
	if c.Mode != Observe || c.OnUnknown != Warn || !reflect.DeepEqual(c.Policy, d.Policy) || c.CleanUp != d.CleanUp {
		t.Fatalf("a bad configuration could drain, or end processes: %+v", c)
	}
	if len(problems) > maxProblems+1 {
		t.Fatalf("%d problems", len(problems))
	}
	for _, p := range problems {
		if s := p.String(); len(s) > 2048 || p.Text == "" || !plain(s) {
			t.Fatalf("problem %q", s)
		}
	}
}
