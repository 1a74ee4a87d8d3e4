package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"bookend/internal/gpu"
	"bookend/test/must"
)

func request() Request {
	return Request{
		Bookend: Version, Op: Watch, DeadlineMillis: 6000,
		Devices: []gpu.Device{{ID: "GPU-1", BusID: "0000:1b:00.0"}, {ID: "MIG-2", Parent: "GPU-1"}},
		Watch: gpu.WatchRule{
			Max: 5 * time.Second, Flat: 3 * time.Second, SlackBytes: 32 << 20,
			Expect: map[gpu.ID]gpu.Expected{"GPU-1": {Bytes: 7, Processes: []gpu.ExpectedProcess{{PID: 3, Bytes: 9}}}},
		},
		Options: Options{"nvml_library": "/usr/lib/libnvidia-ml.so.1"},
	}
}

func replies() []Reply {
	minor := 0
	look := gpu.Snapshot{
		At: time.Hour, Driver: gpu.Driver{Version: "580.1", Library: "13.580.1"},
		Readings: []gpu.Reading{{
			Device: gpu.Device{ID: "GPU-1", BusID: "0000:1b:00.0", Minor: &minor, Name: "H200", Vendor: "nvidia"},
			Memory: gpu.Memory{Total: gpu.Bytes(1 << 37), Reserved: gpu.Bytes(0), Used: gpu.Bytes(0),
				Free: gpu.Unknown("why"), Unjudged: "a vGPU"},
			Processes: []gpu.Process{
				{PID: 4194303, Memory: gpu.Unknown("not available"), Kinds: []gpu.Kind{gpu.Compute, gpu.MPS}},
				{PID: 1, Memory: gpu.Bytes(5)},
			},
			Parts: true,
		}},
		Faults: []gpu.Fault{{Code: gpu.FaultLost, Device: "GPU-2", BusID: "0000:1c:00.0", Detail: "GPU is lost"}},
	}
	return []Reply{
		{Bookend: Version, Kind: KindHello, Hello: &Hello{Backend: "nvidia", Version: "1.0"}},
		{Bookend: Version, Kind: KindFault, Fault: &gpu.Fault{Code: gpu.FaultDriver, Detail: "nvmlInit"}},
		{Bookend: Version, Kind: KindSnapshot, Snapshot: &look},
		{Bookend: Version, Kind: KindDone},
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	b := must.Have(json.Marshal(v))(t)
	return string(b)
}

func encode(t testing.TB, replies []Reply) []byte {
	t.Helper()
	var out bytes.Buffer
	w := NewWriter(&out)
	for _, r := range replies {
		must.Do(t, w.Write(r))
	}
	return out.Bytes()
}

// It goes through in whatever pieces it comes, and waits for nothing behind its newline.
func TestRequestGoesThrough(t *testing.T) {
	line := must.Have(request().Line())(t)
	for _, pipe := range []io.Reader{iotest.OneByteReader(bytes.NewReader(line)),
		io.MultiReader(bytes.NewReader(line), iotest.ErrReader(io.ErrNoProgress))} {
		got := must.Have(ReadRequest(pipe))(t)
		if want := request(); !reflect.DeepEqual(got, want) {
			t.Errorf("request changed on its way:\n%+v\n%+v", want, got)
		}
	}
}

func TestLineRefusesWhatDoesNotFitAPipe(t *testing.T) {
	r := request()
	r.Options["nvml_library"] = strings.Repeat("x", MaxRequestBytes)
	if _, err := r.Line(); err == nil {
		t.Error("no error for a request longer than a pipe holds")
	}
}

func TestReadRequestRefuses(t *testing.T) {
	change := func(f func(*Request)) string {
		r := request()
		f(&r)
		line := must.Have(r.Line())(t)
		return string(line)
	}
	tests := map[string]struct {
		input string
		want  Problem
	}{
		"nothing":       {"", CutOff},
		"no newline":    {`{"bookend":1}`, CutOff},
		"two lines":     {`{"bookend":1}` + "\n{", Garbage},
		"not json":      {"GET / HTTP/1.1\n", Garbage},
		"no version":    {"{}\n", Garbage},
		"null version":  {`{"bookend":null}` + "\n", Garbage},
		"later version": {`{"bookend":2,"op":{"of":"another shape"}}` + "\n", WrongVersion},
		"endless":       {strings.Repeat(" ", MaxRequestBytes) + "\n", TooLong},
		"unknown op":    {change(func(r *Request) { r.Op = "format" }), Garbage},
		"no deadline":   {change(func(r *Request) { r.DeadlineMillis = 0 }), Garbage},
		"long deadline": {change(func(r *Request) { r.DeadlineMillis = 1 << 62 }), Garbage},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := ReadRequest(strings.NewReader(tt.input))
			expectProblem(t, err, tt.want)
		})
	}
}

func expectProblem(t *testing.T, err error, want Problem) {
	t.Helper()
	var problem *Error
	switch {
	case want == "" && err != nil:
		t.Errorf("got %v, want no error", err)
	case want != "" && (!errors.As(err, &problem) || problem.Problem != want):
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestRepliesGoThrough(t *testing.T) {
	got := must.Have(DecodeReplies(encode(t, replies())))(t)
	if sent, came := text(t, replies()), text(t, got); sent != came {
		t.Errorf("replies changed on their way:\n%s\n%s", sent, came)
	}
}

const (
	helloLine = `{"bookend":1,"kind":"hello","hello":{"backend":"x","version":"1"}}` + "\n"
	doneLine  = `{"bookend":1,"kind":"done"}` + "\n"
)

// snapshotLine is a snapshot with one reading, of which the test gives the inside.
func snapshotLine(reading string) string {
	return `{"bookend":1,"kind":"snapshot","snapshot":{"at":5,"readings":[` + reading + `]}}` + "\n"
}

func TestDecodeRepliesKeepsWhatCameBefore(t *testing.T) {
	figure := func(f string) string { return snapshotLine(`{"device":{"id":"a"},"memory":{"used":` + f + `}}`) }
	processes := func(p string) string { return snapshotLine(`{"device":{"id":"a"},"processes":[` + p + `]}`) }
	tests := map[string]struct {
		answer string
		kept   int
		want   Problem
	}{
		"complete":             {helloLine + doneLine, 2, ""},
		"empty":                {"", 0, CutOff},
		"no done":              {helloLine, 1, CutOff},
		"cut in a line":        {helloLine + doneLine[:10], 1, CutOff},
		"text":                 {helloLine + "NVRM: oops\n" + doneLine, 1, Garbage},
		"later version":        {`{"bookend":2,"kind":7}` + "\n", 0, WrongVersion},
		"after done":           {doneLine + helloLine, 1, Garbage},
		"no kind":              {`{"bookend":1}` + "\n", 0, Garbage},
		"kind without content": {`{"bookend":1,"kind":"hello"}` + "\n", 0, Garbage},
		"flood":                {strings.Repeat(" ", MaxReplyBytes+1), 0, TooLong},
		"unknown kind":         {`{"bookend":1,"kind":"song","song":"la"}` + "\n" + doneLine, 1, ""},
		"earlier version":      {healthLine + doneLine, 2, ""},
		"unknown field":        {snapshotLine(`{"device":{"id":"a","colour":"red"},"heat":3}`) + doneLine, 2, ""},

		"huge memory":      {figure(`{"bytes":18446744073709551615}`), 0, Garbage},
		"memory as text":   {figure(`{"bytes":"5"}`), 0, Garbage},
		"pid 0":            {processes(`{"pid":0}`), 0, Garbage},
		"huge pid":         {processes(`{"pid":4194305}`), 0, Garbage},
		"same pid twice":   {processes(`{"pid":1},{"pid":1}`), 0, Garbage},
		"nameless device":  {snapshotLine(`{"device":{}}`), 0, Garbage},
		"device twice":     {snapshotLine(`{"device":{"id":"a"}},{"device":{"id":"a"}}`), 0, Garbage},
		"newline in an id": {snapshotLine(`{"device":{"id":"a\nb"}}`), 0, Garbage},
		"nameless fault":   {`{"bookend":1,"kind":"fault","fault":{}}` + "\n", 0, Garbage},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeReplies([]byte(tt.answer))
			expectProblem(t, err, tt.want)
			if len(got) != tt.kept {
				t.Errorf("kept %d replies, want %d", len(got), tt.kept)
			}
		})
	}
}

func TestWhatIsLeftOutIsUnknown(t *testing.T) {
	line := snapshotLine(`{"device":{"id":"a"},"memory":{"used":{"bytes":0},"free":{},"total":{"bytes":9,"unknown":"stale"}}},` +
		`{"device":{"id":"b"},"processes":[{"pid":2}]},{"device":{"id":"c"},"processes":[]}`)
	got := must.Have(DecodeReplies([]byte(line + doneLine)))(t)
	want := []gpu.Reading{
		{
			Device: gpu.Device{ID: "a"}, ProcessesUnknown: leftOut,
			Memory: gpu.Memory{Used: gpu.Bytes(0), Free: gpu.Unknown(leftOut), Total: gpu.Unknown("stale"),
				Reserved: gpu.Unknown(leftOut)},
		},
		{Device: gpu.Device{ID: "b"}, Memory: allLeftOut(),
			Processes: []gpu.Process{{PID: 2, Memory: gpu.Unknown(leftOut)}}},
		{Device: gpu.Device{ID: "c"}, Memory: allLeftOut(), Processes: []gpu.Process{}},
	}
	if want, got := text(t, want), text(t, got[0].Snapshot.Readings); want != got {
		t.Errorf("want %s\ngot  %s", want, got)
	}
}

func allLeftOut() gpu.Memory {
	no := gpu.Unknown(leftOut)
	return gpu.Memory{Total: no, Reserved: no, Used: no, Free: no}
}

func TestWriterKeepsRoomForDone(t *testing.T) {
	var out bytes.Buffer
	w := NewWriter(&out)
	look := replies()[2]
	var err error
	for err == nil {
		err = w.Write(look)
	}
	expectProblem(t, err, TooLong)
	if err := w.Write(Reply{Kind: KindDone}); err != nil {
		t.Error(err)
	}
	if _, err := DecodeReplies(out.Bytes()); err != nil {
		t.Errorf("an answer filled to the brim does not decode: %v", err)
	}
}

func TestWriterReportsAClosedPipe(t *testing.T) {
	r, w := io.Pipe()
	r.Close()
	if err := NewWriter(w).Write(Reply{Kind: KindDone}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v", err)
	}
}

// A hook that waited for another's answer watches as long as it was asked to, if that fits.
func TestWithin(t *testing.T) {
	const second = time.Second
	for name, tt := range map[string]struct {
		watch, deadline, left time.Duration
		want, wantDeadline    time.Duration
	}{
		"it fits":          {second, 7 * second, 5 * second, second, 5 * second},
		"it fits just so":  {second, 7 * second, second + Reserve, second, second + Reserve},
		"it does not":      {6 * second, 7 * second, 5 * second, 5*second - Reserve, 5 * second},
		"there is no time": {second, 7 * second, 100 * time.Millisecond, 0, 100 * time.Millisecond},
		"more than asked":  {second, 3 * second, 5 * second, second, 3 * second},
		"no watch":         {0, 7 * second, 5 * second, 0, 5 * second},
	} {
		r := Request{DeadlineMillis: tt.deadline.Milliseconds(), Watch: gpu.WatchRule{Max: tt.watch}}.Within(tt.left)
		if r.Watch.Max != tt.want || r.DeadlineMillis != tt.wantDeadline.Milliseconds() {
			t.Errorf("%s: watch %v, deadline %d ms", name, r.Watch.Max, r.DeadlineMillis)
		}
	}
}

// A start that listed hundreds of processes on each GPU does not keep the end from asking: the request fits.
func TestRequestFits(t *testing.T) {
	var e gpu.Expected
	for pid := range 480 {
		e.Processes = append(e.Processes, gpu.ExpectedProcess{PID: 4_000_000 + pid, Bytes: 1 << 36, Share: 1 << 28})
	}
	for want, ids := range map[bool][]gpu.ID{true: {"GPU-0"}, false: {"GPU-0", "GPU-1", "GPU-2", "GPU-3"}} {
		r := Request{Op: Watch, Watch: gpu.WatchRule{Expect: map[gpu.ID]gpu.Expected{}}}
		for _, id := range ids {
			r.Watch.Expect[id] = e
		}
		line := must.Have(r.Line())(t)
		if kept := bytes.Contains(line, []byte(`"expect"`)); kept != want || len(line) > MaxRequestBytes {
			t.Errorf("%d GPUs: got %v, want %v", len(ids), kept, want)
		}
	}
}

// NVML starts with the backend, wherever it is, but not for a test, which changes the environment that it may read.
func TestEnvironment(t *testing.T) {
	for name, tt := range map[string]struct {
		r    Request
		want string
	}{
		"its own library": {Request{Op: Watch, Devices: make([]gpu.Device, 2)}, "[GOMAXPROCS=6 BOOKEND_NVML=libnvidia-ml.so.1]"},
		"the site's":      {Request{Op: Record, Options: Options{"nvml_library": "/x.so"}}, "[GOMAXPROCS=4 BOOKEND_NVML=/x.so]"},
		"a test":          {Request{Op: Probe, Options: Options{"nvml_library": "/x.so"}}, "[GOMAXPROCS=4]"},
	} {
		must.Be(t, name, fmt.Sprint(tt.r.Environment()), tt.want)
	}
}
