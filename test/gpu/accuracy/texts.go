package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"bookend/test/texts"
)

// sayings renders how much of the collection is understood.
func sayings(folder string) (string, error) {
	var b strings.Builder
	b.WriteString(head("sayings"))
	for _, part := range []struct{ name, file string }{{"untouched", texts.Heldout}, {"at hand", texts.Written},
		{"forms", texts.Formats}} {
		all, err := texts.Load(filepath.Join(folder, part.file))
		if err != nil {
			return "", err
		}
		s := texts.Of(all)
		fmt.Fprintf(&b, "| %d %s | %s | %s | %s |\n", len(all), part.name, share(s.Recognised, s.Shortages),
			share(s.Read, s.Sized), share(s.Taken, s.Others))
	}
	return b.String(), nil
}

func share(n, of int) string {
	return fmt.Sprintf("%d of %d (%.1f %%)", n, of, 100*float64(n)/float64(max(1, of)))
}
