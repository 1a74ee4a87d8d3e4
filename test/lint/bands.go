package main

import (
	"slices"
	"strings"
)

// architecture has the table of bands. A new package is a decision about the architecture: it is taken there.
const architecture = "docs/architecture.md"

// rows are the bands, imports go from later ones to earlier ones.
var rows = []string{"values", "pure", "ground", "effects", "backends", "node", "steps", "hooks", "views", "mains", testTree}

// testTree is the band of programs and packages that do not ship.
const testTree = "tests"

// bands has the band of every folder that ships.
type bands map[string]string

// bandsOf reads the table: "| values | `gpu` `slurm` | ..."; a name that ends with a slash is not below internal/.
func bandsOf(page string) bands {
	b := bands{}
	for line := range strings.Lines(page) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 || !slices.Contains(rows, strings.TrimSpace(cells[1])) {
			continue
		}
		for name := range strings.FieldsSeq(strings.ReplaceAll(cells[2], "`", "")) {
			dir, top := strings.CutSuffix(name, "/")
			if !top {
				dir = "internal/" + name
			}
			b[dir] = strings.TrimSpace(cells[1])
		}
	}
	return b
}

func (b bands) of(dir string) string {
	if top, _, _ := strings.Cut(dir, "/"); top == "test" {
		return testTree
	}
	return b[dir]
}

// siblings are the effects that other effects may use.
var siblings = []string{"internal/child", "internal/safefile"}

// breach says why a file may not be where it is, or not import what it does.
func (b bands) breach(f file, m mark) (why string) {
	from := b.of(f.dir)
	if from == "" {
		return "every package belongs to a band: enter it in " + architecture
	}
	dir, ok := strings.CutPrefix(m.text, "import bookend/")
	to := b.of(dir)
	switch {
	case !ok || dir == f.dir || from == testTree || to == "" || to == testTree && f.test:
		return ""
	case to == testTree:
		return "what ships must not depend on what tests it"
	case from == "pure" && to == "ground":
		return "the pure band gets time as a value and starts nothing, so that its tests are tables"
	case slices.Index(rows, to) > slices.Index(rows, from):
		return "imports point from upper rows to lower ones only, so that each row can be understood without those above"
	case from == "effects" && to == "effects" && !slices.Contains(siblings, dir) && !f.test:
		return "an effect knows no other effect but child and safefile: node and the steps join them"
	case from == "steps" && to == "steps" && !f.test:
		return "a step takes values and returns values, so that hook alone knows their order"
	}
	return ""
}
