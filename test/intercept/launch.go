package intercept

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"bookend/test/refuse"
)

// launcher is argv[0] of this program started again to put the filter on and become the watched one.
const launcher = "intercept-launcher"

// channel is the descriptor over which the launcher hands the listener back.
const channel = 3

func socketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make socket pair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "intercept"), os.NewFile(uintptr(fds[1]), "intercept"), nil
}

// launchFirst makes cmd start the launcher, which becomes what cmd was.
func launchFirst(cmd *exec.Cmd, kinds []Kind, theirs *os.File) error {
	if !filepath.IsAbs(cmd.Path) {
		return fmt.Errorf("start %q: not an absolute path", cmd.Path)
	}
	wanted, err := json.Marshal(kinds)
	if err != nil {
		return fmt.Errorf("start %q: %w", cmd.Path, err)
	}
	cmd.Args = append([]string{launcher, string(wanted), cmd.Path}, cmd.Args...)
	cmd.Path = "/proc/self/exe"
	cmd.ExtraFiles = []*os.File{theirs}
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	return nil
}

// launch is the launcher: kinds, path, argv.
func launch(args []string) error {
	var kinds []Kind
	if err := json.Unmarshal([]byte(args[0]), &kinds); err != nil {
		return fmt.Errorf("read kinds: %w", err)
	}
	runtime.LockOSThread() // the filter is this thread's, and survives exec with it
	listener, err := install(program(kinds))
	if err != nil {
		return err
	}
	if err := unix.Sendmsg(channel, []byte{0}, unix.UnixRights(listener), nil, 0); err != nil {
		return fmt.Errorf("hand over listener: %w", err)
	}
	unix.CloseOnExec(channel)
	return fmt.Errorf("execute %q: %w", args[1], unix.Exec(args[1], args[2:], os.Environ()))
}

func receive(from *os.File) (listener int, err error) {
	rights := make([]byte, unix.CmsgSpace(4))
	n, rn, _, _, err := unix.Recvmsg(int(from.Fd()), make([]byte, 1), rights, unix.MSG_CMSG_CLOEXEC)
	if err != nil || n == 0 {
		return -1, errors.Join(errors.New("no listener came from the launcher"), err)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:rn])
	if err != nil || len(messages) != 1 {
		return -1, fmt.Errorf("receive listener: %d messages, %w", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return -1, fmt.Errorf("receive listener: %d descriptors, %w", len(fds), err)
	}
	return fds[0], nil
}

// program is the filter: ask about these kinds, let everything else pass. All kinds are numbers of the native
// architecture; no watched program makes calls of another.
func program(kinds []Kind) []unix.SockFilter {
	var calls []refuse.Call
	for _, k := range kinds {
		calls = append(calls, refuse.Call{Number: k.Number, When: []refuse.Arg{
			{Index: 0, Is: k.FromFD, More: true}, {Index: 2, Is: k.FromBytes, More: true},
		}})
	}
	return refuse.Filter(calls, func(refuse.Call) uint32 { return unix.SECCOMP_RET_USER_NOTIF })
}

// install puts the filter on the calling thread. Needs CAP_SYS_ADMIN: no_new_privs would change what is watched.
func install(filter []unix.SockFilter) (listener int, err error) {
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return -1, fmt.Errorf("install filter: %w", errno)
	}
	return int(fd), nil
}
