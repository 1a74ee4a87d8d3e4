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

	"gopkg.in/yaml.v3"
)

// scalar sets v from the single value of a key. The cases are all the types a Config is made of.
func scalar(n *yaml.Node, v reflect.Value, tag reflect.StructTag) (err error) {
	if n.Tag == "!!null" {
		return errors.New("has no value")
	}
	switch typed := v.Addr().Interface().(type) {
	case *Duration, *Size, *int:
		i, err := number(v.Type(), n)
		if err != nil {
			return err
		}
		if low, is := tag.Lookup("from"); is && (i < limit(v.Type(), low) || i > limit(v.Type(), tag.Get("to"))) {
			return fmt.Errorf("must be from %s to %s", low, tag.Get("to"))
		}
		v.Set(reflect.ValueOf(i).Convert(v.Type()))
	case *bool:
		if n.Tag != "!!bool" {
			return fmt.Errorf("%q is neither true nor false without quotes", clip(n.Value))
		}
		*typed = strings.EqualFold(n.Value, "true")
	case *string:
		*typed, err = parseText(n, tag.Get("text"))
	default:
		if words := tag.Get("words"); n.Tag != "!!str" || !slices.Contains(strings.Fields(words), n.Value) {
			return fmt.Errorf("%q is none of: %s", clip(n.Value), words)
		}
		v.SetString(n.Value)
	}
	return err
}

// longest is more than any key takes: most have their own limit.
const longest = 720 * time.Hour

// number reads a value of one of the types that have an order.
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

// limit reads a limit from a tag, which has the form of a value.
func limit(kind reflect.Type, text string) int64 {
	i, _ := number(kind, &yaml.Node{Value: text, Tag: "!!int"})
	return i
}

// parseText checks a text by its kind. Libraries are paths too, or empty for the loader's own folders, which are
// root's: a
// bare name would go past the check of who may write the file.
func parseText(n *yaml.Node, kind string) (string, error) {
	kind, orEmpty := strings.CutSuffix(kind, " or empty")
	switch {
	case n.Tag != "!!str":
		return "", fmt.Errorf("%q is not a text: put it in quotes", clip(n.Value))
	case orEmpty && n.Value == "":
		return "", nil
	case kind == "name":
		return n.Value, checkName(n.Value)
	case kind == "line":
		return n.Value, checkLine(n.Value)
	case kind == "textfile":
		return n.Value, checkTextfile(n.Value)
	}
	return n.Value, checkPath(n.Value)
}

func checkPath(p string) error {
	if !path.IsAbs(p) || path.Clean(p) != p || p == "/" || !plain(p) {
		return fmt.Errorf("%q is not an absolute path below / in its shortest form", clip(p))
	}
	return nil
}

func checkTextfile(p string) error {
	if err := checkPath(p); err != nil {
		return err
	}
	if name := path.Base(p); !strings.HasSuffix(name, TextfileSuffix) || strings.HasPrefix(name, ".") {
		return fmt.Errorf("%q does not end in NAME%s: node_exporter would not read it", clip(p), TextfileSuffix)
	}
	return nil
}

func checkName(name string) error {
	if name == "" || len(name) > 128 || !plain(name) || strings.Contains(name, " ") {
		return fmt.Errorf("%q is not a name of 1 to 128 printable characters", clip(name))
	}
	return nil
}

// checkLine checks a text that users read as it is.
func checkLine(text string) error {
	if len(text) > 128 || !plain(text) {
		return fmt.Errorf("%q is not a line of at most 128 printable characters", clip(text))
	}
	return nil
}

func plain(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' })
}

// String writes the duration as it stands in the file.
func (d Duration) String() string { return time.Duration(d).String() }

// units are largest first, as String picks the first that fits. They are powers of two only: "MB" means two things to
// people.
var units = []struct {
	suffix string
	bytes  uint64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// parseSize reads a whole number with a unit.
func parseSize(text string) (Size, bool) {
	for _, u := range units {
		if digits, is := strings.CutSuffix(text, u.suffix); is {
			n, err := strconv.ParseUint(strings.TrimSpace(digits), 10, 63)
			return Size(n * u.bytes), err == nil && n <= 1<<50/u.bytes
		}
	}
	return 0, false
}

// String writes the size as it stands in the file, in its largest whole unit.
func (s Size) String() string {
	for _, u := range units {
		if uint64(s)%u.bytes == 0 && s > 0 {
			return strconv.FormatUint(uint64(s)/u.bytes, 10) + u.suffix
		}
	}
	return "0B"
}
