package maintenance

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"bookend/test/must"
)

// What was begun is put back, the newest first, and what is left to do is on record at each moment, before it is changed.
func TestChanges(t *testing.T) {
	for name, tt := range map[string]struct{ do, ran, left string }{
		"all well":            {"a b c", "a b c c- b- a-", ""},
		"a command fails":     {"a badb c", "a badb badb- a-", "badb-"},
		"an undo fails":       {"a b:bad c", "a b c c- bad a-", "bad"},
		"several undos fail":  {"a:bad1 b:bad2", "a b bad2 bad1", "bad2 bad1"},
		"the first one fails": {"bad a", "bad bad-", "bad-"},
	} {
		t.Run(name, func(t *testing.T) {
			var ran, kept []string
			c := Changes{Say: func(any) {}}
			c.Run = func(command ...string) (string, error) {
				ran = append(ran, command[0])
				if strings.HasPrefix(command[0], "bad") {
					return "", errors.New("failed")
				}
				return "", nil
			}
			c.Keep = func(left [][]string) error {
				kept = nil
				for _, l := range left {
					kept = append([]string{l[0]}, kept...)
				}
				return nil
			}
			for step := range strings.FieldsSeq(tt.do) {
				do, undo, given := strings.Cut(step, ":")
				if !given {
					undo = do + "-"
				}
				_, err := c.Do([]string{do}, []string{undo})
				must.Not(t, !slices.Contains(kept, undo), "%s was changed, and on record is %q", do, kept)
				if err != nil {
					break
				}
			}
			c.Back(0)
			must.Be(t, "ran", strings.Join(ran, " "), tt.ran)
			must.Be(t, "left", strings.Trim(fmt.Sprint(c.Undone()), "[]"), strings.ReplaceAll(tt.left, " ", "] ["))
			must.Be(t, "on record", strings.Join(kept, " "), tt.left)
		})
	}
}

// Nothing is changed that could not be put on record.
func TestChangesThatAreNotMade(t *testing.T) {
	c := Changes{Say: func(any) {}, Keep: func([][]string) error { return errors.New("disk full") }}
	c.Run = func(command ...string) (string, error) { t.Errorf("%q was run", command); return "", nil }
	_, err := c.Do([]string{"do"}, []string{"undo"})
	must.Not(t, err == nil || len(c.Undone()) > 0, "%v, left %q", err, c.Undone())
}
