package inventory

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"bookend/test/must"
)

var uuidForm = regexp.MustCompile(`^GPU-[0-9a-f-]{36}$`)

// A card keeps the bus id of its folder; what its file says beyond that is whole, or unknown.
func FuzzInformation(f *testing.F) {
	files, err := filepath.Glob("testdata/h200x4/*")
	if err != nil || len(files) == 0 {
		f.Fatal("no real files: ", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("Device Minor: 99999999999999999999\nGPU UUID: GPU-\nBus Location: :::\nBlacklisted: Yes")
	f.Add("Model: x\nGPU UUID: GPU-????????-????-????-????-????????????\nDevice Minor: -1\n" +
		"GPU Excluded: Yes\nBus Location: 0000:1B:00.0")
	f.Fuzz(func(t *testing.T, text string) {
		const bus = "0000:1b:00.0"
		card := parseInformation(text, bus)
		if card.Device.BusID != bus || card.Device.Vendor != "nvidia" {
			t.Errorf("lost its bus id: %+v", card)
		}
		if m := card.Device.Minor; m != nil && (*m < 0 || *m >= 1<<minorBits || card.Excluded || card.Unknown != "") {
			t.Errorf("minor %d of %+v", *m, card)
		}
		if id := string(card.Device.ID); id != "" && (!uuidForm.MatchString(id) || !strings.Contains(text, id)) {
			t.Errorf("id %q", id)
		}
		if name := card.Device.Name; !strings.Contains(text, name) || strings.Contains(name, "\n") {
			t.Errorf("name %q", name)
		}
		if card.Unknown != "" && (card.Device.ID != "" || card.Device.Name != "" || card.Excluded) {
			t.Errorf("unknown, and yet %+v", card)
		}
		other := parseInformation(text+"\nBus Location: 0000:9d:00.0\n", bus)
		if other.Unknown == "" {
			t.Errorf("another GPU's file was taken: %+v", other)
		}
	})
}

// A file of one word gives that word, or nothing.
func FuzzWord(f *testing.F) {
	for _, seed := range []string{"580.95.05\n", "12f1b2aa-5f4c-4b5e-8a53-8d5f0c9b3f1e\n", "a b", "\x00", "\u00a0x",
		strings.Repeat("x", maxLine+1), ""} {
		f.Add(seed)
	}
	file := filepath.Join(f.TempDir(), "version")
	f.Fuzz(func(t *testing.T, text string) {
		must.Do(t, os.WriteFile(file, []byte(text), 0o600))
		word := strings.TrimSpace(text)
		if len(text) > maxLine || strings.ContainsFunc(word, func(r rune) bool { return r <= ' ' || r > '~' }) {
			word = ""
		}
		if got := readWord(file); got != word {
			t.Errorf("%q gives %q, want %q", text, got, word)
		}
	})
}

var versionForm = regexp.MustCompile(`^[0-9]+\.[0-9]+(\.[0-9]+)?$`)

func FuzzVersion(f *testing.F) {
	for _, seed := range []string{"580.95.05", "470.1", "1", "1.2.3.4", "1..2", "1.2\n", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if isVersion(s) != versionForm.MatchString(s) {
			t.Errorf("%q: %v", s, isVersion(s))
		}
	})
}
