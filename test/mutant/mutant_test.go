package mutant

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestApply(t *testing.T) {
	m := Mutant{Name: "x", Old: "a", New: "b"}
	if got, err := m.Apply("an"); err != nil || got != "bn" {
		t.Errorf("Apply = %q, %v", got, err)
	}
	for _, text := range []string{"", "no", "a a"} {
		if _, err := m.Apply(text); err == nil {
			t.Errorf("Apply(%q) found its line once", text)
		}
	}
}

func TestOverlay(t *testing.T) {
	root, folder := t.TempDir(), t.TempDir()
	source := filepath.Join(root, "a.go")
	if err := os.WriteFile(source, []byte("package a // guard\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay, err := Mutant{"x", "a.go", "guard", "none"}.Overlay(root, folder)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(overlay)
	mutated, _ := os.ReadFile(filepath.Join(folder, "mutated.go"))
	if !strings.Contains(string(text), source) || string(mutated) != "package a // none\n" {
		t.Errorf("overlay %s, source %s", text, mutated)
	}
	if _, err := (Mutant{"x", "b.go", "guard", "none"}).Overlay(root, folder); err == nil {
		t.Error("a source that is not there was changed")
	}
}
