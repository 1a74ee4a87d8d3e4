package asuser

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// prove fails unless every thread is the user, none can be anybody else again and nobody traces one.
func prove(uid, gid uint32, groups []uint32) error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("prove: %w", err)
	}
	for _, t := range tasks {
		status, err := os.ReadFile("/proc/self/task/" + t.Name() + "/status")
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // the thread has ended
		}
		if err != nil {
			return fmt.Errorf("prove: %w", err)
		}
		if err := proveThread(string(status), uid, gid, groups); err != nil {
			return fmt.Errorf("prove: thread %s: %w", t.Name(), err)
		}
	}
	return proveOneWay()
}

// proveThread compares /proc/PID/task/TID/status with what must be in it.
func proveThread(status string, uid, gid uint32, groups []uint32) error {
	want := map[string]string{
		"Uid": fourTimes(uid), "Gid": fourTimes(gid), "Groups": sorted(groups), "NoNewPrivs": "1",
		"CapInh": noCaps, "CapPrm": noCaps, "CapEff": noCaps, "CapBnd": noCaps, "CapAmb": noCaps,
		// Where fs.suid_dumpable is 1 the user could have attached before the process became undumpable.
		"TracerPid": "0",
	}
	for line := range strings.Lines(status) {
		key, value, _ := strings.Cut(line, ":")
		expected, ok := want[key]
		if !ok {
			continue
		}
		if got := strings.Join(strings.Fields(value), " "); got != expected {
			return fmt.Errorf("%s is %.100q, not %.100q", key, got, expected)
		}
		delete(want, key)
	}
	if len(want) > 0 {
		return fmt.Errorf("%d lines are missing in its status", len(want))
	}
	return nil
}

const noCaps = "0000000000000000"

func fourTimes(id uint32) string {
	return strings.TrimSpace(strings.Repeat(strconv.FormatUint(uint64(id), 10)+" ", 4))
}

// sorted writes groups as the kernel lists them.
func sorted(groups []uint32) string {
	var words []string
	for _, g := range slices.Sorted(slices.Values(groups)) {
		words = append(words, strconv.FormatUint(uint64(g), 10))
	}
	return strings.Join(words, " ")
}

// proveOneWay tries to be root again.
func proveOneWay() error {
	for what, err := range map[string]error{
		"uid":    syscall.Setresuid(0, 0, 0),
		"gid":    syscall.Setresgid(0, 0, 0),
		"groups": syscall.Setgroups([]int{0}),
	} {
		if !errors.Is(err, syscall.EPERM) {
			return fmt.Errorf("prove: taking back the %s gave %v", what, err)
		}
	}
	dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil || dumpable != 0 {
		return fmt.Errorf("prove: dumpable is %d, %v", dumpable, err)
	}
	return nil
}
