package catalog

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed findings.txt
var table string

// entries has the rows of findings.txt.
var entries = sync.OnceValue(func() (all []Entry) {
	for _, f := range Rows(table, 8) {
		e := Entry{Code: Code(f[0]), Severity: Severity(f[1]), Scope: Scope(f[2]), Title: f[3], Actor: f[5],
			Meaning: f[6], Remedy: f[7]}
		for _, trait := range slices.Concat(strings.Fields(f[4]), f[8:]) {
			e.set(strings.Cut(trait, "="))
		}
		all = append(all, e)
	}
	return all
})

func (t *Traits) set(name, value string, _ bool) {
	switch name {
	case "start":
		t.Start = Action(value)
	case "end":
		t.End = Action(value)
	case "exit":
		t.Exit, _ = strconv.Atoi(value)
	case "memory":
		t.Memory = Memory(value)
	case "condition":
		t.Condition = true
	case "unusable":
		t.Unusable = true
	case "unchecked":
		t.Unchecked = true
	case "doubtful":
		t.Doubtful = true
	case "milder":
		t.Milder = value
	case "fault":
		t.Fault = value
	case "silence":
		t.Silence = value
	}
}

// Rows returns the fields of a table's rows that have at least so many. Its comments have none.
func Rows(table string, fields int) (all [][]string) {
	for line := range strings.Lines(table) {
		if row := strings.Split(strings.TrimSpace(line), " | "); len(row) >= fields {
			all = append(all, row)
		}
	}
	return all
}

// All returns every entry, in the order of the documentation.
func All() []Entry { return slices.Clone(entries()) }

func Lookup(c Code) (Entry, bool) {
	for _, e := range entries() {
		if e.Code == c {
			return e, true
		}
	}
	return Entry{}, false
}

// Parse returns the code for user input, with or without "BKD-", in any case; false if there is no such code.
func Parse(written string) (Code, bool) {
	name := Code(strings.ToUpper(strings.TrimSpace(written)))
	for _, c := range []Code{name, "BKD-" + name} {
		if _, ok := Lookup(c); ok {
			return c, true
		}
	}
	return "", false
}

// Mentioned returns the codes in a text, such as a drain reason, in their order.
func Mentioned(text string) (found []Code) {
	apart := func(r rune) bool { return r != '-' && (r < 'A' || r > 'Z') && (r < '0' || r > '9') }
	for _, word := range strings.FieldsFunc(text, apart) {
		if _, ok := Lookup(Code(word)); ok {
			found = append(found, Code(word))
		}
	}
	return found
}

// Paragraph is one of an explanation: a title with a text, and lines that begin with a word.
func Paragraph(title, text string, lines ...[2]string) string {
	text = fmt.Sprintf("%s: %s\n", title, text)
	for _, l := range lines {
		text += fmt.Sprintf("  %-8s %s\n", l[0]+":", l[1])
	}
	return text
}

// Explanation joins paragraphs, each once.
func Explanation(paragraphs []string) string {
	var once []string
	for _, p := range paragraphs {
		if !slices.Contains(once, p) {
			once = append(once, p)
		}
	}
	return strings.Join(once, "\n")
}
