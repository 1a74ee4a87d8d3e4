package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"bookend/test/must"
)

const (
	// healthLine is of version 1.0.0, which had the driver's accounting in it.
	healthLine = `{"bookend":1,"kind":"health","health":[{"device":"GPU-1","facts":[{"code":"ecc","value":"0","source":"nvml"}],` +
		`"accounting":{"mode":"on","processes":[{"pid":7,"peak":{"bytes":5}}]}}]}` + "\n"
	probeLine = `{"bookend":1,"kind":"probe","probe":{"device":"GPU-1","result":"gap","method":"contextless","free":{"bytes":9},"largest":{"bytes":5},"attempts":2}}` + "\n"
)

// What is accepted is possible, and says the same when sent again; what was read before a backend died is what a whole
// answer would have begun with.
func FuzzDecodeReplies(f *testing.F) {
	f.Add(encode(f, replies()), 0)
	f.Add([]byte(helloLine+snapshotLine(`{"device":{"id":"a"},"processes":[{"pid":1}],"memory":{"used":{"bytes":5}}}`)+doneLine), 70)
	f.Add([]byte(helloLine+snapshotLine(`{"device":{"id":"GPU-1"}}`)+healthLine+doneLine), 100)
	f.Add([]byte(helloLine+probeLine+doneLine), 9)
	f.Add([]byte(`{"bookend":1,"kind":"new","more":[1]}`+"\n"+doneLine), 1)
	f.Add([]byte(`{"bookend":2}`+"\n"), 1)
	f.Add([]byte(snapshotLine(`null`)), 0)
	f.Add([]byte(snapshotLine(`{"device":{"id":"a"},"busy":{"gpu":71,"memory":40}}`)+
		snapshotLine(`{"device":{"id":"a"},"busy":{"gpu":101}}`)), 0)
	f.Add([]byte(`null`), 2)
	f.Fuzz(func(t *testing.T, out []byte, cut int) {
		got, err := DecodeReplies(out)
		var problem *Error
		if err != nil && !errors.As(err, &problem) {
			t.Fatalf("error of another kind: %v", err)
		}
		if err == nil && (got[len(got)-1].Kind != KindDone || len(out) > MaxReplyBytes) {
			t.Fatalf("%d bytes, %d replies make no whole answer", len(out), len(got))
		}
		for _, r := range got {
			sentAgain(t, r)
		}
		if cut < 0 || cut > len(out) {
			return
		}
		part, err := DecodeReplies(out[:cut])
		if len(part) > len(got) || err == nil && cut < len(out) && len(part) < len(got) {
			t.Fatalf("of %d bytes %d replies, of all %d", cut, len(part), len(got))
		}
		for i, r := range part {
			one, _ := json.Marshal(r)
			if two, _ := json.Marshal(got[i]); !bytes.Equal(one, two) {
				t.Fatalf("of %d bytes\n%s\nof all\n%s", cut, one, two)
			}
		}
	})
}

// sentAgain: a reply keeps its meaning through the pipe.
func sentAgain(t *testing.T, r Reply) {
	t.Helper()
	line := must.Have(json.Marshal(r))(t)
	again, problem := decodeReply(line)
	if problem != nil {
		t.Fatalf("%s\nis not accepted again: %v", line, problem)
	}
	if twice, _ := json.Marshal(again); !bytes.Equal(line, twice) {
		t.Fatalf("%s\nbecame\n%s", line, twice)
	}
}

// A request is what the hook could have sent, and not a byte behind it is taken.
func FuzzReadRequest(f *testing.F) {
	line, err := request().Line()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(line)
	for _, seed := range []string{
		`{"bookend":1,"op":"snapshot","all":true,"deadline_ms":1}` + "\nmore",
		`{"bookend":1,"op":"probe","deadline_ms":600001}` + "\n",
		`{"bookend":1,"op":"probe","deadline_ms":5,"devices":[{"id":"GPU-1"}],"probe":{"locks":{"GPU-1":"/run/x.lock"},"empty":"/run/no"}}` + "\n",
		`{"bookend":1,"op":"record","deadline_ms":7000,"watch":{"every_ns":1000000000},"devices":[{"id":"GPU-1"}]}` + "\n",
		`{"bookend":1,"op":"record","deadline_ms":7000,"watch":{"every_ns":1000}}` + "\n",
		"\n",
		"{", `{"bookend":3}` + "\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		from := bytes.NewReader(in)
		req, err := ReadRequest(from)
		if err != nil {
			return
		}
		rest, _ := io.ReadAll(from)
		if _, after, _ := bytes.Cut(in, []byte("\n")); !bytes.Equal(rest, after) {
			t.Fatalf("%q was left of %q", rest, in)
		}
		if req.Deadline() <= 0 || req.Deadline() > maxTime || req.Bookend != Version {
			t.Fatalf("accepted %+v", req)
		}
		line, err := req.Line()
		if err != nil {
			return // JSON writes some of what it reads in more bytes
		}
		again, err := ReadRequest(bytes.NewReader(line))
		if err != nil {
			t.Fatalf("%s\nis not accepted again: %v", line, err)
		}
		if twice, _ := again.Line(); !bytes.Equal(line, twice) {
			t.Fatalf("%s\nbecame\n%s", line, twice)
		}
	})
}
