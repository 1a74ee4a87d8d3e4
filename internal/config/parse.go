package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

const (
	// MaxBytes is the longest configuration that is read; the commented default has about 8 KiB.
	MaxBytes    = 256 << 10
	maxProblems = 50 // a wrong file is not worth more lines of log
)

// Problem is one mistake in a configuration.
type Problem struct {
	Line int    // from 1; 0 where no line can be named
	Key  string // "policy.epilog.BKD-ORPHAN"; empty for the file as a whole
	Text string
}

// String gives "line 7: settle.prolog.max: not a duration …", in printable ASCII: keys are as the file has them,
// and it may be shown on a terminal before anybody trusts it.
func (p Problem) String() string {
	s := p.Text
	if p.Key != "" {
		s = p.Key + ": " + s
	}
	if p.Line > 0 {
		s = fmt.Sprintf("line %d: %s", p.Line, s)
	}
	return strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}, s)
}

// Parse reads a configuration. What it does not mention has its default; an empty text is the default.
//
// Any mistake makes the whole text unusable, since half a policy is nobody's policy: Parse then returns
// every problem it found, by line, and Default with only paths, backend, nvidia, log and metrics taken over
// where they are valid themselves, so that trouble is recorded where the site looks for it. Mode is then Observe.
// A key that only earlier versions knew is no mistake: Config.Unused names it.
func Parse(data []byte) (Config, []Problem) {
	c, r := parse(data)
	return c, r.problems
}

func parse(data []byte) (Config, reader) {
	c, r := Default(), reader{lines: map[string]int{}}
	root, problem := document(data)
	if problem != nil {
		r.problems = []Problem{*problem}
		return c, r
	}
	r.fill(root, reflect.ValueOf(&c).Elem(), "", "")
	r.check(&c)
	c.Unused = r.unused
	if len(r.problems) > 0 {
		slices.SortFunc(r.problems, func(a, b Problem) int {
			return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Text, b.Text))
		})
		c, r.lines = degraded(c, r.problems), nil
		r.problems = r.problems[:min(len(r.problems), maxProblems)]
	}
	return c, r
}

// degraded returns the default with those sections of c that say where things are and have no problem.
func degraded(c Config, problems []Problem) Config {
	d := Default()
	from, to := reflect.ValueOf(c), reflect.ValueOf(&d).Elem()
	for i := range to.NumField() {
		section := to.Type().Field(i).Tag.Get("yaml")
		in := func(p Problem) bool { return strings.HasPrefix(p.Key+".", section+".") }
		if slices.Contains([]string{"paths", "backend", "nvidia", "amd", "log", "metrics"}, section) &&
			!slices.ContainsFunc(problems, in) {
			to.Field(i).Set(from.Field(i))
		}
	}
	return d
}

func document(data []byte) (root *yaml.Node, problem *Problem) {
	if len(data) > MaxBytes {
		return nil, &Problem{Text: fmt.Sprintf("longer than %d KiB", MaxBytes>>10)}
	}
	// A panic here would end the hook with exit code 2, and that drains the node.
	defer func() {
		if v := recover(); v != nil {
			root, problem = nil, &Problem{Text: "the YAML parser failed: " + clip(fmt.Sprint(v))}
		}
	}()
	var first, second yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	err := decoder.Decode(&first)
	if errors.Is(err, io.EOF) {
		return &yaml.Node{Tag: "!!null"}, nil
	}
	if err == nil {
		if err = decoder.Decode(&second); err == nil {
			return nil, &Problem{Line: second.Line, Text: "a second document begins here"}
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, syntax(err)
	}
	return first.Content[0], nil
}

// syntax turns the parser's "yaml: line 3: did not find …" into a Problem.
func syntax(err error) *Problem {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	var line int
	if n, _ := fmt.Sscanf(text, "line %d:", &line); n == 1 {
		_, text, _ = strings.Cut(text, ": ")
	}
	return &Problem{Line: line, Text: "not YAML: " + text[:min(len(text), 80)]}
}

// Setting is one key in effect.
type Setting struct {
	Key   string // "settle.prolog.max"
	Value string // as the file would have it
	Line  int    // of the file; 0 for a default
}

// Settings are all keys in effect with a configuration's text, in the order of the documentation. A text with mistakes
// is not used: then they are those of Parse's answer.
func Settings(data []byte) []Setting {
	c, r := parse(data)
	return r.settings(reflect.ValueOf(c), "")
}

func (r reader) settings(v reflect.Value, section string) (all []Setting) {
	for i := range v.NumField() {
		name, field := v.Type().Field(i).Tag.Get("yaml"), v.Field(i)
		key := strings.TrimPrefix(section+"."+name, ".")
		if name == "-" || slices.Contains(dropped, key) {
			continue
		}
		if field.Kind() == reflect.Struct {
			all = append(all, r.settings(field, key)...)
			continue
		}
		node := yaml.Node{}
		_ = node.Encode(field.Interface()) // a node of scalars, lists and maps always can be
		node.Style |= yaml.FlowStyle
		text, _ := yaml.Marshal(&node)
		all = append(all, Setting{Key: key, Value: strings.TrimSpace(string(text)), Line: r.lines[key]})
	}
	return all
}
