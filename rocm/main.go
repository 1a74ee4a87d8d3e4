// Command bookend-amd is the AMD backend. It reads one request from stdin, writes JSON lines to stdout (package wire)
// and exits. It reads only kernel files below the roots that the request names, and loads no library. It opens no
// device node: with /dev/kfd open it would be on the driver's list itself. It is a program of its own because a read in
// sysfs can hang like any call into a driver.
//
// A GPU's memory is mem_info_vram_used. Its processes come from two sources: the files of KFD, which ROCm's compute
// uses, and the fdinfo of every descriptor of the driver, which covers graphics too. If they contradict each other, the
// process's figure is unknown.
//
//	go build -trimpath -ldflags '-X main.version=1.2.3' -o bookend-amd ./rocm
//
// Exit codes: those of package serve.
package main

import (
	"fmt"
	"os"
	"time"

	"bookend/internal/backendkit"
	"bookend/internal/child"
	"bookend/internal/gpu"
	"bookend/internal/nodefiles"
	"bookend/internal/protocol"
)

var version = "devel" // set by the linker

func main() {
	p := backendkit.Program{
		Name: "bookend-amd", Vendor: gpu.AMD.Name, Version: version,
		Boot: child.SystemClock().Boot, Exit: os.Exit, Answer: answer,
	}
	os.Exit(p.Run(os.Args[1:]))
}

// Options of a request: the paths of /proc and /sys.
const (
	optionProc = "proc"
	optionSys  = "sys"
)

func answer(s backendkit.Session) error {
	d := nodefiles.AMDDriver{Proc: s.Req.Options[optionProc], Sys: s.Req.Options[optionSys]}
	if d.Proc == "" || d.Sys == "" {
		return fmt.Errorf("serve %q: the roots of /proc and /sys are not named", s.Req.Op)
	}
	if !d.Loaded() {
		return s.Finish(gpu.Fault{Code: gpu.FaultNoDriver, Detail: "the module amdgpu is not loaded"})
	}
	e := &eyes{Session: s, AMDDriver: d}
	var err error
	switch s.Req.Op {
	case protocol.Probe:
		err = e.skipTests()
	case protocol.Record:
		err = s.Record(e.Look, func(gpu.Snapshot) bool { return false })
	default:
		if err = s.Watch(e); err == nil && s.Req.Health {
			err = e.tellHealth()
		}
	}
	if err != nil {
		return err
	}
	return s.Finish()
}

// skipTests reports every device as not tested: bookend-hip makes test allocations on AMD's GPUs.
func (e *eyes) skipTests() error {
	for _, d := range e.Req.Devices {
		const why = "test allocations are bookend-hip's"
		p := gpu.Probe{Device: d.ID, Result: gpu.ProbeSkipped, Why: why, At: e.Boot()}
		if err := e.Out.Write(protocol.Reply{Kind: protocol.KindProbe, Probe: &p}); err != nil {
			return err
		}
	}
	return nil
}

type eyes struct {
	backendkit.Session
	nodefiles.AMDDriver
	last gpu.Snapshot
}

// Look reads every requested device. It reads the tree of devices again each time: that takes less than a millisecond,
// and a GPU may come back.
func (e *eyes) Look() (gpu.Snapshot, error) {
	look := gpu.Snapshot{Driver: gpu.Driver{Version: e.Version()}, Readings: []gpu.Reading{}}
	cards, err := nodefiles.AMD(e.Sys)
	if err != nil {
		look.At, look.Faults = e.Boot(), []gpu.Fault{{Code: gpu.FaultDriver, Detail: err.Error()}}
		e.last = look
		return look, nil
	}
	wanted, missing := e.wanted(cards)
	for _, d := range missing {
		look.Faults = append(look.Faults,
			gpu.Fault{Code: gpu.FaultNoDevice, Device: d.ID, BusID: d.BusID, Detail: "the driver has no such GPU"})
	}
	users, unknown := e.Users(cards, e.unexplained)
	for _, c := range wanted {
		reading, faults := c.Read(users[c.Key], unknown)
		reading.KnownBad = nodefiles.KnownBadAMD[look.Driver.Version]
		look.Readings, look.Faults = append(look.Readings, reading), append(look.Faults, faults...)
	}
	look.At = e.Boot()
	e.last = look
	return look, nil
}

// wanted returns the GPUs of the request, and the requested devices that do not exist.
func (e *eyes) wanted(cards []nodefiles.AMDDevice) (wanted []nodefiles.AMDDevice, missing []gpu.Device) {
	if e.Req.All {
		return cards, nil
	}
	for _, d := range e.Req.Devices {
		found := false
		for _, c := range cards {
			if d.ID != "" && d.ID == c.ID || d.ID == "" && d.BusID == c.BusID {
				wanted, found = append(wanted, c), true
				break
			}
		}
		if !found {
			missing = append(missing, d)
		}
	}
	return wanted, missing
}

// Watched returns the devices that have to settle.
func (e *eyes) Watched() []gpu.Device {
	if !e.Req.All {
		return e.Req.Devices
	}
	all := []gpu.Device{}
	for _, r := range e.last.Readings {
		all = append(all, r.Device)
	}
	return all
}

// Slow returns 0: reading a device that cannot be read fails at once.
func (e *eyes) Slow() time.Duration { return 0 }

// least is the unexplained memory that is worth a search of all of /proc, in bytes: less is no finding by default.
const least = 32 << 20

// unexplained reports whether KFD's processes leave more of a GPU's memory than expected: then all processes are read.
func (e *eyes) unexplained(c nodefiles.AMDDevice, byKFD uint64) bool {
	used := c.Memory().Used
	expected := nodefiles.OwnShareAMD + byKFD + e.Req.Watch.Expect[c.ID].Bytes
	return used.Known() && used.Bytes > expected+max(e.Req.Watch.SlackBytes, least)
}

func (e *eyes) tellHealth() error {
	cards, err := nodefiles.AMD(e.Sys)
	if err != nil {
		return nil // the sample already has this error
	}
	wanted, _ := e.wanted(cards)
	var all []gpu.Health
	for _, c := range wanted {
		all = append(all, c.Health())
	}
	if len(all) == 0 {
		return nil
	}
	if err = e.Out.Write(protocol.Reply{Kind: protocol.KindHealth, Health: all}); backendkit.TooLong(err) {
		return nil
	}
	return err
}
