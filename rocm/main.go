// Command bookend-amd is the AMD backend. It reads one request from stdin, writes JSON lines to stdout (package
// protocol) and exits. It reads only kernel files below the roots that the request names, and loads no library. It
// opens no device node: with /dev/kfd open it would be on the driver's list itself. It is a program of its own because
// a read in sysfs can hang like any call into a driver.
//
// A GPU's memory is mem_info_vram_used. Its processes come from two sources: the files of KFD, which ROCm's compute
// uses, and the fdinfo of every descriptor of the driver, which covers graphics too. If they contradict each other, the
// process's figure is unknown.
//
//	go build -trimpath -ldflags '-X main.version=1.2.3' -o bookend-amd ./rocm
//
// Exit codes: those of package backendkit.
package main

import (
	"errors"
	"fmt"
	"slices"

	"bookend/internal/backendkit"
	"bookend/internal/gpu"
	"bookend/internal/nodefiles"
)

var version = "devel" // set by the linker

func main() {
	backendkit.Program{Name: "bookend-amd", Vendor: gpu.AMD.Name, Version: version, Answer: answer}.Main()
}

func answer(s backendkit.Session) error {
	d := nodefiles.AMDDriver{Proc: s.Req.Options["proc"], Sys: s.Req.Options["sys"]}
	switch {
	case d.Proc == "" || d.Sys == "":
		return fmt.Errorf("serve %q: the roots of /proc and /sys are not named", s.Req.Op)
	case s.Probes():
		return errors.New("test allocations are bookend-hip's")
	case !d.Loaded():
		return s.Finish(gpu.Fault{Code: gpu.FaultNoDriver, Detail: "the module amdgpu is not loaded"})
	}
	e := &sampler{Session: s, AMDDriver: d}
	var err error
	if s.Records() {
		err = s.Record(e.sample, func(gpu.Snapshot) bool { return false })
	} else if err = s.Watch(e.sample); err == nil && s.Req.Health {
		err = e.tellHealth()
	}
	if err != nil {
		return err
	}
	return s.Finish()
}

type sampler struct {
	backendkit.Session
	nodefiles.AMDDriver
	cards []nodefiles.AMDDevice // the requested GPUs in the newest sample
}

// sample reads every requested device. It reads the tree of devices again each time: that takes less than a
// millisecond, and a GPU may come back.
func (e *sampler) sample() (gpu.Snapshot, error) {
	look := gpu.Snapshot{Driver: gpu.Driver{Version: e.Version()}, Readings: []gpu.Reading{}}
	cards, err := nodefiles.AMD(e.Sys)
	if err != nil {
		look.At, look.Faults = e.Boot(), []gpu.Fault{{Code: gpu.FaultDriver, Detail: err.Error()}}
		return look, nil
	}
	e.cards, look.Faults = e.wanted(cards)
	users, unknown := e.Users(cards, e.unexplained)
	for _, c := range e.cards {
		reading, faults := c.Read(users[c.Key], unknown)
		reading.KnownBad = nodefiles.KnownBadAMD[look.Driver.Version]
		look.Readings, look.Faults = append(look.Readings, reading), append(look.Faults, faults...)
	}
	look.At = e.Boot()
	return look, nil
}

// wanted returns the GPUs of the request, and a fault for each requested device that does not exist.
func (e *sampler) wanted(cards []nodefiles.AMDDevice) (wanted []nodefiles.AMDDevice, missing []gpu.Fault) {
	if e.Req.All {
		return cards, nil
	}
	for _, d := range e.Req.Devices {
		i := slices.IndexFunc(cards, func(c nodefiles.AMDDevice) bool {
			return d.ID != "" && d.ID == c.ID || d.ID == "" && d.BusID == c.BusID
		})
		if i < 0 {
			missing = append(missing,
				gpu.Fault{Code: gpu.FaultNoDevice, Device: d.ID, BusID: d.BusID, Detail: "the driver has no such GPU"})
			continue
		}
		wanted = append(wanted, cards[i])
	}
	return wanted, missing
}

// least is the unexplained memory that is worth a search of all of /proc, in bytes: less is no finding by default.
const least = 32 << 20

// unexplained reports whether KFD's processes leave more of a GPU's memory than expected: then all processes are read.
func (e *sampler) unexplained(c nodefiles.AMDDevice, byKFD uint64) bool {
	used := c.Memory().Used
	expected := nodefiles.OwnShareAMD + byKFD + e.Req.Watch.Expect[c.ID].Bytes
	return used.Known() && used.Bytes > expected+max(e.Req.Watch.SlackBytes, least)
}

func (e *sampler) tellHealth() error {
	var all []gpu.Health
	for _, c := range e.cards {
		all = append(all, c.Health())
	}
	return e.TellHealth(all)
}
