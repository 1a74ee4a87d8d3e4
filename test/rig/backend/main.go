// Command backend is the smallest honest backend: it knows of GPUs, used memory and processes, nothing of any vendor,
// and speaks Bookend's protocol with no code of Bookend's. It answers at once and always alike: what its GPUs carry
// stands in the file "cards" beside it, a line for each holder: device id, PID, bytes. A test allocation takes the
// GPU's lock, as the real backend does, and always succeeds. All its GPUs stand in "devices", as JSON.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const capacity = 80 << 30

type request struct {
	Op      string   `json:"op"`
	All     bool     `json:"all"`
	Devices []object `json:"devices"`
	Watch   struct {
		Flat   time.Duration       `json:"flat_ns"`
		Expect map[string]expected `json:"expect"`
	} `json:"watch"`
	Probe struct {
		Locks map[string]string `json:"locks"`
	} `json:"probe"`
}

// expected is what a card carries without any job.
type expected struct {
	Bytes     uint64 `json:"bytes"`
	Processes []struct {
		Bytes uint64 `json:"bytes"`
	} `json:"processes"`
}

func (e expected) total() uint64 {
	sum := e.Bytes
	for _, p := range e.Processes {
		sum += p.Bytes
	}
	return sum
}

type object = map[string]any

func main() {
	var ask request
	line, err := bufio.NewReader(os.Stdin).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &ask)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "backend:", err)
		os.Exit(1)
	}
	say("hello", object{"backend": "core", "version": "1"})
	if ask.All {
		ask.Devices = devices()
	}
	if ask.Op == "probe" {
		probe(ask)
	} else {
		watch(ask)
	}
	say("done", nil)
}

// watch looks once at cards that carry what they should, and at others as often as shows that it stays.
func watch(ask request) {
	for n := range 4 {
		if !look(ask) || n == 3 {
			return
		}
		time.Sleep(ask.Watch.Flat/3 + 2*time.Millisecond)
	}
}

// look says what the cards carry, and reports whether that is anything.
func look(ask request) (busy bool) {
	var readings []object
	for _, device := range ask.Devices {
		used, processes := uint64(0), []object{}
		id, _ := device["id"].(string)
		for _, h := range holders(id) {
			used += h.bytes
			processes = append(processes, object{"pid": h.pid, "memory": object{"bytes": h.bytes}})
		}
		busy = busy || used != ask.Watch.Expect[id].total()
		readings = append(readings, object{
			"device": device, "memory": object{"used": object{"bytes": used}}, "processes": processes,
		})
	}
	say("snapshot", object{"at": now(), "readings": readings})
	return busy
}

func probe(ask request) {
	for _, device := range ask.Devices {
		id, _ := device["id"].(string)
		fd, err := unix.Open(ask.Probe.Locks[id], unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
		if err == nil {
			err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		}
		if err != nil {
			say("probe", object{"device": id, "result": "skipped", "why": "lock: " + err.Error(), "at_ns": now()})
			continue
		}
		bytes := object{"bytes": capacity}
		say("probe", object{"device": id, "result": "ok", "method": "contextless", "free": bytes,
			"largest": bytes, "at_ns": now()})
	}
}

func devices() (all []object) {
	if text, err := os.ReadFile(beside("devices")); err == nil {
		_ = json.Unmarshal(text, &all)
	}
	return all
}

func beside(name string) string {
	own, _ := os.Executable()
	return filepath.Join(filepath.Dir(own), name)
}

type holder struct {
	pid   int
	bytes uint64
}

// holders are what stands in the file for a card.
func holders(id string) (found []holder) {
	f, err := os.Open(beside("cards"))
	if err != nil {
		return nil
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var card string
		var h holder
		if _, err := fmt.Sscan(lines.Text(), &card, &h.pid, &h.bytes); err == nil && card == id {
			found = append(found, h)
		}
	}
	return found
}

func say(kind string, content object) {
	reply := object{"bookend": 1, "kind": kind}
	if content != nil {
		reply[kind] = content
	}
	if err := json.NewEncoder(os.Stdout).Encode(reply); err != nil {
		os.Exit(1)
	}
}

func now() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return time.Duration(ts.Nano())
}
