package oomlog

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/test/golden"
	"bookend/test/must"
)

func parts(t testing.TB) map[string]string {
	t.Helper()
	text := must.Have(os.ReadFile("testdata/said.txt"))(t)
	out := map[string]string{}
	name := ""
	for line := range strings.Lines(string(text)) {
		if head, ok := strings.CutPrefix(line, "-- "); ok && strings.HasSuffix(line, " --\n") {
			name, _, _ = strings.Cut(head, ": ")
			continue
		}
		out[name] += line
	}
	return out
}

func card(n int) *int { return &n }

var update = flag.Bool("update", false, "rewrite the files of testdata that say what follows")

// told is what was found, without the lines that say it. What cannot be has a question mark.
func told(t *testing.T, found []record.Message) string {
	t.Helper()
	var all []string
	for _, m := range found {
		if !Valid(m) {
			t.Errorf("%+v", m)
		}
		text := fmt.Sprint(m.Kind, " ", cmp.Or(m.Framework, "-"))
		if m.Program != "" {
			text += " in " + string(m.Program)
		}
		for i, f := range m.Figures() {
			name := []string{"asked", "total", "free", "in use", "allocated", "idle"}[i]
			if f.Known() {
				text += fmt.Sprintf(", %s %d", name, f.Bytes)
			} else if *f != notSaid {
				text += ", " + name + " ?"
			}
		}
		if m.Cap > 0 {
			text += fmt.Sprintf(", cap %d", m.Cap)
		}
		if m.GPU != nil {
			text += fmt.Sprintf(", GPU %d", *m.GPU)
		}
		if m.Rank != nil {
			text += fmt.Sprintf(", rank %d", *m.Rank)
		}
		if m.PID != 0 {
			text += fmt.Sprintf(", PID %d", m.PID)
		}
		if len(m.Others) > 0 {
			text += ", others"
		}
		for _, o := range m.Others {
			text += fmt.Sprintf(" %d %d", o.PID, o.Memory.Bytes)
		}
		if m.Count > 1 {
			text += fmt.Sprintf(", %d times", m.Count)
		}
		all = append(all, text)
	}
	return cmp.Or(strings.Join(all, " | "), "nothing")
}

// What programs really printed, with every figure in it, however it reaches the file.
func TestFind(t *testing.T) {
	texts := parts(t)
	golden.Names(t, *update, "testdata/found.txt", maps.Keys(texts))
	golden.Lines(t, *update, "testdata/found.txt", func(name string) string {
		found := Find([]byte(texts[name]))
		for _, way := range ways {
			got, want := Find([]byte(way.to(texts[name]))), slices.Clone(found)
			for i := range want {
				if want[i].Rank == nil { // the program itself does not say it
					want[i].Rank = way.rank
				}
			}
			if told(t, got) != told(t, want) {
				t.Errorf("%s, %s: %s, want %s", name, way.name, told(t, got), told(t, want))
			}
		}
		return told(t, found)
	})
}

// Every section of words.txt is known, its words can be met, and of each program there is a message.
func TestWords(t *testing.T) {
	classes := []class{isSign, isSpeaker, isProgram, isGPU, isHost, isHostCall, isStart, isError, goesOn, givesUp, isFrame, isEncoder, restarts, isDone, isMemory, isOther, isCode, isCompiler, isBroken, isFigure, isWritten, isAsked, isPassed}
	for line := range strings.Lines(wordsFile) {
		head, begins := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "== ")
		name, _, _ := strings.Cut(head, ": ")
		word := head != "" && !begins && head[0] != '#'
		if begins && !slices.Contains(classes, class(name)) || word && (len(head) < 3 || head != strings.ToLower(head)) {
			t.Errorf("%q", line)
		}
	}
	met := must.Read(t, "testdata/found.txt") + must.Read(t, "testdata/lines.txt")
	for at, program := range vocabulary().speakers {
		if !regexp.MustCompile(`(device|init|host|shared|fault) ` + string(program.framework) + `\b`).MatchString(met) {
			t.Errorf("speaker %d, %q: put one of its messages into testdata/lines.txt, then go test -update", at,
				program.framework)
		}
	}
	for _, p := range vocabulary().programs {
		if !regexp.MustCompile(` (in )?` + regexp.QuoteMeta(string(p.framework)) + `\b`).MatchString(met) {
			t.Errorf("program %q: put one of its messages into testdata/lines.txt, then go test -update", p.framework)
		}
	}
}

// Lines that tell of a shortage and lines that only look so, of which a backslash and n divides several.
func TestLines(t *testing.T) {
	marks := strings.NewReplacer(`\n`, "\n", `\r`, "\r", `\e`, "\x1b")
	golden.Lines(t, *update, "testdata/lines.txt", func(line string) string {
		return told(t, Find([]byte(marks.Replace(line))))
	})
}

// ways are what is done to output on its way to a file, and the rank that it says.
var ways = []struct {
	name string
	to   func(string) string
	rank *int
}{
	{"as it is", func(s string) string { return s }, nil},
	{"without a line feed", func(s string) string { return strings.TrimSuffix(s, "\n") }, nil},
	{"CRLF", func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }, nil},
	{"srun --label", eachLine("12: ", ""), card(12)},
	{"torchrun", eachLine("[rank0]: ", ""), card(0)},
	{"torchrun with srun --label", eachLine(" 0: [rank12]: ", ""), card(12)},
	{"coloured", eachLine("\x1b[31m", "\x1b[0m"), nil},
	{"boxed", eachLine("\u2502 ", "   \u2502"), nil},
	{"after a progress bar", func(s string) string { return "\r 10%|\u2588    | 1/10 [00:01<00:09,  1.0s/it]\r" + s }, nil},
	{"timed", eachLine("2026-03-01 10:00:00,123 ERROR ", ""), nil},
	{"journal", eachLine("Mar 01 10:00:00 gpu12 python3: ", ""), nil},
	{"container's runtime", eachLine("2026-03-01T10:00:00.123456789Z stderr F ", ""), nil},
	{"node and rank", eachLine("gpu12: [rank12]: ", ""), card(12)},
	{"node and label", eachLine("gpu12: 12: ", ""), card(12)},
	{"node alone", eachLine("gpu12: ", ""), nil},
	{"Docker Compose", eachLine("trainer-1  | ", ""), nil},
	{"loguru", eachLine("2026-03-01 10:00:00.123 | ERROR    | my.trainer:run:12 - ", ""), nil},
	{"absl", eachLine("E0301 10:00:00.123456 140735 main.py:33] ", ""), nil},
	{"Python's logger", eachLine("2026-03-01 10:00:00,123 - root - ERROR - ", ""), nil},
	{"Python's logger as it is", eachLine("ERROR:my.trainer:", ""), nil},
	{"Python's logger in a package", eachLine("2026-03-01 10:00:00,123 ERROR my.trainer: ", ""), nil},
	{"by a wrapper", eachLine("stderr: ", ""), nil},
	{"W&B", eachLine("wandb: ", ""), nil},
	{"by ts", eachLine("2026-03-01T10:00:00.123Z ", ""), nil},
	{"in a long output", func(s string) string { return strings.Repeat("epoch 1 loss 0.5\n", 10000) + s }, nil},
	{"with binary bytes", func(s string) string { return "\x00\xff\xfe\x1b\x1b[\n" + s + "\x00\x1b[" }, nil},
}

func eachLine(before, after string) func(string) string {
	return func(s string) string {
		var b strings.Builder
		for line := range strings.Lines(s) {
			b.WriteString(before + strings.TrimSuffix(line, "\n") + after + "\n")
		}
		return b.String()
	}
}

const oomLine = "[rank%]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU % has a total capacity of 8.00 GiB of which 1.00 GiB is free.\n"

func onRank(n string) string { return strings.ReplaceAll(oomLine, "%", n) }

// Of very many kinds the last ones are kept.
func TestFindBounds(t *testing.T) {
	var text strings.Builder
	for n := range 200 {
		text.WriteString(onRank(strconv.Itoa(n)))
	}
	got := Find([]byte(text.String()))
	if len(got) != MaxMessages || *got[MaxMessages-1].GPU != 199 || *got[0].GPU != 200-MaxMessages {
		t.Errorf("%d messages: %+v", len(got), got)
	}
	var many strings.Builder
	for n := 1; n <= 40; n++ {
		many.WriteString("Process " + strconv.Itoa(n) + " has 1.00 GiB memory in use. ")
	}
	long := strings.Replace(onRank("0"), "is free.", "is free. "+many.String()+"Including non-PyTorch memory, this process has 1.00 GiB memory in use.", 1)
	if got := Find([]byte(long)); len(got) != 1 || len(got[0].Others) != MaxOthers || len(got[0].Line) != MaxLine || !strings.HasSuffix(got[0].Line, "...") {
		t.Errorf("%+v", got)
	}
}

// A line whose beginning is cut off might have said the contrary.
func TestFindLeavesOutTheCutLine(t *testing.T) {
	line := "CUDA error: out of memory\n"
	full := line + strings.Repeat("x", MaxTail-len(line))
	if got := Find([]byte(full)); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	for _, whole := range []string{"\n" + full[:MaxTail-1], full[:MaxTail-1]} {
		if got := Find([]byte(whole)); len(got) != 1 {
			t.Errorf("%+v", got)
		}
	}
}

// A long path before the message does not push it out of the line that is shown.
func TestShown(t *testing.T) {
	torch := strings.TrimSpace(parts(t)["torch-pool"])
	for _, n := range []int{0, 30, 100, 119, 200, 5000, 40000} {
		found := Find([]byte(strings.Repeat("p", n) + " - " + torch))
		shown := "OutOfMemoryError: CUDA out of memory. Tried to allocate 22.78 GiB"
		if len(found) != 1 || !strings.Contains(found[0].Line, shown) ||
			!strings.Contains(found[0].Line, "9.35 GiB is reserved") || !found[0].Total.Known() {
			t.Errorf("%d: %+v", n, found)
		}
	}
}

// Lines of sources, shells, docs and logs that name an error, or lack something else than memory.
func TestNotSaid(t *testing.T) {
	for line := range strings.Lines(must.Read(t, "testdata/not-said.txt")) {
		for _, m := range Find([]byte(line)) {
			if m.Kind != record.KindFault {
				t.Errorf("%q: %+v", line, m)
			}
		}
	}
}

func TestValid(t *testing.T) {
	good := blank()
	good.Kind, good.Framework, good.Line, good.Others = record.KindDevice, record.FromPyTorch, "x", []gpu.Process{{PID: 7, Memory: gpu.Bytes(1)}}
	if !Valid(good) {
		t.Error(good)
	}
	for name, harm := range map[string]func(*record.Message){
		"kind":            func(m *record.Message) { m.Kind = "" },
		"framework":       func(m *record.Message) { m.Framework = "Torch" },
		"GPU":             func(m *record.Message) { m.GPU = card(-1) },
		"rank":            func(m *record.Message) { m.Rank = card(-1) },
		"PID":             func(m *record.Message) { m.PID = -1 },
		"long line":       func(m *record.Message) { m.Line = strings.Repeat("x", MaxLine+1) },
		"file":            func(m *record.Message) { m.File = -1 },
		"processes":       func(m *record.Message) { m.Others = make([]gpu.Process, MaxOthers+1) },
		"process":         func(m *record.Message) { m.Others[0].PID = 0 },
		"process's bytes": func(m *record.Message) { m.Others[0].Memory.Bytes = 4 << 50 },
		"bytes":           func(m *record.Message) { m.Idle = gpu.Bytes(4 << 50) },
		"unknown bytes":   func(m *record.Message) { m.Total = gpu.Figure{Bytes: 1, Unknown: "not said"} },
		"reason":          func(m *record.Message) { m.Asked = gpu.Unknown("a\x1b[31m") },
	} {
		bad := good
		bad.Others = []gpu.Process{good.Others[0]}
		harm(&bad)
		if Valid(bad) {
			t.Errorf("%s: %+v is valid", name, bad)
		}
	}
}

// Messages could be so, and quote what the job wrote.
func FuzzFind(f *testing.F) {
	for _, text := range parts(f) {
		f.Add([]byte(text))
	}
	f.Add([]byte("CUDA out of memory. Tried to allocate 99999999999999999999999999 GiB. GPU 99999999999999999999 has a total capacity of . of which"))
	f.Add([]byte("Free memory on device cuda: (/ on startup is less than desired GPU memory utilization"))
	f.Fuzz(func(t *testing.T, tail []byte) {
		found := Find(tail)
		if len(found) > MaxMessages {
			t.Errorf("%d messages", len(found))
		}
		for _, m := range found {
			if !Valid(m) {
				t.Errorf("%+v", m)
			}
		}
		quoted(t, tail, found)
		if again := Find(tail); !reflect.DeepEqual(again, found) {
			t.Errorf("%+v, then %+v", found, again)
		}
	})
}

// quoted: each line shown stands in the job's output.
func quoted(t *testing.T, tail []byte, found []record.Message) {
	t.Helper()
	var all strings.Builder
	for _, l := range split(tail) {
		all.WriteString(l.body + "\n")
	}
	for _, m := range found {
		if !strings.Contains(all.String(), strings.TrimSuffix(m.Line, "...")) {
			t.Errorf("%q does not stand in %q", m.Line, all.String())
		}
	}
}
