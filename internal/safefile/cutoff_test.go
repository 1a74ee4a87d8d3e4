package safefile

import (
	"path/filepath"
	"testing"
)

// An entry that a full disk cut off does not swallow the next one.
func TestAppendAfterACut(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	put(t, log, "one\ntw", 0o640)
	ok(t, Append(dir, "log", []byte("three\n"), 100))
	ok(t, Append(dir, "log", []byte("four\n"), 100))
	if text := content(t, log); text != "one\ntw\nthree\nfour\n" {
		t.Errorf("log %q", text)
	}
	put(t, log, "one\ntw", 0o640)
	ok(t, Append(dir, "log", []byte("3\n"), 8)) // no room for both: the log is rotated
	if a, b := content(t, log+".1"), content(t, log); a != "one\ntw" || b != "3\n" {
		t.Errorf("log.1 %q, log %q", a, b)
	}
}
