package metrics

import (
	"encoding/json"
	"slices"
	"strings"
)

// later is what a book has that this release does not know: a later one counted it, before a downgrade. It is neither shown
// nor changed, and written again as it was read, so that the later release goes on where it was. A family's labels and
// buckets never change under its name: a release that wants others gives it another name.
type later struct {
	samples  []unknownSample
	troubles []json.RawMessage
	fields   map[string]json.RawMessage // of the book itself
}

// unknownSample is one of a family that this release does not have.
type unknownSample struct {
	labels []string
	raw    json.RawMessage
}

// mayBeFamily reports a name that some release may give a family; anything else is damage.
func mayBeFamily(name string) bool {
	return formed(name, "bookend_", "abcdefghijklmnopqrstuvwxyz0123456789_")
}

// mayBeCode reports a code that some release may have; anything else is damage.
func mayBeCode(name string) bool {
	return formed(name, "BKD-", "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-")
}

// formed reports a name of up to 100 bytes that begins so and goes on in these letters.
func formed(name, begins, letters string) bool {
	rest, ok := strings.CutPrefix(name, begins)
	return ok && rest != "" && len(name) <= 100 && strings.Trim(rest, letters) == ""
}

// forget drops what is kept of a card by its id.
func (l *later) forget(card string) {
	l.samples = slices.DeleteFunc(l.samples, func(s unknownSample) bool { return slices.Contains(s.labels, card) })
}
