package state

import (
	"testing"

	"bookend/internal/ledger"
	"bookend/internal/slurm"
)

// What a prolog pays: opening, reading a ledger as large as Archive lets it grow, and beginning a run.
func BenchmarkProlog(b *testing.B) {
	run := b.TempDir()
	s, err := Open(run, node)
	if err != nil {
		b.Fatal(err)
	}
	keep := DefaultLimits()
	for id := range slurm.JobID(keep.Recent + keep.Findings) {
		if err := s.Begin(full(id + 1)); err != nil {
			b.Fatal(err)
		}
	}
	next := slurm.JobID(100_000)
	b.Run("begin", func(b *testing.B) {
		for b.Loop() {
			next++
			s, err := Open(run, node)
			if err == nil {
				err = s.Begin(full(next))
			}
			if err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			if err := s.remove(ledger.Run{Key: string(sluidA), Job: job(next)}); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
	b.Run("runs", func(b *testing.B) {
		for b.Loop() {
			if runs, damage := s.Runs(); len(runs) != keep.Recent+keep.Findings || len(damage) != 0 {
				b.Fatal(len(runs), damage)
			}
		}
	})
}
