package inventory

import (
	"os"
	"path/filepath"
	"testing"

	"bookend/internal/gpu"
	"bookend/test/must"
)

func TestLibraryVersion(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, gpu.NVIDIA.Library)
	for file, want := range map[string]string{
		"libnvidia-ml.so.580.159.04": "580.159.04", "libnvidia-ml.so.390.48": "390.48", "libnvidia-ml.so.1.real": "",
		"fake.so": "",
	} {
		target := filepath.Join(dir, file)
		must.Do(t, os.WriteFile(target, nil, 0o644))
		_ = os.Remove(link)
		must.Do(t, os.Symlink(file, link))
		if got := LibraryVersion(link); got != want {
			t.Errorf("%s: got %q, want %q", file, got, want)
		}
	}
	if got := LibraryVersion(filepath.Join(dir, "absent")); got != "" {
		t.Errorf("no library: got %q", got)
	}
}
