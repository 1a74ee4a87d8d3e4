package slurmconf

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"bookend/internal/slurm"
	"bookend/test/must"
)

var update = flag.Bool("update", false, "rewrite testdata/setup.txtar and testdata/listed.txt")

// What a site has, and behind "=>" what it needs: each line, each script that is not a shipped one under its own name,
// and what is left to do.
func TestMakePlan(t *testing.T) {
	const golden = "testdata/setup.txtar"
	have := must.Have(os.ReadFile(golden))(t)
	a := txtar.Parse(have)
	for i, f := range a.Files {
		site, _, _ := strings.Cut(string(f.Data), "=>\n")
		about, conf, _ := strings.Cut(site, "\n")
		is := func(word string) bool { return slices.Contains(strings.Fields(about), word) }
		version, _ := slurm.ParseVersion("slurm " + about)
		plan := tell(MakePlan(Site{Version: version, Pyxis: is("pyxis"), Adopts: is("adopts"), Sure: !is("unsure"),
			Local: is("local"), Conf: Parse("/s/slurm.conf", []byte(conf), func(name string) []File {
				plain, err := MakePlan(Site{Version: version, Conf: Conf{Path: "/s/slurm.conf"}, Sure: true})
				must.Do(t, err)
				return []File{{Path: name, Text: []byte(plain.Text)}}
			})}))
		a.Files[i].Data = []byte(site + "=>\n" + plan)
	}
	if want := txtar.Format(a); *update {
		must.Do(t, os.WriteFile(golden, want, 0o644))
	} else if string(want) != string(have) {
		t.Errorf("%s is not what is planned: go test ./internal/slurmconf -update, and look at the difference", golden)
	}
}

func tell(p Plan, err error) string {
	if err != nil {
		return err.Error() + "\n"
	}
	text := p.Text
	for _, s := range p.Scripts {
		if what := strings.Trim(s.Shipped+"+"+s.Own, "+"); s.Name != "bookend/"+what {
			text += fmt.Sprintf("script %s: %s\n", s.Name, what)
		}
	}
	for _, s := range p.Steps {
		text += "step: " + s + "\n"
	}
	return text + fmt.Sprintf("include %s: %v; sent: %v\n", p.Include, p.Has, p.Sent)
}

// A script runs the site's own by exactly that path.
func TestRender(t *testing.T) {
	shipped := func(name string) (string, error) {
		text, err := os.ReadFile("../../deploy/slurm/hooks/" + name)
		return string(text), err
	}
	for _, s := range []Script{{Own: "/site/a b"}, {Shipped: "task-prolog-beside-own", Own: "/site/a b"}} {
		text, err := s.Render(shipped)
		if err != nil || !strings.Contains(text, "'/site/a b'") || !strings.HasPrefix(text, "#!/bin/sh\n") {
			t.Errorf("%+v: %q, %v", s, text, err)
		}
	}
	for _, s := range []Script{{Own: "/x'; reboot"}, {Own: "/x\nreboot"}, {Shipped: "prolog", Own: "/x"}, {Shipped: "none"}} {
		if text, err := s.Render(shipped); err == nil {
			t.Errorf("%+v: %q", s, text)
		}
	}
}
