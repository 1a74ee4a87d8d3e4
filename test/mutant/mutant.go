// Package mutant plants one mistake at a time in this module's sources, by an overlay for go build that leaves the
// tree alone: a test that cannot see the mistake proves nothing.
package mutant

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Mutant is one plausible mistake in one place.
type Mutant struct {
	Name string
	File string // below the module's root
	Old  string // what stands there, exactly once
	New  string
}

// Apply changes a source, in which Old must stand once.
func (m Mutant) Apply(text string) (string, error) {
	if n := strings.Count(text, m.Old); n != 1 {
		return "", fmt.Errorf("plant %q: its line stands %d times in %s: adapt the table", m.Name, n, m.File)
	}
	return strings.Replace(text, m.Old, m.New, 1), nil
}

// Overlay writes the changed source into folder, and the overlay that puts it in the place of the real one of the
// module at root. The overlay's path is for go build -overlay.
func (m Mutant) Overlay(root, folder string) (overlay string, err error) {
	path, err := filepath.Abs(filepath.Join(root, m.File))
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	changed, err := m.Apply(string(text))
	if err != nil {
		return "", err
	}
	mutated, overlay := filepath.Join(folder, "mutated.go"), filepath.Join(folder, "overlay.json")
	data, err := json.Marshal(map[string]map[string]string{"Replace": {path: mutated}})
	return overlay, errors.Join(err, os.WriteFile(mutated, []byte(changed), 0o600), os.WriteFile(overlay, data, 0o600))
}
