package docs

import (
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"bookend/internal/safetext"
	"bookend/internal/view"
	"bookend/test/must"
)

// TestMain shows all times in one time zone, wherever the samples are made.
func TestMain(m *testing.M) {
	time.Local = time.UTC
	os.Exit(m.Run())
}

// screens are samples of the command line by name.
var screens = map[string]func(*testing.T) string{
	"status": screen[view.Status]("status"), "show": screen[view.Show]("show 4"),
	"offenders": screen[view.Offenders]("history --repeat-offenders --since 4w"),
}

// screen draws what a command answers with --json, which is in testdata.
func screen[T interface{ Text(io.Writer) }](command string) func(*testing.T) string {
	return func(t *testing.T) string {
		var said T
		name, _, _ := strings.Cut(command, " ")
		must.Do(t, json.Unmarshal([]byte(must.Read(t, "testdata/"+name+".json")), &said))
		var b strings.Builder
		b.WriteString("root@n1# bookend " + command + "\n")
		said.Text(safetext.Terminal(&b))
		return b.String()
	}
}
