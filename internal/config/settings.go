package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Setting is one key in effect.
type Setting struct {
	Key   string // "settle.prolog.max"
	Value string // as the file would have it
	Line  int    // of the file; 0 for a default
}

// Settings are all keys in effect with a configuration's text, in the order of the documentation. A text with mistakes
// is not used: then they are those of Parse's answer.
func Settings(data []byte) (all []Setting) {
	c, problems := Parse(data)
	r := reader{lines: map[string]int{}, bad: map[string]bool{}}
	if root, problem := document(data); problem == nil && len(problems) == 0 {
		ignored := Default()
		r.fill(root, reflect.ValueOf(&ignored).Elem(), "", "")
	}
	settings(reflect.ValueOf(c), "", func(key string, v reflect.Value) {
		all = append(all, Setting{Key: key, Value: flow(v), Line: r.lines[key]})
	})
	return all
}

// settings visits the keys of a section that are no sections themselves.
func settings(v reflect.Value, section string, visit func(key string, v reflect.Value)) {
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		key := strings.TrimPrefix(section+"."+tag.Get("yaml"), ".")
		switch {
		case tag.Get("yaml") == "-", tag.Get("old") != "":
		case v.Field(i).Kind() == reflect.Struct:
			settings(v.Field(i), key, visit)
		default:
			visit(key, v.Field(i))
		}
	}
}

// flow writes a value as it stands in one line of the file.
func flow(v reflect.Value) string {
	var parts []string
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			parts = append(parts, flow(v.Index(i)))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case reflect.Map:
		for _, key := range v.MapKeys() {
			parts = append(parts, fmt.Sprintf("%v: %s", key, flow(v.MapIndex(key))))
		}
		slices.Sort(parts)
		return "{" + strings.Join(parts, ", ") + "}"
	case reflect.Struct:
		settings(v, "", func(key string, v reflect.Value) {
			if empty := v.IsZero() || v.Kind() == reflect.Map && v.Len() == 0; !empty {
				parts = append(parts, key+": "+flow(v))
			}
		})
		return "{" + strings.Join(parts, ", ") + "}"
	case reflect.String:
		if v.Len() == 0 {
			return `""`
		}
	}
	return fmt.Sprint(v.Interface())
}
