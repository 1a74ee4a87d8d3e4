package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"bookend/internal/code"

	"gopkg.in/yaml.v3"
)

// reader fills a Config from YAML nodes. The struct and its tags are the schema: yaml is the key; words, from, to and
// text say what its value may be. The YAML package's own decoder would take yes for true and 2.5 for 2, follow aliases,
// empty what has no value, and name no keys.
type reader struct {
	problems []Problem
	unused   []Problem
	lines    map[string]int  // where each key stands
	bad      map[string]bool // keys with a problem of their own: cross checks leave them alone
}

// dropped are the keys of earlier versions that nobody is known to have set; what they said is fixed now.
var dropped = []string{
	"BKD-BARMAP", // of policy
	"deadlines.prolog.append", "job_log.steps", "job_log.why", "look",
	"nvidia.gpu_order", "probe.exclusive", "probe.max_age",
	"probe.mig",
	"probe.partitions", "thresholds.per_client",
}

func (r *reader) problem(line int, key, text string) {
	r.bad[key] = true
	r.problems = append(r.problems, Problem{Line: line, Key: key, Text: text})
}

// fill sets v from n. Whatever does not fit is a problem and leaves v as it is.
func (r *reader) fill(n *yaml.Node, v reflect.Value, key string, tag reflect.StructTag) {
	kind := v.Kind()
	section := kind == reflect.Struct || kind == reflect.Map || kind == reflect.Slice
	switch {
	case n.Kind == yaml.AliasNode:
		// An alias of an alias of an alias … is how a short YAML file becomes a huge one.
		r.problem(n.Line, key, "aliases are not allowed")
	case section && n.Tag == "!!null": // everything below is commented out
	case kind == reflect.Struct && n.Kind == yaml.ScalarNode && tag.Get("word") != "":
		r.field(v, tag.Get("word"), key, n)
	case kind == reflect.Struct:
		r.pairs(n, key, func(name, at string, value *yaml.Node) { r.field(v, name, at, value) })
	case kind == reflect.Map:
		r.pairs(n, key, func(name, at string, value *yaml.Node) { r.entry(v, name, at, value, tag) })
	case kind == reflect.Slice:
		r.list(n, v, key, tag)
	case n.Kind != yaml.ScalarNode:
		r.problem(n.Line, key, "want a single value")
	default:
		if err := scalar(n, v, tag); err != nil {
			r.problem(n.Line, key, err.Error())
		}
	}
}

// pairs calls use for each key of a mapping.
func (r *reader) pairs(n *yaml.Node, key string, use func(name, at string, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		r.problem(n.Line, key, "want keys and values")
		return
	}
	seen := map[string]int{} // the line of each
	for pair := range slices.Chunk(n.Content, 2) {
		name, at := pair[0], strings.TrimPrefix(key+"."+clip(pair[0].Value), ".")
		switch {
		case name.Kind != yaml.ScalarNode:
			r.problem(name.Line, key, "a key must be a single word")
		case seen[name.Value] > 0:
			r.problem(name.Line, at, fmt.Sprintf("stands twice, first in line %d", seen[name.Value]))
		case slices.Contains(dropped, at), slices.Contains(dropped, name.Value) && strings.HasPrefix(at, "policy."):
			seen[name.Value] = name.Line
			r.unused = append(r.unused, Problem{Line: name.Line, Key: at, Text: "has no effect any more: remove it"})
		default:
			seen[name.Value], r.lines[at] = name.Line, name.Line
			use(name.Value, at, pair[1])
		}
	}
}

func (r *reader) field(v reflect.Value, name, at string, value *yaml.Node) {
	for i := range v.NumField() {
		if tag := v.Type().Field(i).Tag; tag.Get("yaml") == name && name != "-" {
			r.fill(value, v.Field(i), at, tag)
			return
		}
	}
	r.problem(r.lines[at], at, "no such key")
}

// entry adds one pair to a map, over what is there.
func (r *reader) entry(v reflect.Value, name, at string, value *yaml.Node, tag reflect.StructTag) {
	k := reflect.New(v.Type().Key()).Elem()
	if err := mapKey(k, name); err != nil {
		r.problem(r.lines[at], at, err.Error())
		return
	}
	elem := reflect.New(v.Type().Elem()).Elem()
	r.fill(value, elem, at, tag)
	if v.IsNil() {
		v.Set(reflect.MakeMap(v.Type()))
	}
	v.SetMapIndex(k, elem)
}

func mapKey(k reflect.Value, name string) error {
	switch k.Interface().(type) {
	case code.Code:
		if _, ok := code.Lookup(code.Code(name)); !ok {
			return errors.New("no such finding code; docs/findings.md lists them")
		}
	case int:
		i, err := strconv.ParseUint(name, 10, 15)
		if err != nil || name != strconv.FormatUint(i, 10) { // 0 and 00 would be one key twice
			return errors.New("not a number from 0 to 32767")
		}
		k.SetInt(int64(i))
		return nil
	default:
		if err := checkName(name); err != nil {
			return err
		}
	}
	k.SetString(name)
	return nil
}

func (r *reader) list(n *yaml.Node, v reflect.Value, key string, tag reflect.StructTag) {
	if n.Kind != yaml.SequenceNode {
		r.problem(n.Line, key, "want a list")
		return
	}
	list := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		r.fill(item, list.Index(i), fmt.Sprintf("%s.%d", key, i), tag)
	}
	v.Set(list)
}

// clip bounds a text from the file for a message.
func clip(text string) string {
	if len(text) > 60 {
		return text[:60] + "..."
	}
	return text
}
