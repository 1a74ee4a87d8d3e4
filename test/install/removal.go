package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// german is a shell of an admin who is not told things in English.
var german = []string{"LC_ALL=C.UTF-8", "LANGUAGE=de"}

// isCutShort shows that what a removal leaves half done, the next installation ends.
func (n *node) isCutShort() {
	_, err := n.run("sh", "/var/lib/dpkg/info/bookend.prerm", "remove")
	n.b.shows("a removal that is cut short leaves stubs", errors.Join(err, n.stubbed()))
	env := n.env
	n.env = append(append([]string{}, env...), german...)
	err = n.watched(func() error { return n.dpkg(n.b.deb()) })
	n.env = env
	n.b.shows("installing again puts the programs back, whatever language dpkg speaks", errors.Join(err, n.intact(), n.programs()))
}

// isMended shows that what doctor says of a package's file can be done word for word.
func (n *node) isMended() {
	hook := "/usr/libexec/bookend/bookend-epilog"
	n.b.must("spoil a hook", os.Chmod(n.in(hook), 0o775))
	out, _, err := n.examine("--json")
	var said struct {
		Results []struct{ Check, Level, Fix string }
	}
	if err == nil {
		err = json.Unmarshal([]byte(out), &said)
	}
	n.b.must("read what doctor says", err)
	for _, r := range said.Results {
		if r.Check == "programs" && r.Level == "wrong" {
			_, err = n.run("sh", "-ec", "cd /root\n"+r.Fix)
			n.b.shows("doctor's fix for a hook that others could write: "+r.Fix, errors.Join(err, n.intact(), n.doctorIsContent()))
			return
		}
	}
	n.b.fails("doctor's fix for a hook that others could write", errors.New(out))
}

func (n *node) doctorIsContent() error {
	out, code, err := n.examine()
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d\n%s", code, out)
	}
	return err
}

// wants are the links by which systemd knows what is enabled.
const (
	dropWanted  = "/etc/systemd/system/slurmd.service.wants/run-bookend-drop.mount"
	timerWanted = "/etc/systemd/system/timers.target.wants/bookend-healthcheck.timer"
)

func (r root) present(paths ...string) error {
	var errs []error
	for _, path := range paths {
		_, err := os.Lstat(r.in(path))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// isEnabled shows that what is enabled stays so until a purge, and what the admin disabled, too. No systemd runs here, but
// systemctl works on its files.
func (n *node) isEnabled() {
	_, err := n.run("systemctl", "enable", "bookend-healthcheck.timer")
	n.b.shows("the drop's mount is enabled, and the timer can be", errors.Join(err, n.present(dropWanted, timerWanted)))
	_, err = n.run("dpkg", "-r", "bookend")
	err = errors.Join(err, n.dpkg(n.b.deb()), n.present(dropWanted, timerWanted))
	n.b.shows("after removal and installation they still are", err)
	_, err = n.run("systemctl", "disable", "run-bookend-drop.mount")
	err = errors.Join(err, n.dpkg(n.b.deb()), absent(n.in(dropWanted)))
	n.b.shows("what the admin disables an installation does not enable", err)
	_, err = n.run("systemctl", "enable", "run-bookend-drop.mount")
	n.b.must("enable it again", err)
}

// leavesOthers shows a purge where a job's process is still in the drop, a file system of the site's own is where records
// are, and a hook of the site's own lies among Bookend's.
func (n *node) leavesOthers() {
	own := "/etc/bookend/slurm/prolog.d/50-own.sh"
	n.b.must("write a hook of the site's", os.WriteFile(n.in(own), []byte("#!/bin/sh\n"), 0o755))
	busy := exec.Command("sleep", "600")
	busy.Dir = n.in("/run/bookend/drop")
	n.b.must("keep the drop busy", busy.Start())
	defer func() { _ = busy.Process.Kill(); _ = busy.Wait() }()
	kept := n.in("/var/lib/bookend")
	_, err := command("mount", "--bind", kept, kept)
	n.b.must("mount a file system for records", err)
	out, err := n.run("apt-get", "purge", "-y", "bookend")
	_, errMount := command("umount", kept)
	if err == nil {
		err = says(out, "/var/lib/bookend could not be taken away", "what is left in /etc/bookend is not the package's: "+own)
	}
	held, _ := filepath.Glob(filepath.Join(kept, "*"))
	if len(held) > 0 {
		err = errors.Join(err, fmt.Errorf("records are left: %q", held))
	}
	left, _ := n.run("dpkg-query", "-W", "-f", "${Status}", "bookend")
	if strings.Contains(left, "config-files") {
		err = errors.Join(err, errors.New(left))
	}
	n.b.shows("apt purge takes stubs, configuration, records and logs away, where something is still in use, too; a hook of the site's own it leaves",
		errors.Join(err, errMount, n.present(own), absent(n.in("/usr/libexec/bookend"), n.in("/etc/bookend/slurm/hooks"), n.in("/etc/bookend/bookend.yaml"),
			n.in("/var/log/bookend"), n.in("/run/bookend"), n.in(dropWanted), n.in(timerWanted))))
}
