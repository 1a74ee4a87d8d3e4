package operation

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"
)

// A child that is asked for anything but one of its operations, in full, says so and answers nothing.
func FuzzChildRequest(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `null`, `5`, `[]`, `{"a":1}`, `{"run":7,"pid":"x","uid":-1}`, `"x"`, `{"proc":`, "\x00", `{} {}`,
		`{"run":null}`, `{"proc":"/proc","owner":{"id":1}}`, `{"proc":"/proc","pid":1}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, request []byte) {
		var got *CleanupRequest
		serve := Served(func(r CleanupRequest) (bool, error) { got = &r; return true, nil })
		reply, err := serve(request)
		decoder := json.NewDecoder(bytes.NewReader(request))
		decoder.DisallowUnknownFields()
		var want CleanupRequest
		meant := decoder.Decode(&want) == nil && !reflect.ValueOf(want).IsZero()
		if (err == nil) != meant || (got != nil) != meant || (reply == true) != meant {
			t.Fatalf("%q: %v, %v, asked %+v, want %v", request, reply, err, got, meant)
		}
		if meant && !reflect.DeepEqual(*got, want) {
			t.Fatalf("%q: asked %+v, want %+v", request, *got, want)
		}
	})
}

// What is no operation, or no request, ends the child with a word.
func TestServe(t *testing.T) {
	for op, request := range map[string]string{"none": `{"proc":"/proc"}`, Cleanup.Name: `{"proc":`, Disk.Name: `null`} {
		var stdout, stderr strings.Builder
		held, end := io.Pipe() // so that what waits for its end does not outlive the test
		env := Env{
			Stdin: io.MultiReader(strings.NewReader(request), strings.NewReader(" "), held), Stdout: &stdout, Stderr: &stderr,
			Exit: func(int) {},
		}
		if request == `{"proc":` {
			end.Close()
		}
		if exit := Serve(env, op, nil); exit != 1 || stdout.Len() > 0 || !strings.HasSuffix(stderr.String(), "\n") {
			t.Errorf("%s of %q: exit %d, %q, %q", op, request, exit, stdout.String(), stderr.String())
		}
	}
}
