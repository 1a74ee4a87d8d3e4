package main

import (
	"flag"
	"strings"
	"testing"

	"bookend/test/golden"
	"bookend/test/must"
)

var update = flag.Bool("update", false, "rewrite testdata")

const page = `
| band | packages |
| --- | --- |
| values | ` + "`gpu` `slurm`" + ` | be |
| pure | ` + "`policy` `settle`" + ` | follow |
| ground | ` + "`nogpu`" + ` | |
| effects | ` + "`child` `safefile` `state` `metrics` `config`" + ` | touch |
| steps | ` + "`publish` `maintenance`" + ` | take |
| hooks | ` + "`hook`" + ` | order |
| mains | ` + "`prolog/` `cuda/` `admin/`" + ` | exit |
`

func breaks(t *testing.T, name, source string) string {
	t.Helper()
	f := must.Have(parse(name, []byte("package x; "+source)))(t)
	var broken []string
	breaches, _ := check(bandsOf(page), []file{f})
	for _, b := range breaches {
		broken = append(broken, strings.Split(b, ": ")[1])
	}
	return strings.Join(broken, " ")
}

// A rule bites where it says and nowhere else. That the whole tree passes is what make lint shows.
func TestRules(t *testing.T) {
	bitten := map[string]bool{"length": true}
	golden.Lines(t, *update, "testdata/rules.txt", func(given string) string {
		name, source, _ := strings.Cut(strings.TrimSpace(given), " ")
		broken := breaks(t, name, source)
		bitten[broken] = true
		return broken
	})
	for _, source := range []string{"\nfunc f() {" + strings.Repeat("\nf()", 60) + "}", strings.Repeat("\n", 401)} {
		if got := breaks(t, "internal/state/x.go", source); got != "length" {
			t.Errorf("%.20q breaks %q", source, got)
		}
	}
	for _, r := range rules {
		must.Not(t, !bitten[r.name], "no source breaks rule %q", r.name)
	}
}

func TestOddWords(t *testing.T) {
	for text, want := range map[string]int{
		"a GPU in a directory": 0, "a Card, and two folders": 2, "measured\nanew": 1, "discard, cardinal": 0,
		"```\ncards\n```\n`card` and [Card](#card), see [pages](folder/x.md)\n#### Card\n": 0,
	} {
		if got := oddWords(file{marks: []mark{{"page " + prose(text), 3}}}, nil); len(got) != want {
			t.Errorf("%q: got %q, want %d", text, got, want)
		}
	}
}
