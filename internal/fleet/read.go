package fleet

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// answer is what one node printed: the last document that was whole, or why there is none.
type answer struct {
	node   string // the name that the command for many nodes put before each line; empty without one
	doc    status
	reason string // why doc is missing; empty if it is there
}

// status is the part of the documents of "bookend status --json" that a fleet needs, and of "bookend history --json"
// (docs/cli.md). Nodes may run another version of Bookend, which may have more fields.
type status struct {
	Version int       `json:"version"`
	Kind    string    `json:"kind"`
	Node    string    `json:"node"`
	At      time.Time `json:"at"`
	Mode    string    `json:"mode"`
	Driver  *struct {
		Answers bool   `json:"answers"`
		Problem string `json:"problem"`
	} `json:"driver"`
	Slurm *struct {
		Drained bool      `json:"drain"`
		Reason  string    `json:"reason"`
		Since   time.Time `json:"reason_since"`
	} `json:"slurm"`
	GPUs   []gpuStatus `json:"gpus"`
	Struck []struct {
		Repeat bool       `json:"repeat_offender"`
		Faults []struct{} `json:"faults"`
	} `json:"gpu_faults"`
	Troubles []struct {
		Code  string   `json:"code"`
		Title string   `json:"title"`
		Seen  []string `json:"said"`
		Met   *struct {
			Since time.Time `json:"since"`
		} `json:"met"`
	} `json:"troubles"`
	Damaged []string   `json:"damaged"`
	Running []struct{} `json:"running"`
	Ended   []run      `json:"ended"` // the newest few

	Runs []run `json:"runs"` // of a document of "bookend history --json"
}

type run struct {
	BeganAt time.Time `json:"began_at"`
	EndedAt time.Time `json:"ended_at"`
	Start   *verdict  `json:"start"`
	End     *verdict  `json:"end"`

	JobID    uint32    `json:"job_id"`
	UID      uint32    `json:"uid"`
	State    string    `json:"state"`
	Findings []finding `json:"findings"`
}

type verdict struct {
	Action string `json:"action"`
}

type figure struct {
	Bytes   uint64 `json:"bytes"`
	Unknown string `json:"unknown"`
}

type gpuStatus struct {
	State  string `json:"state"` // missing in documents of releases before 1.1
	Memory struct {
		Used figure `json:"used"`
	} `json:"memory"`
	Unexplained figure    `json:"unexplained"`
	Processes   []process `json:"processes"`
	Jobs        []string  `json:"jobs"`
	Last        *struct {
		Job string    `json:"job"`
		At  time.Time `json:"at"`
	} `json:"last"`
}

type process struct {
	PID    int       `json:"pid"`
	User   string    `json:"user"`
	UID    uint32    `json:"uid"`
	Name   string    `json:"name"`
	Job    string    `json:"job"`
	Ended  time.Time `json:"job_ended_at"`
	Memory figure    `json:"memory"`
}

// Limits of the input. A node with 16 GPUs and 64 processes on each prints about 300 KiB.
const (
	mostNodes = 100_000
	mostBytes = 8 << 20 // of one node's answer
	mostLine  = 1 << 20
)

// read returns the answers in lines, or those of a round: up to an empty line, after which there may be more. Lines of
// several nodes may be mixed if each begins with its node's name, and without names documents follow one another.
func read(lines *bufio.Reader, round bool) (answers []answer, more bool, err error) {
	printed := map[string]*bytes.Buffer{}
	for {
		text, rest := lines.ReadSlice('\n')
		node, line := split(strings.TrimRight(string(text), "\r\n"))
		if more = round && rest == nil && node+line == ""; more {
			break
		}
		for errors.Is(rest, bufio.ErrBufferFull) { // no node's document has such a line: its row says so
			_, rest = lines.ReadSlice('\n')
		}
		if rest != nil && rest != io.EOF {
			return nil, false, fmt.Errorf("read documents: %w", rest)
		}
		if printed[node] == nil {
			printed[node] = &bytes.Buffer{}
		}
		if len(printed) > mostNodes {
			return nil, false, fmt.Errorf("read documents: more than %d nodes", mostNodes)
		}
		if b := printed[node]; node == "" || b.Len()+len(line) < mostBytes {
			b.WriteString(line + "\n")
		}
		if rest == io.EOF {
			break
		}
	}
	for _, node := range slices.Sorted(maps.Keys(printed)) {
		answers = append(answers, documents(node, printed[node].Bytes())...)
	}
	return answers, more, nil
}

// split returns the name of the node that clush, pdsh and the like put before a line, empty without one. A line of JSON
// begins with a space, a bracket or a quote.
func split(line string) (node, rest string) {
	const named = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	node, rest, found := strings.Cut(line, ":")
	if !found || node == "" || strings.Trim(node, named) != "" {
		return "", line
	}
	return node, strings.TrimPrefix(rest, " ")
}

// documents returns the answers in what one node printed, or in what was printed without names of nodes.
func documents(node string, text []byte) (all []answer) {
	stream := json.NewDecoder(bytes.NewReader(text))
	for {
		var doc status
		at := stream.InputOffset()
		err := stream.Decode(&doc)
		if err == io.EOF {
			return all
		}
		if err != nil {
			rest := strings.TrimSpace(string(text[min(at, int64(len(text))):]))
			first, _, _ := strings.Cut(rest, "\n")
			reason := fmt.Sprintf("not a document of bookend status: %.80q", first)
			all = append(all, answer{node: node, reason: reason})
			next := strings.Index(rest, "\n{") // as behind the words of a login, or the document of another node
			if next < 0 {
				return all
			}
			text = []byte(rest[next:])
			stream = json.NewDecoder(bytes.NewReader(text))
			continue
		}
		all = append(all, answer{node, doc, doc.unfit(node)})
	}
}

// unfit says why a document is not a node's status, empty if it is.
func (s status) unfit(node string) string {
	short := func(name string) string { name, _, _ = strings.Cut(name, "."); return name }
	switch {
	case s.Kind != "status" && s.Kind != "history":
		return fmt.Sprintf("a document of kind %.20q, want bookend status --json", s.Kind)
	case s.Version != Version:
		return fmt.Sprintf("document of version %d, this program reads %d", s.Version, Version)
	case node != "" && short(node) != short(s.Node):
		return fmt.Sprintf("answers as node %.64q", s.Node)
	}
	return ""
}

// Remark is what one node found at the ends of a job: see slurmcmd.Remark.
type Remark struct {
	Job, UID uint32
	Node     string
	Began    time.Time // of its run there, zero if unknown
	Text     string    // "n1: BKD-ORPHAN gpu 0 20.0 GiB"
}

type finding struct {
	Code   string `json:"code"`
	Action string `json:"action"`
	Index  *int   `json:"index"`
	Bytes  figure `json:"bytes"`
}

// Remarks returns remarks about the ended jobs in r with findings that policy reports, of codes that tells accepts.
func Remarks(r io.Reader, tells func(code string) bool) (all []Remark, err error) {
	answers, _, err := read(bufio.NewReaderSize(r, mostLine), false)
	for _, a := range answers {
		for _, j := range slices.Concat(a.doc.Ended, a.doc.Runs) {
			if text := j.remark(tells); text != "" && a.reason == "" {
				all = append(all, Remark{j.JobID, j.UID, a.doc.Node, j.BeganAt, a.doc.Node + ": " + text})
			}
		}
	}
	return all, err
}

func (j run) remark(tells func(code string) bool) string {
	var words []string
	for _, f := range j.Findings {
		text := f.Code
		if f.Index != nil {
			text += fmt.Sprintf(" gpu %d", *f.Index)
		}
		if f.Bytes.Bytes > 0 {
			text += fmt.Sprintf(" %.1f GiB", float64(f.Bytes.Bytes)/(1<<30))
		}
		if slices.Contains(actions, f.Action) && tells(f.Code) && !slices.Contains(words, text) && j.State == "ended" {
			words = append(words, text)
		}
	}
	return strings.Join(words[:min(len(words), 3)], " + ") // for more there is no room
}
