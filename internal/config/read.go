package config

import (
	"errors"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"bookend/internal/catalog"

	"gopkg.in/yaml.v3"
)

// reader fills a Config from YAML nodes. The struct and its tags are the schema: yaml is the key, was its name in
// earlier versions; words, from, to and text limit its value. The YAML package's own decoder would take yes for true
// and 2.5 for 2, follow aliases, clear what has no value, and name no keys in errors.
type reader struct {
	problems []Problem
	unused   []Problem
	lines    map[string]int // the line of each key
}

// dropped are keys of earlier versions that have no effect any more.
var dropped = []string{
	"BKD-BARMAP", // in a policy
	"deadlines.prolog.append", "deadlines.prolog.job_log", "job_log.end", "job_log.start", "job_log.steps",
	"job_log.why", "look", "nvidia.accounting", "nvidia.gpu_order", "probe.exclusive", "probe.max_age", "probe.mig",
	"probe.partitions", "thresholds.per_client",
}

func (r *reader) problem(line int, key, text string) {
	r.problems = append(r.problems, Problem{Line: line, Key: key, Text: text})
}

// fill sets v from n. What does not fit is reported as a problem and leaves v as it is.
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
	case kind == reflect.Slice && n.Kind != yaml.SequenceNode:
		r.problem(n.Line, key, "want a list")
	case kind == reflect.Slice:
		list := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
		for i, item := range n.Content {
			r.fill(item, list.Index(i), fmt.Sprintf("%s.%d", key, i), tag)
		}
		v.Set(list)
	case n.Kind != yaml.ScalarNode:
		r.problem(n.Line, key, "want a single value")
	default:
		if err := scalar(n, v, tag); err != nil {
			r.problem(n.Line, key, err.Error())
		}
	}
}

func (r *reader) pairs(n *yaml.Node, key string, use func(name, at string, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		r.problem(n.Line, key, "want keys and values")
		return
	}
	seen := map[string]int{} // the line of each key
	for pair := range slices.Chunk(n.Content, 2) {
		name, at := pair[0], strings.TrimPrefix(key+"."+clip(pair[0].Value), ".")
		switch {
		case name.Kind != yaml.ScalarNode:
			r.problem(name.Line, key, "a key must be a single word")
		case seen[name.Value] > 0:
			r.problem(name.Line, at, fmt.Sprintf("is set twice, first in line %d", seen[name.Value]))
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
		tag := v.Type().Field(i).Tag
		key, _, _ := strings.Cut(tag.Get("yaml"), ",")
		if name == "" || name != key && name != tag.Get("was") || key == "-" {
			continue
		}
		is := at // if a single word stands for the whole section
		if above, named := strings.CutSuffix(at, name); named {
			is = above + key
		}
		if old := tag.Get("was"); old != "" && r.lines[is] > 0 && r.lines[strings.TrimSuffix(is, key)+old] > 0 {
			r.problem(r.lines[at], at, "is set twice: "+old+" is what earlier versions called "+key)
			return
		}
		if name != key {
			r.unused = append(r.unused, Problem{Line: r.lines[at], Key: at, Text: "is called " + key + " now"})
			r.lines[is] = r.lines[at]
		}
		r.fill(value, v.Field(i), is, tag)
		return
	}
	r.problem(r.lines[at], at, "no such key")
}

func (r *reader) entry(v reflect.Value, name, at string, value *yaml.Node, tag reflect.StructTag) {
	k, why := reflect.New(v.Type().Key()).Elem(), ""
	if k.Kind() == reflect.Int {
		i, err := strconv.ParseUint(name, 10, 15)
		if k.SetInt(int64(i)); err != nil || name != strconv.FormatUint(i, 10) { // 0 and 00 would be one key twice
			why = "not a number from 0 to 32767"
		}
	} else if k.SetString(name); k.Type() != reflect.TypeFor[catalog.Code]() {
		why = textProblem("name", name)
	} else if _, known := catalog.Lookup(catalog.Code(name)); !known {
		why = "no such finding code; docs/findings.md lists them"
	}
	if why != "" {
		r.problem(r.lines[at], at, why)
		return
	}
	elem := reflect.New(v.Type().Elem()).Elem()
	r.fill(value, elem, at, tag)
	if v.IsNil() {
		v.Set(reflect.MakeMap(v.Type()))
	}
	v.SetMapIndex(k, elem)
}

// scalar sets v from the single value of a key. The cases are all the types that a Config is made of.
func scalar(n *yaml.Node, v reflect.Value, tag reflect.StructTag) error {
	if n.Tag == "!!null" {
		return errors.New("has no value")
	}
	quoted := fmt.Sprintf("%q", clip(n.Value))
	switch v.Addr().Interface().(type) {
	case *Duration, *Size, *int:
		i, err := number(v.Type(), n)
		if err != nil {
			return err
		}
		low, bounded := tag.Lookup("from")
		if bounded && (i < limit(v.Type(), low) || i > limit(v.Type(), tag.Get("to"))) {
			return fmt.Errorf("must be from %s to %s", low, tag.Get("to"))
		}
		v.Set(reflect.ValueOf(i).Convert(v.Type()))
		return nil
	case *bool:
		if n.Tag != "!!bool" {
			return errors.New(quoted + " is neither true nor false without quotes")
		}
		v.SetBool(strings.EqualFold(n.Value, "true"))
		return nil
	case *string:
		if n.Tag != "!!str" {
			return errors.New(quoted + " is not a text: put it in quotes")
		}
		if why := textProblem(tag.Get("text"), n.Value); why != "" {
			return errors.New(why)
		}
	default:
		if words := tag.Get("words"); n.Tag != "!!str" || !slices.Contains(strings.Fields(words), n.Value) {
			return fmt.Errorf("%s is none of: %s", quoted, words)
		}
	}
	v.SetString(n.Value)
	return nil
}

// longest exceeds what any key needs: most have their own limit.
const longest = 720 * time.Hour

func number(kind reflect.Type, n *yaml.Node) (int64, error) {
	switch kind {
	case reflect.TypeFor[Duration]():
		if d, err := time.ParseDuration(n.Value); err == nil && d >= 0 && d <= longest {
			return int64(d), nil
		}
		return 0, fmt.Errorf("%q is not a duration from 0s to 720h, such as 3.5s or 500ms", clip(n.Value))
	case reflect.TypeFor[Size]():
		if size, ok := parseSize(n.Value); ok {
			return int64(size), nil
		}
		return 0, fmt.Errorf("%q is not a size, such as 512MiB (units: B, KiB, MiB, GiB)", clip(n.Value))
	}
	i, err := strconv.Atoi(n.Value)
	if err != nil || n.Tag != "!!int" {
		return 0, fmt.Errorf("%q is not a whole number without quotes", clip(n.Value))
	}
	return int64(i), nil
}

// limit parses a limit in a tag, which has the form of a value.
func limit(kind reflect.Type, text string) int64 {
	i, _ := number(kind, &yaml.Node{Value: text, Tag: "!!int"})
	return i
}

// textProblem says what is wrong with a text of a kind, empty if nothing is. Libraries are paths too, or empty for the
// loader's own directories, which only root can write: a bare name would bypass the check of who may write the file.
func textProblem(kind, text string) string {
	kind, orEmpty := strings.CutSuffix(kind, " or empty")
	plain, why := plain(text), ""
	switch base := path.Base(text); {
	case orEmpty && text == "":
	case kind == "name" && (text == "" || len(text) > 128 || !plain || strings.Contains(text, " ")):
		why = "is not a name of 1 to 128 printable characters"
	case kind == "line" && (len(text) > 128 || !plain): // users read it as it is
		why = "is not a line of at most 128 printable characters"
	case kind == "name" || kind == "line":
	case !path.IsAbs(text) || path.Clean(text) != text || text == "/" || !plain:
		why = "is not an absolute path below / in its shortest form"
	case kind == "textfile" && (!strings.HasSuffix(base, TextfileSuffix) || strings.HasPrefix(base, ".")):
		why = "does not end in NAME" + TextfileSuffix + ": node_exporter would not read it"
	}
	if why != "" {
		why = fmt.Sprintf("%q %s", clip(text), why)
	}
	return why
}

func plain(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' })
}

func clip(text string) string {
	if len(text) > 60 {
		return text[:60] + "..."
	}
	return text
}

func (d Duration) String() string { return time.Duration(d).String() }

func (d Duration) MarshalYAML() (any, error) { return d.String(), nil }

// units are sorted largest first, as String picks the first that fits. All are powers of two: "MB" is ambiguous.
var units = []struct {
	suffix string
	bytes  uint64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

func parseSize(text string) (Size, bool) {
	for _, u := range units {
		if digits, is := strings.CutSuffix(text, u.suffix); is {
			n, err := strconv.ParseUint(strings.TrimSpace(digits), 10, 63)
			return Size(n * u.bytes), err == nil && n <= 1<<50/u.bytes
		}
	}
	return 0, false
}

// String returns the size as the file has it, in its largest whole unit.
func (s Size) String() string {
	for _, u := range units {
		if uint64(s)%u.bytes == 0 && s > 0 {
			return strconv.FormatUint(uint64(s)/u.bytes, 10) + u.suffix
		}
	}
	return "0B"
}

func (s Size) MarshalYAML() (any, error) { return s.String(), nil }
