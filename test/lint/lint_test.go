package main

import (
	"strings"
	"testing"
)

const page = `
| band | packages |
| --- | --- |
| values | ` + "`gpu` `slurm`" + ` | be |
| pure | ` + "`policy` `settle`" + ` | follow |
| ground | ` + "`routine` `nogpu`" + ` | |
| effects | ` + "`child` `safefile` `state` `metrics` `config`" + ` | touch |
| stage | ` + "`operation` `stage`" + ` | know |
| mains | ` + "`prolog/` `cuda/` `admin/`" + ` | exit |
`

// A rule bites where it says and nowhere else. That the whole tree passes is what make lint shows.
func TestRules(t *testing.T) {
	bitten := map[string]bool{}
	for _, c := range []struct{ rule, name, source string }{
		{"band", "internal/util/x.go", ``},
		{"", "test/e2e/x.go", `; import . "bookend/internal/state"; const proc = "/proc"`},
		{"band", "internal/gpu/x.go", `; import _ "bookend/internal/policy"`},
		{"", "internal/policy/x.go", `; import _ "bookend/internal/gpu"`},
		{"band", "internal/state/x.go", `; import _ "bookend/internal/metrics"`},
		{"", "internal/state/x.go", `; import _ "bookend/internal/safefile"`},
		{"", "internal/state/x_test.go", `; import _ "bookend/internal/metrics"; import _ "bookend/test/cluster"`},
		{"band", "internal/policy/x.go", `; import _ "bookend/internal/routine"`},
		{"band", "internal/stage/x.go", `; import _ "bookend/test/cluster"`},
		{"vendor", "internal/state/x_test.go", `; import "C"`},
		{"vendor", "internal/state/x.go", `; import _ "github.com/NVIDIA/go-nvml/pkg/nvml"`},
		{"", "cuda/x.go", `; import "C"`},
		{"library", "internal/stage/x.go", `; import _ "gopkg.in/yaml.v3"`},
		{"", "internal/config/x.go", `; import _ "gopkg.in/yaml.v3"`},
		{"exec", "internal/stage/x.go", `; import run "os/exec"; var _ = run.Command`},
		{"exec", "admin/x.go", `; import "syscall"; var _ = syscall.ForkExec`},
		{"", "internal/stage/x_test.go", `; import "os/exec"; var _ = exec.Command`},
		{"process", "internal/stage/x.go", `; import "os"; var _ = os.LookupEnv`},
		{"", "internal/stage/x.go", `; type env struct{ Exit func(int) }; func f(os env) { os.Exit(1) }`},
		{"", "internal/nogpu/x.go", `; import "os"; var _ = os.Getenv`},
		{"clock", "prolog/main.go", `; import "time"; var start = time.Now()`},
		{"system clock", "internal/state/x.go", `; import "bookend/internal/routine"; var _ = routine.SystemClock`},
		{"", "prolog/main.go", `; import "bookend/internal/routine"; var _ = routine.SystemClock`},
		{"go", "cuda/x.go", `; func f() { go f() }`},
		{"", "internal/routine/x.go", `; func f() { go f() }`},
		{"fatal", "internal/operation/x.go", `; import l "github.com/sirupsen/logrus"; func f(x l.Entry) { x.Fatalf("") }`},
		{"fatal", "prolog/x.go", `; import "log"; func f() { log.Panicln() }`},
		{"pure", "internal/slurm/x.go", `; import _ "golang.org/x/sys/unix"`},
		{"pure", "internal/settle/x.go", `; import "time"; func f() { time.Sleep(1) }`},
		{"", "internal/slurm/x.go", `; import _ "path"; import "time"; var _ = time.Second`},
		{"root", "internal/state/x.go", `; const proc = "/proc/1"`},
		{"", "internal/state/x.go", `; const a, b = "/procession", "see /proc"`},
		{"", "internal/child/x.go", `; const self = "/proc/self/exe"`},
		{"init", "internal/slurm/x.go", `; func init() {}`},
		{"init", "internal/slurm/x.go", `; import "regexp"; var r = regexp.MustCompile("x")`},
		{"", "internal/slurm/x.go", `; import "regexp"; var r = func() { regexp.MustCompile("x") }`},
		{"length", "internal/state/x.go", "\nfunc f() {" + strings.Repeat("\nf()", 60) + "}"},
		{"length", "internal/state/x.go", strings.Repeat("\n", 401)},
	} {
		f, err := parse(c.name, []byte("package x"+c.source))
		if err != nil {
			t.Fatal(err)
		}
		breaches, _ := check(bandsOf(page), []file{f})
		bitten[c.rule] = true
		got := strings.Join(breaches, "\n")
		if (got == "") != (c.rule == "") || !strings.Contains(got, c.rule) {
			t.Errorf("%s: %.60q: got %q, want a breach of %q", c.name, c.source, got, c.rule)
		}
	}
	for _, r := range rules {
		if !bitten[r.name] {
			t.Errorf("no source breaks rule %q", r.name)
		}
	}
}

func TestOddWords(t *testing.T) {
	for text, want := range map[string]int{
		"a GPU in a directory": 0, "a Card, and two folders": 2, "measured\nanew": 1, "discard, cardinal": 0,
	} {
		if got := oddWords("x.md", 3, text); len(got) != want {
			t.Errorf("%q: got %q, want %d", text, got, want)
		}
	}
	const quoted = "```\ncards\n```\n`card` and [Card](#card), see [pages](folder/x.md)\n#### Card\n"
	if got := oddWords("x.md", 1, code.ReplaceAllString(quoted, "")); len(got) > 0 {
		t.Errorf("%q", got)
	}
}
