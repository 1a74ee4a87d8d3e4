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

// What people, Slurm's lists and its programs name: references of jobs, elements of lists, versions.
func TestWords(t *testing.T) {
	golden.Lines(t, *update, "testdata/words.txt", func(given string) string {
		what, text, _ := strings.Cut(given, " ")
		var ok bool
		var got any
		switch what {
		case "job":
			ref, err := ParseRef(text)
			got, ok = fmt.Sprintf("%+v", ref), err == nil
		case "first":
			got, ok = FirstHost(text), true
		case "expand":
			got, ok = Expand(text)
		case "version":
			got, ok = ParseVersion(text)
		}
		if !ok {
			return "none"
		}
		return fmt.Sprint(got)
	})
	if got := FirstHost(strings.Repeat("n", 300)); got != "" {
		t.Errorf("a name too long for a file: %s", got)
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
