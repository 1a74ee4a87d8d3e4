package safefile

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// TempPrefix begins the names of files being written. One that stays was left by a killed writer: readers of
// folders skip it, and whoever tidies a folder may remove it.
const TempPrefix = ".tmp-"

// attributes are what a written file gets, whatever the umask.
type attributes struct {
	mode     os.FileMode
	chown    bool
	uid, gid uint32
	durable  bool
}

// Replace writes a file of an own folder: readers see the old content or the new one, never a part. It does
// not survive a crash of the machine, for it is meant for tmpfs.
func Replace(dir, name string, data []byte, mode os.FileMode) error {
	return write(dir, name, data, attributes{mode: mode})
}

// ReplaceDurable is Replace for files on disk: when it returns, content and name survive a power cut. It waits
// for the disk and so belongs into children.
func ReplaceDurable(dir, name string, data []byte, mode os.FileMode) error {
	return write(dir, name, data, attributes{mode: mode, durable: true})
}

// CreateExclusive writes a new file that belongs to another user in the end; an older file of the name is
// replaced, never opened. Nobody but root can open it before it is complete.
func CreateExclusive(dir, name string, data []byte, mode os.FileMode, uid, gid uint32) error {
	return write(dir, name, data, attributes{mode: mode, chown: true, uid: uid, gid: gid})
}

func write(dir, name string, data []byte, a attributes) error {
	err := inOwnFolder(dir, name, func(dirfd int) error {
		temp, err := writeTemp(dirfd, data, a)
		if err != nil {
			return err
		}
		if err := retry(func() error { return unix.Renameat(dirfd, temp, dirfd, name) }); err != nil {
			_ = unix.Unlinkat(dirfd, temp, 0)
			return fmt.Errorf("rename: %w", err)
		}
		if a.durable {
			return syncFD(dirfd)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write %q: %w", filepath.Join(dir, name), err)
	}
	return nil
}

// writeTemp makes a complete file under a name of its own, or none.
func writeTemp(dirfd int, data []byte, a attributes) (string, error) {
	temp, err := tempName()
	if err != nil {
		return "", err
	}
	// Threat: none from users, who cannot write here; O_EXCL keeps two writers out of one file.
	fd, err := openAt(dirfd, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	f := os.NewFile(uintptr(fd), temp)
	err = fill(f, data, a)
	if closing := f.Close(); err == nil {
		err = closing // network file systems report a full disk here
	}
	if err != nil {
		_ = unix.Unlinkat(dirfd, temp, 0)
		return "", err
	}
	return temp, nil
}

// fill gives the file away last: until then nobody else can open it.
func fill(f *os.File, data []byte, a attributes) error {
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Chmod(a.mode); err != nil {
		return err
	}
	if a.chown {
		if err := f.Chown(int(a.uid), int(a.gid)); err != nil {
			return err
		}
	}
	if a.durable {
		return f.Sync()
	}
	return nil
}

func syncFD(fd int) error {
	if err := retry(func() error { return unix.Fsync(fd) }); err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	return nil
}

func tempName() (string, error) {
	var b [8]byte
	err := retry(func() error {
		_, err := unix.Getrandom(b[:], unix.GRND_NONBLOCK) // early at boot there may be no entropy yet
		return err
	})
	if err != nil {
		return "", fmt.Errorf("random name: %w", err)
	}
	return TempPrefix + hex.EncodeToString(b[:]), nil
}
