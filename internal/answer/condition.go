package answer

import (
	"time"

	"bookend/internal/gpu"
	"bookend/internal/health"
	"bookend/internal/ledger"
)

// Condition is what the driver said of a GPU's condition.
type Condition struct {
	UUID       string  `json:"uuid"`
	Facts      []Fact  `json:"facts"`
	Accounting *string `json:"accounting"` // on, off; null where no one asked
	Peaks      []Peak  `json:"peaks"`      // of processes, where accounting is on
	Unknown    Unknown `json:"unknown,omitempty"`
}

// Fact is one statement of the driver's on a GPU's condition.
type Fact struct {
	Fact    gpu.FactCode `json:"fact"`
	Value   *string      `json:"value"` // a number or a word, as the fact says
	Unknown Unknown      `json:"unknown,omitempty"`
}

// Peak is the most memory that a process had, by the driver's accounting.
type Peak struct {
	PID     int        `json:"pid"`
	Bytes   *uint64    `json:"bytes"`
	BeganAt *time.Time `json:"began_at"`
	Unknown Unknown    `json:"unknown,omitempty"`
}

// KernelLog is what the kernel's log had since the job's start.
type KernelLog struct {
	Unread   string `json:"unread"` // why it could not be read; empty where it was
	Lost     bool   `json:"lost"`   // part of it was overwritten before it was read
	Xids     []Xid  `json:"xids"`
	Kills    []Kill `json:"kills"`    // of processes, as host memory ran out
	Mismatch string `json:"mismatch"` // the newest line on a library of another version than the module
}

// Xid is one error of the driver's.
type Xid struct {
	Code     int    `json:"code"`
	Meaning  string `json:"meaning"` // empty for one that Bookend does not know
	BusID    string `json:"bus_id"`
	Instance *int   `json:"mig_instance"` // null: of no MIG instance
	PID      int    `json:"pid"`          // 0: none named
	Process  string `json:"process"`
	Text     string `json:"text"` // the rest of the line
	More     int    `json:"more"` // how many like it were before
}

// Kill is a process that the kernel ended because host memory ran out.
type Kill struct {
	PID     int    `json:"pid"`
	Process string `json:"process"`
	Cgroup  string `json:"cgroup"` // empty where the log does not say
}

func conditions(all []gpu.Health) []Condition {
	out := []Condition{}
	for _, h := range all {
		c := Condition{UUID: text(string(h.Device)), Facts: []Fact{}, Peaks: peaks(h.Accounting.Processes)}
		for _, f := range h.Facts {
			c.Facts = append(c.Facts, newFact(f))
		}
		switch mode := text(h.Accounting.Mode); {
		case h.Accounting.Unknown != "":
			c.Unknown.because("accounting", h.Accounting.Unknown)
		case mode != "":
			c.Accounting = &mode
		}
		out = append(out, c)
	}
	return out
}

func newFact(f gpu.Fact) Fact {
	n := Fact{Fact: known(f.Code)}
	if f.Unknown != "" {
		n.Unknown.because("value", f.Unknown)
		return n
	}
	value := text(f.Value)
	n.Value = &value
	return n
}

func peaks(all []gpu.Accounted) []Peak {
	out := []Peak{}
	for _, a := range all {
		p := Peak{PID: a.PID}
		p.Bytes, p.BeganAt = p.Unknown.bytes("bytes", a.Peak), p.Unknown.moment("began_at", a.Began)
		out = append(out, p)
	}
	return out
}

func kernelLog(e ledger.End) *KernelLog {
	k := e.Kernel
	if k == nil {
		return nil
	}
	n := KernelLog{Unread: text(k.Unknown), Lost: k.Lost, Xids: []Xid{}, Kills: []Kill{}, Mismatch: text(k.Mismatch)}
	for _, x := range k.Xids {
		meaning := health.XidMeaning(x.Code)
		n.Xids = append(n.Xids, Xid{x.Code, meaning, text(string(x.BusID)), x.GI, x.PID, text(x.Name), text(x.Text),
			x.More})
	}
	for _, o := range k.Kills {
		n.Kills = append(n.Kills, Kill{o.PID, text(o.Name), text(o.Cgroup)})
	}
	return &n
}
