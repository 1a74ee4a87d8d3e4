package stage

import (
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"bookend/internal/routine"
	"bookend/internal/slurm"
)

// A hook that is stuck ends at the deadline that the README promises for the default configuration, or 5 s after its
// start if it could not read its configuration. It runs on a clock of its own: no machine is too slow for this test.
func TestShippedDeadlineEndsHooks(t *testing.T) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM) // its goroutine must not be of a test's bubble
	for _, tt := range []struct {
		hook    func(Env) int
		context slurm.Context
		stuck   string // reading this variable
		promise time.Duration
	}{
		{Prolog, slurm.Prolog, "SLURM_JOB_ID", 5 * time.Second},
		{Epilog, slurm.Epilog, "SLURM_JOB_ID", 15 * time.Second},
		{Prolog, slurm.Prolog, "BOOKEND_CONFIG", 5 * time.Second},
		{Epilog, slurm.Epilog, "BOOKEND_CONFIG", 5 * time.Second},
		{Prolog, slurm.TaskProlog, "SLURM_RLIMIT_AS", time.Second}, // the job's script waits for it
	} {
		environ := map[string]string{
			"SLURM_SCRIPT_CONTEXT": string(tt.context), "SLURM_JOB_GPUS": "0",
			"BOOKEND_CONFIG": filepath.Join(t.TempDir(), "missing.yaml"),
		}
		synctest.Test(t, func(t *testing.T) {
			began, ended := time.Now(), make(chan struct{})
			getenv := func(name string) string {
				if name == tt.stuck {
					<-ended
					runtime.Goexit() // what follows would write to this machine's own directories
				}
				return environ[name]
			}
			go tt.hook(Env{
				Args: []string{"bookend"}, Getenv: getenv, Stdout: io.Discard, Stderr: io.Discard, EUID: 1,
				Clock: routine.Clock{Wall: time.Now, Boot: func() time.Duration { return time.Since(began) }},
				Exit:  func(int) { close(ended) },
			})
			<-ended
			if took := time.Since(began); took < tt.promise || took > tt.promise+LastWords {
				t.Errorf("%s stuck at %s: ended after %v, want %v", tt.context, tt.stuck, took, tt.promise)
			}
		})
	}
}
