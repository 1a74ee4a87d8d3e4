package main

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"bookend/test/faultinject"
	"bookend/test/rig"
)

//go:embed mutants/mutants.yaml
var table []byte

// mutants plants one mistake at a time in the judgement, by an overlay of the sources that leaves the tree alone, and
// runs the soak against it: of the judgement as it is nothing must be noticed, and each mistake must be.
func mutants(o options) (right bool) {
	folder := rig.Have(os.MkdirTemp("", "bookend-mutants-"))
	defer os.RemoveAll(folder)
	notices := func(m faultinject.Mutant) string { return firstBreach(folder, m, o) }
	if by := notices(faultinject.Mutant{}); by != "" {
		fmt.Println("without any mutant:", by)
		return false
	}
	return faultinject.EachMutant(faultinject.Mutants(table), o.only, notices)
}

// firstBreach builds the soak with a mutant, none where it names no file, and returns what it finds first, "" for
// nothing.
func firstBreach(folder string, m faultinject.Mutant, o options) string {
	program := filepath.Join(folder, "soak")
	build := []string{"build", "-o", program}
	if m.File != "" {
		build = append(build, "-overlay", rig.Have(m.Overlay(".", folder)))
	}
	if out, err := exec.Command("go", append(build, "./test/soak")...).CombinedOutput(); err != nil {
		panic(fmt.Errorf("%s: build: %w: %s", m.Name, err, out))
	}
	pairs, seed := fmt.Sprint(o.pairs), fmt.Sprint(o.seed)
	out, err := exec.Command(program, "-enough", "1", "-pairs", pairs, "-seed", seed).Output()
	_, breach, said := strings.Cut(string(out), "\nfirst breach: ") // its last line
	breach = strings.TrimSuffix(strings.TrimSuffix(breach, "\n"), "none")
	if !said || (breach == "") != (err == nil) {
		panic(fmt.Errorf("%s: run: %v, and its last line says %q", m.Name, err, breach))
	}
	return breach
}
