package inventory

import (
	"os"
	"path/filepath"
	"testing"

	"bookend/internal/gpu"
)

func TestLibraryVersion(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, gpu.NVIDIA.Library)
	for file, want := range map[string]string{
		"libnvidia-ml.so.580.159.04": "580.159.04", "libnvidia-ml.so.390.48": "390.48", "libnvidia-ml.so.1.real": "",
		"fake.so": "",
	} {
		target := filepath.Join(dir, file)
		if err := os.WriteFile(target, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(link)
		if err := os.Symlink(file, link); err != nil {
			t.Fatal(err)
		}
		if got := LibraryVersion(link); got != want {
			t.Errorf("%s: got %q, want %q", file, got, want)
		}
	}
	if got := LibraryVersion(filepath.Join(dir, "absent")); got != "" {
		t.Errorf("no library: got %q", got)
	}
}
