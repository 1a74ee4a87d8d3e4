package faults

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"bookend/internal/diagnosis"
)

// A job whose output shows a full card is not told of host memory for what its errors say, at whatever time, in a file of
// their own.
func TestOutputAndErrorsApart(t *testing.T) {
	n := newNode(t, "enforce")
	j := n.begin(newJob())
	errs := filepath.Join(filepath.Dir(j["SLURM_JOB_STDOUT"]), "job.err")
	must(t, os.WriteFile(errs, []byte("OSError: [Errno 12] Cannot allocate memory\n"), 0o644))
	must(t, os.Chown(errs, user, user))
	n.finish(j.with("SLURM_JOB_STDERR", errs), failed, "epoch 7\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. "+
		"GPU 0 has a total capacity of 139.80 GiB of which 921.00 MiB is free. Including non-PyTorch memory, this process has 138.80 GiB memory in use. "+
		"Of the allocated memory 138.00 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.\n")
	if c := n.endOf(100).Diagnosis.Cause(diagnosis.Limits); c.Answer != diagnosis.Unknown || slices.Contains(n.causes(), diagnosis.Limits) {
		t.Errorf("%+v", c)
	}
	files := map[int]bool{}
	for _, m := range n.messages() {
		files[m.File] = true
	}
	if len(files) != 2 {
		t.Errorf("messages of %d files: %+v", len(files), n.messages())
	}
}
