// Package pidns says whether tests run in a PID namespace of their own, as in a container. Bookend's search of /proc is
// incomplete there, and says so: no test can want a complete one.
package pidns

import "os"

// host is the machine's own PID namespace, whose number is the kernel's PROC_PID_INIT_INO.
const host = "pid:[4026531836]"

// Own names the PID namespace of this process, "" for the machine's.
func Own() string {
	name, err := os.Readlink("/proc/self/ns/pid")
	if err != nil || name == host {
		return ""
	}
	return name
}
