package child

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/test/must"
)

// What is no operation, or no request, ends the child with a message.
func TestServeRefuses(t *testing.T) {
	op := NewOperation("count", func(list []int) (int, error) { return len(list), nil })
	for _, tt := range []struct{ op, request, want string }{
		{"none", `[]`, "no such child operation"}, {op.Name, `[5`, "read request"}, {op.Name, `5`, "decode request"},
	} {
		var stdout strings.Builder
		held, end := io.Pipe() // so that what waits for its end does not outlive the test
		env := Env{
			Stdin: io.MultiReader(strings.NewReader(tt.request), strings.NewReader(" "), held), Stdout: &stdout,
			Exit: func(int) {},
		}
		if tt.request == `[5` {
			end.Close()
		}
		err := env.serve(tt.op)
		must.Not(t, err == nil || !strings.Contains(err.Error(), tt.want) || stdout.Len() > 0, "%v: %v, %q", tt, err, &stdout)
	}
}

// What takes long is said on a terminal, and only a terminal is cleared.
func TestBusy(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer terminal.Close()
	number, err := unix.IoctlGetUint32(int(terminal.Fd()), unix.TIOCGPTN)
	must.Do(t, err)
	must.Do(t, unix.IoctlSetPointerInt(int(terminal.Fd()), unix.TIOCSPTLCK, 0))
	screen, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer screen.Close()
	file, err := os.Create(t.TempDir() + "/file")
	must.Do(t, err)
	for _, out := range []io.Writer{nil, file, screen} { // the last one that is said is waited for
		defer Env{Stderr: out}.Progress("reading")()
		must.Be(t, "cleared", Env{Stdout: out}.Clear() != "", out == screen)
	}
	line, err := bufio.NewReader(terminal).ReadString('\n')
	must.Not(t, err != nil || line != "reading\r\n", "%q, %v", line, err)
	info, err := file.Stat()
	must.Not(t, err != nil || info.Size() > 0, "a file was written to: %v, %v", info, err)
}
