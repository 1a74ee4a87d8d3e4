package view

import (
	"bytes"
	"encoding/json"
	"flag"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"bookend/internal/condition"
	"bookend/internal/doctor"
	"bookend/internal/fleet"
	"bookend/internal/joblog"
	"bookend/test/must"
)

var update = flag.Bool("update", false, "rewrite testdata")

// documents are the types that commands write.
var documents = map[string]reflect.Type{
	"status": reflect.TypeFor[Status](), "show": reflect.TypeFor[Show](), "own-report": reflect.TypeFor[OwnReport](),
	"history": reflect.TypeFor[History](), "repeat-offenders": reflect.TypeFor[Offenders](),
	"snapshot": reflect.TypeFor[Snapshot](), "doctor": reflect.TypeFor[doctor.Report](),
	"peaks": reflect.TypeFor[joblog.Peaks](), "fleet": reflect.TypeFor[fleet.Fleet](), "reset": reflect.TypeFor[condition.ResetReport](),
}

var (
	example = regexp.MustCompile("(?s)\n```json\n(.*?)```")
	remark  = regexp.MustCompile(`(?m) +//.*$`)
)

// TestFields holds the examples in docs/cli.md to the types: there is one of each document, no example has a field that
// its type lacks, and together they have every field that any of the types has.
func TestFields(t *testing.T) {
	page := must.Read(t, "../../docs/cli.md")
	shown, kinds := map[string]bool{}, map[string]int{}
	var texts []json.RawMessage
	for _, m := range example.FindAllStringSubmatch(page, -1) {
		for d := json.NewDecoder(bytes.NewReader(remark.ReplaceAll([]byte(m[1]), nil))); d.More(); {
			texts = append(texts, nil)
			must.Do(t, d.Decode(&texts[len(texts)-1]))
		}
	}
	for _, text := range texts {
		var head Head
		must.Do(t, json.Unmarshal(text, &head))
		kinds[head.Kind]++
		document := reflect.New(documents[head.Kind])
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		must.Do(t, d.Decode(document.Interface()))
		var raw any
		must.Do(t, json.Unmarshal(text, &raw))
		mark(shown, document.Type(), raw)
	}
	for kind, of := range documents {
		if kinds[kind] != 1 {
			t.Errorf("docs/cli.md has %d examples of %s", kinds[kind], kind)
		}
		missing(t, shown, of)
	}
}

// mark notes which fields of a type, and of those within it, an example has.
func mark(shown map[string]bool, of reflect.Type, raw any) {
	switch value := raw.(type) {
	case []any:
		for _, one := range value {
			mark(shown, of, one)
		}
	case map[string]any:
		for _, f := range fields(of) {
			if one, ok := value[f.name]; ok {
				shown[f.place] = true
				mark(shown, f.of, one)
			}
		}
	}
}

func missing(t *testing.T, shown map[string]bool, of reflect.Type) {
	for _, f := range fields(of) {
		if !shown[f.place] {
			t.Errorf("docs/cli.md has no example of %s: %s", f.place, f.name)
		}
		missing(t, shown, f.of)
		shown[f.place] = true
	}
}

// field is one of a document's, of the type in which it is declared.
type field struct {
	place, name string
	of          reflect.Type
}

// fields are those of a type, or of what a list or a pointer is of, with those of what it embeds.
func fields(of reflect.Type) (all []field) {
	for of.Kind() == reflect.Slice || of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct || of == reflect.TypeFor[time.Time]() {
		return nil
	}
	for _, f := range reflect.VisibleFields(of) {
		declared := of
		if n := len(f.Index) - 1; n > 0 {
			declared = of.FieldByIndex(f.Index[:n]).Type
		}
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); f.IsExported() && !f.Anonymous {
			all = append(all, field{declared.String() + "." + f.Name, name, f.Type})
		}
	}
	return all
}
