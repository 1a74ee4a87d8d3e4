package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

const module = "bookend/"

// block is a run of statements that are reached together.
type block struct {
	place
	statements int
	reached    bool
	function   string // "Store.retire"; locate fills it
	text       string // of the source where it begins; locate fills it
}

// place is where a block stands.
type place struct {
	file                 string // "internal/state/run.go"
	line, column         int    // where it begins, from 1
	lastLine, lastColumn int
}

func (p place) pkg() string { return p.file[:max(0, strings.LastIndexByte(p.file, '/'))] }

// parseProfile reads go tool covdata's text. A block that any process has reached is reached; blocks without a
// statement are left out.
func parseProfile(text string) ([]block, error) {
	found := map[place]block{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "mode:") {
			continue
		}
		b, err := parseBlock(line)
		if err != nil {
			return nil, fmt.Errorf("profile: %q: %w", line, err)
		}
		if b.statements > 0 {
			b.reached = b.reached || found[b.place].reached
			found[b.place] = b
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b block) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line), cmp.Compare(a.column, b.column))
	}), nil
}

// parseBlock reads "bookend/internal/x/y.go:1.2,3.4 statements count".
func parseBlock(line string) (b block, err error) {
	file, rest, ok := strings.Cut(strings.TrimPrefix(line, module), ":")
	fields := strings.FieldsFunc(rest, func(r rune) bool { return strings.ContainsRune("., ", r) })
	if !ok || len(fields) != 6 {
		return b, fmt.Errorf("not a block of a profile")
	}
	var n [6]int
	for i, f := range fields {
		if n[i], err = strconv.Atoi(f); err != nil {
			return b, err
		}
	}
	return block{place: place{file, n[0], n[1], n[2], n[3]}, statements: n[4], reached: n[5] > 0}, nil
}

// sum is what was reached of a package.
type sum struct {
	pkg            string
	reached, total int
}

// percent of a package without statements is 0: it was not measured.
func (s sum) percent() float64 { return 100 * float64(s.reached) / float64(max(s.total, 1)) }

// sums counts the statements of each package.
func sums(blocks []block, packages []string) []sum {
	all := make([]sum, len(packages))
	for i, p := range packages {
		all[i].pkg = p
	}
	for _, b := range blocks {
		i := slices.Index(packages, b.pkg())
		if i < 0 {
			continue
		}
		if all[i].total += b.statements; b.reached {
			all[i].reached += b.statements
		}
	}
	return all
}
