package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"bookend/internal/protocol"
	"bookend/test/fakeamd"
	"bookend/test/must"
)

// maxAMD is the promise for a look at eight of AMD's GPUs at work: at most this many times a C program that reads the
// same files. Of a look at idle ones the start of Go's runtime is the larger part.
const maxAMD = 1.25

// BenchmarkAMD looks at eight GPUs, idle or each with a process of 300 descriptors, of which 16 are the driver's.
func BenchmarkAMD(b *testing.B) {
	dir := b.TempDir()
	bare := filepath.Join(dir, "look")
	text, err := exec.Command("gcc", "-O2", "-o", bare, "../fakeamd/c/look.c").CombinedOutput()
	if err != nil {
		b.Fatalf("build the yardstick: %v\n%s", err, text)
	}
	program := filepath.Join(built(b, "bookend-amd"), "bookend-amd")
	for _, state := range []string{"idle", "busy"} {
		w := eight(b, filepath.Join(dir, state), state == "busy")
		request := protocol.Request{Bookend: protocol.Version, Op: protocol.Snapshot, All: true, DeadlineMillis: 5000,
			Options: protocol.Options{"proc": w.Proc, "sys": w.Sys}}
		line := append(must.Have(json.Marshal(request))(b), '\n')
		both := [2]exec.Cmd{{Path: program}, {Path: bare, Args: []string{bare, w.Proc, w.Sys}}}
		b.Run(state, func(b *testing.B) {
			ratio := inTurn(b, [2]string{"run", "c"}, func(which int) time.Duration {
				return twenty(func() time.Duration { return looked(b, both[which], line) })
			})
			must.Not(b, state == "busy" && ratio > maxAMD, "%.2f times C; the promise is %.2f", ratio, maxAMD)
		})
	}
}

// looked runs one of them. The request's pipe stays open until it has ended, as a hook's does.
func looked(b *testing.B, cmd exec.Cmd, line []byte) time.Duration {
	begin := time.Now()
	in := must.Have(cmd.StdinPipe())(b)
	must.Do(b, cmd.Start())
	_, _ = in.Write(line) // the yardstick reads none
	must.Do(b, cmd.Wait())
	return time.Since(begin)
}

func eight(b *testing.B, dir string, busy bool) *fakeamd.World {
	b.Helper()
	var cards []fakeamd.Card
	for i := range 8 {
		cards = append(cards, fakeamd.Card{Bus: fmt.Sprintf("0000:%x0:00.0", i+1), Minor: 128 + i,
			UniqueID: fmt.Sprintf("a1b2c3d4e5f6071%d", i), Name: "AMD Instinct MI300X", Total: 192 << 30})
	}
	w := fakeamd.New(dir, cards...)
	for i := range cards {
		if !busy {
			break
		}
		pid := 4000 + i
		w.Use(i, 100<<30)
		w.Compute(pid, 128+i, 99<<30)
		w.Queue(pid, 128+i)
		for fd := range 16 {
			w.Open(pid, fd, i, fakeamd.Info(1, 99<<30))
		}
		for fd := 16; fd < 300; fd++ {
			must.Do(b, os.Symlink("/dev/null", filepath.Join(w.Proc, fmt.Sprint(pid), "fd", fmt.Sprint(fd))))
		}
	}
	return w
}
