package slurmconf

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"bookend/internal/slurm"
	"bookend/test/golden"
	"bookend/test/must"
)

var update = flag.Bool("update", false, "rewrite the files of testdata that say what follows")

// What a site has, and what it needs: each line, each script that is not a shipped one under its own name, and what is
// left to do.
func TestMakePlan(t *testing.T) {
	golden.Archive(t, *update, "testdata/setup.txtar", func(site string) string {
		about, conf, _ := strings.Cut(site, "\n")
		is := func(word string) bool { return slices.Contains(strings.Fields(about), word) }
		version, _ := slurm.ParseVersion("slurm " + about)
		return tell(MakePlan(Site{Version: version, Pyxis: is("pyxis"), Adopts: is("adopts"), Sure: !is("unsure"),
			Local: is("local"), Conf: Parse("/s/slurm.conf", []byte(conf), func(name string) []File {
				plain, err := MakePlan(Site{Version: version, Conf: Conf{Path: "/s/slurm.conf"}, Sure: true})
				must.Do(t, err)
				return []File{{Path: name, Text: []byte(plain.Text)}}
			})}))
	})
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
