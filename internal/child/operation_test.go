package child

import (
	"io"
	"strings"
	"testing"

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
