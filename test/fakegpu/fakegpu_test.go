package fakegpu

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/nodefiles"
	"bookend/test/must"
)

// newWorld makes a world that other users can reach.
func newWorld(t *testing.T, options ...Option) *World {
	t.Helper()
	dir := t.TempDir()
	must.Do(t, os.Chmod(filepath.Dir(dir), 0o755))
	w := must.Have(New(filepath.Join(dir, "world"), options...))(t)
	t.Cleanup(func() { must.Do(t, w.Close()) })
	return w
}

func TestSetRefusesWhatNobodyUnderstands(t *testing.T) {
	w := newWorld(t)
	for key, value := range map[string]string{
		"extra_mib": "1", "gpu0.extra": "1", "on.nvmlInit_v9": "hang", "on.nvmlInit_v2": "explode",
		"gpu64.list": "1:1", "gpu0.list": "a=b", "gpus": "65",
	} {
		if err := w.Set(key, value); err == nil {
			t.Errorf("%s = %s was taken", key, value)
		}
	}
}

// A fake node has a kernel log as a real one has, and it is the tests' own: what they remove stays away.
func TestKernelLog(t *testing.T) {
	w := newWorld(t)
	log := nodefiles.ReadLog(w.Dev(), &gpu.KernelMark{Seq: 1, At: time.Second}, nil)
	if log.Unknown != "" || log.Lost || log.Last.Seq != 2 || len(log.Xids)+len(log.Kills) != 0 {
		t.Errorf("%+v, want two harmless entries", log)
	}
	must.Do(t, os.Remove(w.KernelLog()))
	must.Do(t, w.Set("gpu0.ecc_corrected", "1"))
	if _, err := os.Lstat(w.KernelLog()); !os.IsNotExist(err) {
		t.Errorf("after a change it is there again: %v", err)
	}
}
