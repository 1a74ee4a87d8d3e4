package state

import (
	"errors"
	"testing"
	"time"

	"bookend/internal/slurm"
)

// The first hook of a job's end keeps a second one out, and no other job's, nor the job's start.
func TestClaim(t *testing.T) {
	run := folder(t)
	s, beside := open(t, run), open(t, run)
	claim := func(id slurm.JobID, phase slurm.Context, wait time.Duration) (func(), error) {
		t.Helper()
		release, err := beside.Claim(job(id), phase, wait)
		if err != nil && !errors.Is(err, ErrLocked) {
			t.Fatal(err)
		}
		return release, err
	}
	first, err := s.Claim(job(100), slurm.Epilog, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := claim(100, slurm.Epilog, 5*time.Millisecond); err == nil {
		t.Error("two hooks of one end are both the first")
	}
	for _, other := range []struct {
		id    slurm.JobID
		phase slurm.Context
	}{{101, slurm.Epilog}, {100 + jobLocks, slurm.Epilog}, {100, slurm.Prolog}, {1<<32 - 1, slurm.Epilog}} {
		release, err := claim(other.id, other.phase, 0)
		if err != nil {
			t.Fatalf("%+v is kept out", other)
		}
		release()
	}
	first()
	if release, err := claim(100, slurm.Epilog, time.Minute); err != nil {
		t.Error("kept out by one that has ended")
	} else {
		release()
	}
	if _, err := s.Claim(slurm.Job{ID: 100, Node: "n2"}, slurm.Epilog, 0); !errors.Is(err, ErrName) {
		t.Errorf("another node's: %v", err)
	}
}
