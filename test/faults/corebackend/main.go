// Command corebackend is the smallest honest backend: it knows of cards, used memory and processes, nothing of
// any vendor, and speaks Bookend's protocol with no code of Bookend's. What its cards carry stands in the file
// "cards" beside it, a line for each holder: device id, PID, bytes. Memory goes with its process. All its cards stand in
// "devices", as JSON.
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

type request struct {
	All     bool     `json:"all"`
	Devices []object `json:"devices"`
	Watch   struct {
		Max time.Duration `json:"max_ns"`
	} `json:"watch"`
}

type object = map[string]any

func main() {
	var ask request
	line, err := bufio.NewReader(os.Stdin).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &ask)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "corebackend:", err)
		os.Exit(1)
	}
	say("hello", object{"backend": "core", "version": "1"})
	if ask.All {
		ask.Devices = devices()
	}
	for began := now(); ; time.Sleep(50 * time.Millisecond) {
		busy := look(ask)
		if !busy || now()-began >= ask.Watch.Max {
			break
		}
	}
	say("done", nil)
}

// look says what the cards asked for carry now, and reports whether that is anything.
func look(ask request) (busy bool) {
	var readings []object
	for _, device := range ask.Devices {
		used, processes := uint64(0), []object{}
		for pid, bytes := range holders(device["id"]) {
			used += bytes
			processes = append(processes, object{"pid": pid, "memory": object{"bytes": bytes}})
		}
		busy = busy || used > 0
		readings = append(readings, object{
			"device": device, "memory": object{"used": object{"bytes": used}}, "processes": processes,
		})
	}
	say("snapshot", object{"at": now(), "readings": readings})
	return busy
}

// devices are all cards.
func devices() (all []object) {
	if text, err := os.ReadFile(beside("devices")); err == nil {
		_ = json.Unmarshal(text, &all)
	}
	return all
}

// beside is a file next to this program.
func beside(name string) string {
	own, _ := os.Executable()
	return filepath.Join(filepath.Dir(own), name)
}

// holders are the living processes on a card.
func holders(id any) map[int]uint64 {
	found := map[int]uint64{}
	f, err := os.Open(beside("cards"))
	if err != nil {
		return found
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var card string
		var pid int
		var bytes uint64
		if _, err := fmt.Sscan(lines.Text(), &card, &pid, &bytes); err == nil && card == id && unix.Kill(pid, 0) == nil {
			found[pid] += bytes
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
