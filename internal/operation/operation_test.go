package operation

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

// closing is a stdin that ends in an error, so that what waits for its end does not outlive the test.
type closing struct{ io.Reader }

func (c closing) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	if errors.Is(err, io.EOF) && n == 0 {
		panic("the end of stdin")
	}
	return n, err
}

// A child that is asked for anything but one of its operations, in full, says so and answers nothing. What it is asked
// in full is not done here: that is for the tests of each operation.
func FuzzChildRequest(f *testing.F) {
	for i := range all() {
		for _, seed := range []string{``, `{}`, `null`, `5`, `[]`, `{"a":1}`, `{"run":7,"pid":"x","uid":-1}`, `"x"`, `{"proc":`, "\x00", `{} {}`, `{"run":null}`} {
			f.Add(i, []byte(seed))
		}
	}
	f.Fuzz(func(t *testing.T, which int, request []byte) {
		if which < 0 || which >= len(all()) || all()[which].(interface{ meant([]byte) bool }).meant(request) {
			return
		}
		name := all()[which].name()
		var stdout, stderr strings.Builder
		env := Env{Stdin: closing{bytes.NewReader(request)}, Stdout: &stdout, Stderr: &stderr, Exit: func(int) {}}
		exit := ask1(t, env, name)
		if exit != 1 || stdout.Len() > 0 || !strings.HasSuffix(stderr.String(), "\n") {
			t.Fatalf("%s of %q: exit %d, %q, %q", name, request, exit, stdout.String(), stderr.String())
		}
	})
}

// ask1 serves one request; a stdin that ends before the request does is one way not to ask.
func ask1(t *testing.T, env Env, op string) (exit int) {
	t.Helper()
	defer func() {
		if recover() != nil {
			exit = 1
			_, _ = env.Stderr.Write([]byte("no request\n"))
		}
	}()
	return Serve(env, op, nil)
}

// meant reads a request as strictly as its operation must: all of it known, and something asked for.
func (o Operation[Req, Rep]) meant(data []byte) bool {
	var first json.RawMessage
	if json.NewDecoder(bytes.NewReader(data)).Decode(&first) != nil {
		return false
	}
	var request Req
	decoder := json.NewDecoder(bytes.NewReader(first))
	decoder.DisallowUnknownFields()
	return decoder.Decode(&request) == nil && !reflect.ValueOf(&request).Elem().IsZero()
}
