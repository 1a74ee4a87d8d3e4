package health

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/test/must"
)

var update = flag.Bool("update", false, "rewrite docs/health.md and testdata/facts.txt")

const doc = "../../docs/health.md"

func TestTableIsSound(t *testing.T) {
	seen := map[string]bool{}
	once := func(key string) {
		if seen[key] {
			t.Errorf("%s stands twice in the table", key)
		}
		seen[key] = true
	}
	for _, r := range table() {
		key := fmt.Sprint(r.Fact, r.Value, r.Xids)
		if (r.Fact == "") == (len(r.Xids) == 0) || (r.Fact == "") != (r.Value == "") {
			t.Errorf("%s is neither a fact nor an Xid", key)
		}
		once(string(r.Fact) + r.Value + fmt.Sprint(r.Xids))
		for _, n := range r.Xids {
			once(fmt.Sprintf("Xid %d", n))
		}
		if r.Meaning == "" || r.Asks == "" || expected[r.Code] == "" {
			t.Errorf("%s lacks words: %+v", key, r)
		}
		for _, c := range r.Value + r.Meaning + r.Asks + r.Doubt + expected[r.Code] {
			if c < ' ' || c > '~' || c == '|' {
				t.Errorf("%s: %q is not plain ASCII", key, c)
			}
		}
		if entry, ok := code.Lookup(r.Code); !ok || entry.Scope != code.Card {
			t.Errorf("%s: %s is no finding on a GPU", key, r.Code)
		}
	}
}

// The tables of docs/health.md are what the table that judges says; the text around them is the page's own.
func TestHealthDoc(t *testing.T) {
	got := string(must.Have(os.ReadFile(doc))(t))
	var facts, xids string
	for _, r := range factRows {
		facts += fmt.Sprintf("| %s | %s %s\n", r.Fact, r.Value, columns(r))
	}
	for _, r := range slices.SortedFunc(slices.Values(xidRows),
		func(a, b Row) int { return cmp.Compare(a.Xids[0], b.Xids[0]) }) {
		name, numbered := strings.CutPrefix(gpu.Error(r.Xids[0]), "Xid ")
		if numbered {
			name = ranges(r.Xids)
		}
		xids += fmt.Sprintf("| %s %s\n", name, columns(r))
	}
	want := got
	for start, rows := range map[string]string{"| fact | value |": facts, "| Xid | finding |": xids} {
		i := strings.Index(want, start)
		table, after, ok := strings.Cut(want[max(i, 0):], "\n\n")
		if i < 0 || !ok {
			t.Fatalf("%s has no table %q", doc, start)
		}
		head := strings.SplitAfterN(table, "\n", 3)
		want = want[:i] + head[0] + head[1] + rows + "\n" + after
	}
	if *update {
		must.Do(t, os.WriteFile(doc, []byte(want), 0o644))
	} else if got != want {
		t.Errorf("%s differs from the table: run go test ./internal/health -update", doc)
	}
}

// shipped is what the shipped policy of an end does with a row's finding in enforce mode: the policy itself is asked.
func shipped(r Row) string {
	a := action(r.finding("x"))
	if a == config.Drain {
		return "**drain**"
	}
	return string(a)
}

func columns(r Row) string {
	meaning := strings.TrimRight(r.Meaning, ": ")
	if r.Doubt != "" {
		meaning += ". Doubt: " + r.Doubt
	}
	return fmt.Sprintf("| [%s](findings.md#%s) | %s | %s | %s |", r.Code, strings.ToLower(string(r.Code)), meaning,
		r.Asks, shipped(r))
}

// ranges writes numbers in order, runs of three and more as "126-135".
func ranges(numbers []int) string {
	var out []string
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		if j-i < 2 {
			j = i
			out = append(out, fmt.Sprint(numbers[i]))
		} else {
			out = append(out, fmt.Sprintf("%d-%d", numbers[i], numbers[j]))
		}
		i = j + 1
	}
	return strings.Join(out, ", ")
}
