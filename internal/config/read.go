package config

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"bookend/internal/code"

	"gopkg.in/yaml.v3"
)

// reader fills a Config from YAML nodes. The struct and its yaml tags are the schema.
type reader struct {
	problems []Problem
	lines    map[string]int  // where each key stands
	bad      map[string]bool // keys with a problem of their own: cross checks leave them alone
}

func (r *reader) problem(line int, key, format string, args ...any) {
	r.bad[key] = true
	r.problems = append(r.problems, Problem{Line: line, Key: key, Text: fmt.Sprintf(format, args...)})
}

func (r *reader) read(root *yaml.Node, c *Config) { r.fill(root, reflect.ValueOf(c).Elem(), "") }

// fill sets v from n. Whatever does not fit is a problem and leaves v as it is.
func (r *reader) fill(n *yaml.Node, v reflect.Value, key string) {
	kind := v.Kind()
	section := kind == reflect.Struct || kind == reflect.Map || kind == reflect.Slice
	switch {
	case n.Kind == yaml.AliasNode:
		// An alias of an alias of an alias … is how a short YAML file becomes a huge one.
		r.problem(n.Line, key, "aliases are not allowed")
	case section && n.Tag == "!!null": // everything below is commented out
	case kind == reflect.Struct:
		r.pairs(n, key, func(name, at string, value *yaml.Node) { r.field(v, name, at, value) })
	case kind == reflect.Map:
		r.pairs(n, key, func(name, at string, value *yaml.Node) { r.entry(v, name, at, value) })
	case kind == reflect.Slice:
		r.list(n, v, key)
	case n.Kind != yaml.ScalarNode:
		r.problem(n.Line, key, "want a single value")
	default:
		if err := scalar(n, v, key); err != nil {
			r.problem(n.Line, key, "%v", err)
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
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		at := strings.TrimPrefix(key+"."+clip(name.Value), ".")
		switch {
		case name.Kind != yaml.ScalarNode:
			r.problem(name.Line, key, "a key must be a single word")
		case seen[name.Value] > 0:
			r.problem(name.Line, at, "stands twice, first in line %d", seen[name.Value])
		default:
			seen[name.Value] = name.Line
			r.lines[at] = name.Line
			use(name.Value, at, value)
		}
	}
}

func (r *reader) field(v reflect.Value, name, at string, value *yaml.Node) {
	var keys []string
	for i := range v.NumField() {
		key := v.Type().Field(i).Tag.Get("yaml")
		if key == name {
			r.fill(value, v.Field(i), at)
			return
		}
		keys = append(keys, key)
	}
	r.problem(r.lines[at], at, "no such key%s", meant(name, keys))
}

// entry adds one pair to a map, over what is there.
func (r *reader) entry(v reflect.Value, name, at string, value *yaml.Node) {
	k := reflect.New(v.Type().Key()).Elem()
	if err := mapKey(k, name); err != nil {
		r.problem(r.lines[at], at, "%v", err)
		return
	}
	elem := reflect.New(v.Type().Elem()).Elem()
	r.fill(value, elem, at)
	if v.IsNil() {
		v.Set(reflect.MakeMap(v.Type()))
	}
	v.SetMapIndex(k, elem)
}

func mapKey(k reflect.Value, name string) error {
	switch k.Interface().(type) {
	case code.Code:
		if _, ok := code.Lookup(code.Code(name)); !ok {
			return fmt.Errorf("no such finding code%s; docs/findings.md lists them", meant(name, code.Names()))
		}
		k.SetString(name)
	case int:
		i, err := strconv.ParseUint(name, 10, 15)
		if err != nil || name != strconv.FormatUint(i, 10) { // 0 and 00 would be one key twice
			return errors.New("not a number from 0 to 32767")
		}
		k.SetInt(int64(i))
	default:
		if err := checkName(name); err != nil {
			return err
		}
		k.SetString(name)
	}
	return nil
}

func (r *reader) list(n *yaml.Node, v reflect.Value, key string) {
	if n.Kind != yaml.SequenceNode {
		r.problem(n.Line, key, "want a list")
		return
	}
	list := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		at := key + "." + strconv.Itoa(i)
		r.lines[at] = item.Line
		r.fill(item, list.Index(i), at)
	}
	v.Set(list)
}

// scalar sets v from the single value of a key. The cases are all the types a Config is made of.
func scalar(n *yaml.Node, v reflect.Value, key string) error {
	if n.Tag == "!!null" {
		return errors.New("has no value")
	}
	names := choices(v.Interface())
	if key == "on_unknown" {
		names = "warn drain" // Bookend's own faults are never hidden
	}
	if names != "" {
		if n.Tag != "!!str" || !strings.Contains(" "+names+" ", " "+n.Value+" ") || strings.Contains(n.Value, " ") {
			return fmt.Errorf("%q is none of: %s", clip(n.Value), names)
		}
		v.SetString(n.Value)
		return nil
	}
	switch v.Interface().(type) {
	case Duration:
		d, err := time.ParseDuration(n.Value)
		if err != nil || d < 0 || d > longest {
			return fmt.Errorf("%q is not a duration from 0s to 720h, such as 3.5s or 500ms", clip(n.Value))
		}
		v.SetInt(int64(d))
	case Size:
		size, err := parseSize(n.Value)
		if err != nil {
			return err
		}
		v.SetUint(uint64(size))
	case int:
		i, err := strconv.Atoi(n.Value)
		if err != nil || n.Tag != "!!int" {
			return fmt.Errorf("%q is not a whole number%s", clip(n.Value), quoted(n, err == nil))
		}
		v.SetInt(int64(i))
	case bool:
		if n.Tag != "!!bool" {
			return fmt.Errorf("%q is neither true nor false%s", clip(n.Value), quoted(n, n.Value == "true" || n.Value == "false"))
		}
		v.SetBool(strings.EqualFold(n.Value, "true"))
	default:
		if n.Tag != "!!str" {
			return fmt.Errorf("%q is not a text: put it in quotes", clip(n.Value))
		}
		v.SetString(n.Value)
	}
	return nil
}

// longest is more than any key takes: each has its own limit.
const longest = 720 * time.Hour

// quoted tells what is wrong with a value that would be right without its quotes.
func quoted(n *yaml.Node, right bool) string {
	if right && n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
		return ": remove the quotes"
	}
	return ""
}

// choices lists the words a value of this type can be; none for other types.
func choices(v any) string {
	switch v.(type) {
	case Mode:
		return "observe enforce"
	case Action:
		return "ignore note warn drain"
	case GPUOrder:
		return "auto pci minor map"
	case Shards:
		return "auto yes no"
	case ProbeAt:
		return "never prolog epilog both"
	case ReasonBy:
		return "healthcheck hook none"
	case Privacy:
		return "own jobs"
	case Verbosity:
		return "always unclean never"
	case LogLevel:
		return "debug info warning error"
	case LogFormat:
		return "text json"
	}
	return ""
}

// meant returns " (name?)" for the name that was probably meant, nothing where none is near.
func meant(written string, names []string) string {
	if best := code.Near(clip(written), names); best != "" {
		return fmt.Sprintf(" (%s?)", best)
	}
	return ""
}

// clip bounds a text from the file for a message.
func clip(s string) string {
	if len(s) > 60 {
		return s[:60] + "..."
	}
	return s
}
