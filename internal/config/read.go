package config

import (
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

// reader fills a Config from YAML nodes. The struct's tags are the schema: yaml is the key, and allow limits its value.
// The YAML package's decoder would take yes for true and 2.5 for 2, follow aliases, and name no keys in errors.
type reader struct {
	problems []Problem
	unused   []Problem
	lines    map[string]int // the line of each key
}

// former are the keys that only 1.0.0 and earlier versions used, with their present names. The others have no effect.
var former = map[string]string{
	"on_unknown": "on_own_error", "settle.prolog.flat": "stable", "settle.epilog.flat": "stable",
	"deadlines.prolog.scan": "processes", "deadlines.prolog.outputs": "records",
	"deadlines.epilog.scan": "processes", "deadlines.epilog.outputs": "records", "deadlines.epilog.append": "job_log",
	"deadlines.health_check.scan": "processes", "deadlines.health_check.outputs": "records",
	"deadlines.prolog.append": "", "deadlines.prolog.job_log": "", "job_log.end": "", "job_log.start": "",
	"job_log.steps": "", "job_log.why": "", "look": "", "nvidia.accounting": "", "nvidia.gpu_order": "",
	"probe.exclusive": "", "probe.max_age": "", "probe.mig": "", "probe.partitions": "", "thresholds.per_client": "",
}

func (r *reader) problem(line int, key, text string) {
	r.problems = append(r.problems, Problem{Line: line, Key: key, Text: text})
}

// fill sets v from n. What does not fit is reported as a problem and leaves v as it is. allow is the tag of the key.
func (r *reader) fill(n *yaml.Node, v reflect.Value, key, allow string) {
	kind := v.Kind()
	switch single := n.Kind == yaml.ScalarNode; {
	case n.Kind == yaml.AliasNode:
		// An alias of an alias of an alias … is how a short YAML file becomes a huge one.
		r.problem(n.Line, key, "aliases are not allowed")
	case n.Tag == "!!null" && (kind == reflect.Struct || kind == reflect.Map || kind == reflect.Slice):
		// Everything below is commented out.
	case v.Type() == reflect.TypeFor[JobLog]() && single:
		r.lines[key+".show"] = n.Line
		r.field(v, "show", key, n)
	case kind == reflect.Struct || kind == reflect.Map:
		r.section(n, v, key, allow)
	case kind == reflect.Slice && n.Kind != yaml.SequenceNode:
		r.problem(n.Line, key, "want a list")
	case kind == reflect.Slice:
		list := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
		for i, item := range n.Content {
			r.fill(item, list.Index(i), fmt.Sprintf("%s.%d", key, i), allow)
		}
		v.Set(list)
	case !single:
		r.problem(n.Line, key, "want a single value")
	default:
		if why := scalar(n, v, key, allow); why != "" {
			r.problem(n.Line, key, why)
		}
	}
}

// section fills a struct or a map, and takes keys of earlier versions for what they are called now.
func (r *reader) section(n *yaml.Node, v reflect.Value, key, allow string) {
	if n.Kind != yaml.MappingNode {
		r.problem(n.Line, key, "want keys and values")
		return
	}
	seen := map[string]int{} // the line of each key
	for pair := range slices.Chunk(n.Content, 2) {
		name, line := pair[0].Value, pair[0].Line
		at := strings.TrimPrefix(key+"."+clip(name), ".")
		now, old := former[at]
		if now != "" {
			r.unused = append(r.unused, Problem{Line: line, Key: at, Text: "is called " + now + " now"})
			at, name = strings.TrimSuffix(at, name)+now, now
		}
		switch {
		case pair[0].Kind != yaml.ScalarNode:
			r.problem(line, key, "a key must be a single word")
		case seen[name] > 0:
			r.problem(line, at, fmt.Sprintf("is set twice, first in line %d", seen[name]))
		case old && now == "", name == "BKD-BARMAP" && strings.HasPrefix(at, "policy."):
			r.unused = append(r.unused, Problem{Line: line, Key: at, Text: "has no effect any more: remove it"})
		case v.Kind() == reflect.Struct:
			r.lines[at] = line
			r.field(v, name, at, pair[1])
		default:
			r.lines[at] = line
			r.entry(v, name, at, pair[1], allow)
		}
		seen[name] = line
	}
}

func (r *reader) field(v reflect.Value, name, at string, value *yaml.Node) {
	for i := range v.NumField() {
		if field := v.Type().Field(i); name != "-" && name == keyOf(field) {
			r.fill(value, v.Field(i), at, field.Tag.Get("allow"))
			return
		}
	}
	r.problem(r.lines[at], at, "no such key")
}

func keyOf(field reflect.StructField) string {
	key, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
	return key
}

func (r *reader) entry(v reflect.Value, name, at string, value *yaml.Node, allow string) {
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
	r.fill(value, elem, at, allow)
	if v.IsNil() {
		v.Set(reflect.MakeMap(v.Type()))
	}
	v.SetMapIndex(k, elem)
}

func scalar(n *yaml.Node, v reflect.Value, key, allow string) (problem string) {
	quoted, isText := fmt.Sprintf("%q", clip(n.Value)), v.Type() == reflect.TypeFor[string]()
	switch kind := v.Kind(); {
	case n.Tag == "!!null":
		return "has no value"
	case kind == reflect.Bool && n.Tag != "!!bool":
		return quoted + " is neither true nor false without quotes"
	case kind == reflect.Bool:
		v.SetBool(strings.EqualFold(n.Value, "true"))
		return ""
	case kind != reflect.String:
		return setNumber(n, v, allow)
	case isText && n.Tag != "!!str":
		return quoted + " is not a text: put it in quotes"
	case isText:
		problem = textProblem(allow, n.Value)
	case n.Tag != "!!str" || !slices.Contains(strings.Fields(allow), n.Value):
		return quoted + " is none of: " + allow
	case n.Value == string(Drain) && strings.HasPrefix(key, "policy."):
		problem = drainProblem(key)
	}
	if problem == "" {
		v.SetString(n.Value)
	}
	return problem
}

// drainProblem refuses a drain for a finding that never drains, so that the admin learns that it has no effect.
func drainProblem(key string) string {
	of, _ := catalog.Lookup(catalog.Code(key[strings.LastIndexByte(key, '.')+1:]))
	switch isCheck := strings.HasPrefix(key, "policy.health_check."); {
	case of.Code == catalog.External && !isCheck:
		return "only the health check finds it"
	case of.Code != catalog.External && isCheck:
		return "the health check never drains: Slurm only logs how it ends"
	case of.NeverDrains() != "":
		return "never drains: " + of.NeverDrains()
	}
	return ""
}

func setNumber(n *yaml.Node, v reflect.Value, allow string) string {
	i, ok, form := number(v.Type(), n)
	low, high, bounded := strings.Cut(allow, " to ")
	switch {
	case !ok:
		return fmt.Sprintf("%q is not a %s", clip(n.Value), form)
	case bounded && (i < limit(v.Type(), low) || i > limit(v.Type(), high)):
		return "must be from " + allow
	}
	v.Set(reflect.ValueOf(i).Convert(v.Type()))
	return ""
}

// number parses a value of a type that is a number in another form, and names that form.
func number(t reflect.Type, n *yaml.Node) (i int64, ok bool, form string) {
	switch t {
	case reflect.TypeFor[Duration]():
		d, err := time.ParseDuration(n.Value)
		return int64(d), err == nil && d >= 0 && d <= 720*time.Hour, "duration from 0s to 720h, such as 3.5s or 500ms"
	case reflect.TypeFor[Size]():
		size, ok := parseSize(n.Value)
		return int64(size), ok, "size, such as 512MiB (units: B, KiB, MiB, GiB)"
	}
	i, err := strconv.ParseInt(n.Value, 10, 0)
	return i, err == nil && n.Tag == "!!int", "whole number without quotes"
}

// limit parses a limit in a tag, which has the form of a value.
func limit(t reflect.Type, text string) int64 {
	i, _, _ := number(t, &yaml.Node{Value: text})
	return i
}

// textProblem says what is wrong with a text of a kind, empty if nothing is. Libraries are paths too, or empty for the
// loader's own directories, which only root can write: a bare name would bypass the check of who may write the file.
func textProblem(kind, text string) string {
	quoted, tooLong := fmt.Sprintf("%q", clip(text)), len(text) > 128
	switch kind, orEmpty := strings.CutSuffix(kind, " or empty"); {
	case orEmpty && text == "":
		return ""
	case kind == "name" && (text == "" || tooLong || !plain(text) || strings.Contains(text, " ")):
		return quoted + " is not a name of 1 to 128 printable characters"
	case kind == "line" && (tooLong || !plain(text)): // users read it as it is
		return quoted + " is not a line of at most 128 printable characters"
	case kind == "unit" && !isService(text):
		return quoted + " is not the name of a service, as nvidia-dcgm.service"
	case kind == "name" || kind == "line" || kind == "unit":
		return ""
	case kind == "spool" && !strings.HasPrefix(text, "%h/") && !strings.Contains(text, "%u"):
		return quoted + " has neither %h/ in front nor %u: each user has a spool of their own"
	case kind == "spool":
		return textProblem("path", strings.Replace(text, "%h/", "/", 1))
	case !path.IsAbs(text) || path.Clean(text) != text || text == "/" || !plain(text):
		return quoted + " is not an absolute path below / in its shortest form"
	case kind == "textfile" && (!strings.HasSuffix(text, TextfileSuffix) || strings.HasPrefix(path.Base(text), ".")):
		return quoted + " does not end in NAME" + TextfileSuffix + ": node_exporter would not read it"
	}
	return ""
}

// isService reports whether a text can only be the full name of one of systemd's services, and no option or pattern.
func isService(text string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:_.@-"
	name, is := strings.CutSuffix(text, ".service")
	return is && name != "" && len(text) <= 128 && name[0] != '-' && strings.Trim(name, allowed) == ""
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
