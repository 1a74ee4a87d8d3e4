package slurm

import (
	"fmt"
	"strings"
	"testing"

	"bookend/test/golden"
)

func TestTaskFromEnv(t *testing.T) {
	golden.Archive(t, *update, "testdata/task.txtar", func(given string) string {
		e := parse(given)
		return fmt.Sprintf("%+v", TaskFromEnv(e.get, e["cgroup"]))
	})
}

func TestOwnerOfCgroup(t *testing.T) {
	golden.Archive(t, *update, "testdata/cgroup.txtar", func(text string) string {
		return fmt.Sprintf("%+v", OwnerOfCgroup(text))
	})
}

func TestParseRef(t *testing.T) {
	for text, want := range map[string]Ref{
		"1234":           {ID: 1234},
		"4294967295":     {ID: 1<<32 - 1},
		"1234_7":         {ID: 1234, Sign: "_", Part: 7},
		"1234_0":         {ID: 1234, Sign: "_"},
		"1234+1":         {ID: 1234, Sign: "+", Part: 1},
		"sCHNM7Y8WBK900": {SLUID: "sCHNM7Y8WBK900"},
	} {
		want.Text = text
		if got, err := ParseRef(text); err != nil || got != want {
			t.Errorf("ParseRef(%q) = %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestTaskJob(t *testing.T) {
	const sluid = "sCHNM7Y8WBK900"
	for name, tt := range map[string]struct{ task, want Owner }{
		"no cgroup names it":           {Owner{}, Owner{ID: 7}},
		"cgroups that name two":        {Owner{Conflict: "two"}, Owner{ID: 7}},
		"its cgroup has the id":        {Owner{ID: 8, Step: "batch"}, Owner{ID: 8, Step: "batch"}},
		"its cgroup has the run alone": {Owner{SLUID: sluid, Step: "0"}, Owner{ID: 7, SLUID: sluid, Step: "0"}},
	} {
		if have := (Task{Owner: tt.task, EnvID: 7}).Job(); have != tt.want {
			t.Errorf("%s: %+v, want %+v", name, have, tt.want)
		}
	}
	if have := (Task{Owner: Owner{SLUID: sluid}}).Job(); have != (Owner{SLUID: sluid}) {
		t.Errorf("without an environment: %+v", have)
	}
}

func TestFirstHost(t *testing.T) {
	for list, want := range map[string]string{
		"n1":                     "n1",
		"n[001-010,020],m3":      "n001",
		"login,n[1-2":            "login",
		"":                       "",
		"n[1-2":                  "",
		"tux[000x444]":           "", // box ranges of machines long gone
		"../x":                   "",
		strings.Repeat("n", 300): "",
	} {
		if got := FirstHost(list); got != want {
			t.Errorf("FirstHost(%q) = %q, want %q", list, got, want)
		}
	}
}

func TestExpand(t *testing.T) {
	for element, want := range map[string]string{
		"n1": "n1", "n[8-10]": "n8 n9 n10", "[1-2][3-4]": "13 14 23 24", "n[08-10,7]b": "n08b n09b n10b n7b", "r[0-1]n[2-3]": "r0n2 r0n3 r1n2 r1n3",
		"n[202401010016-202401010017]": "n202401010016 n202401010017",
	} {
		names, ok := Expand(element)
		if got := strings.Join(names, " "); got != want || !ok {
			t.Errorf("Expand(%q) = %s, %v, want %s", element, got, ok, want)
		}
	}
	for _, element := range []string{
		"n[1-", "n[2-1]", "n[]", "n[+1-2]", "n]1", "n[1-2]m[", "n[000x333]", "n[1-99999999999]", "n[0-999999]",
		"a[0-999]b[0-999]", "n[9223372036854775807]", "n[0000000000000000001]",
	} {
		if names, ok := Expand(element); ok || names != nil {
			t.Errorf("Expand(%q) = %d names, %v, want none", element, len(names), ok)
		}
	}
}

func TestParseVersion(t *testing.T) {
	for text, want := range map[string]string{
		"slurm 22.05.8": "22.05.8", "slurm 21.08.8-2": "21.08.8", "slurm 25.11.0-0rc1": "25.11.0",
		"slurm-wlm 24.11.5": "24.11.5", "slurm 26.05": "26.05.0",
		"": "", "slurm": "", "bash 5.2.1": "", "slurm x.y": "",
	} {
		v, ok := ParseVersion(text)
		if got := v.String(); ok != (want != "") || ok && got != want {
			t.Errorf("ParseVersion(%q) = %s, %v, want %q", text, got, ok, want)
		}
	}
}
