package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/slurm"
	"bookend/test/rig"
)

const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// lookUp finds a program below root; the answer is its path as seen from there.
func lookUp(root, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	for _, dir := range strings.Split(searchPath, ":") {
		path := filepath.Join(dir, name)
		info, err := os.Lstat(filepath.Join(root, path))
		// An absolute link ("alternatives") leads elsewhere when followed from outside of root.
		if err == nil && (info.Mode().IsRegular() || info.Mode().Type() == os.ModeSymlink) {
			return path
		}
	}
	panic(fmt.Errorf("no program %q below %q; test/install-slurm.sh installs Slurm", name, root))
}

type identity struct {
	name     string
	uid, gid uint32
	groups   []uint32
}

func lookUpUser(name string) identity {
	if name == "" || name == "root" {
		return identity{name: "root"}
	}
	u := rig.Have(user.Lookup(name))
	var numbers []uint32
	for _, text := range append([]string{u.Uid, u.Gid}, rig.Have(u.GroupIds())...) {
		numbers = append(numbers, uint32(rig.Have(strconv.ParseUint(text, 10, 32))))
	}
	return identity{name, numbers[0], numbers[1], numbers[2:]}
}

// Users returns n unprivileged accounts that every Linux has and no service runs under, for jobs. Nothing is
// added to the host's accounts.
func Users(n int) (found []string) {
	for _, name := range []string{"games", "news", "uucp", "lp", "mail", "operator", "ftp", "bin", "daemon", "sys", "list", "irc"} {
		if u, err := user.Lookup(name); err == nil && u.Uid != "0" && len(found) < n {
			found = append(found, name)
		}
	}
	if len(found) < n {
		panic(fmt.Errorf("found the accounts %q, want %d", found, n))
	}
	return found
}

// Home returns the folder below Dir in which the user's jobs run. It is made when first asked for.
func (c *Cluster) Home(user string) (dir string, err error) {
	err = rig.Attempt(func() { dir = c.home(lookUpUser(user)) })
	return dir, err
}

func (c *Cluster) home(who identity) string {
	dir := c.paths.in("home", who.name)
	// Refused if it exists as another's, or as a link that a job made in its place: root changes its owner.
	if err := os.Mkdir(dir, 0o755); !errors.Is(err, os.ErrExist) {
		rig.Try(err)
	}
	if info := rig.Have(os.Lstat(dir)); !info.IsDir() {
		panic(fmt.Errorf("home %q: not a directory", dir))
	}
	rig.Try(errors.Join(os.Chmod(dir, 0o755), os.Lchown(dir, int(who.uid), int(who.gid))))
	return dir
}

// Command returns a command that talks to this cluster: a program of Slurm's by name, or any by absolute path,
// run as the user ("" is root) in Home(user), with an environment that holds SLURM_CONF and nothing of ours.
func (c *Cluster) Command(user, name string, args ...string) (cmd *exec.Cmd, err error) {
	err = rig.Attempt(func() {
		who := lookUpUser(user)
		home := c.home(who)
		cmd = c.command(who, home, name, args...)
		cmd.Env = append(c.daemonEnv(), "HOME="+home, "USER="+who.name, "LOGNAME="+who.name, "LANG=C", "SHELL=/bin/sh")
	})
	return cmd, err
}

// run runs a command to its end and returns what it wrote to both outputs.
func (c *Cluster) run(user, name string, args ...string) (string, error) {
	return c.runWith(user, "", name, args...)
}

func (c *Cluster) runWith(user, input, name string, args ...string) (string, error) {
	cmd, err := c.Command(user, name, args...)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &out
	cmd.WaitDelay = 10 * time.Second // a child that keeps the output open must not keep us
	if err := c.runBounded(cmd); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out.String())
	}
	return out.String(), nil
}

// runBounded runs a command and kills its session's process group when patience ends.
func (c *Cluster) runBounded(cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.options.Patience)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) })
	err := cmd.Wait()
	if !stop() {
		return fmt.Errorf("killed after %v: %w", c.options.Patience, err)
	}
	return err
}

// Root is the root directory of the Slurm that clusters run by default.
func Root() string { return cmp.Or(os.Getenv("BOOKEND_SLURM_ROOT"), "/") }

// VersionIn returns the version of the Slurm in a root directory.
func VersionIn(root string) (v slurm.Version, err error) {
	err = rig.Attempt(func() {
		cmd := exec.Command(lookUp(root, "slurmd"), "-V")
		if root != "/" {
			cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
		}
		cmd.Dir = "/"
		v, _ = slurm.ParseVersion(string(rig.Have(cmd.Output())))
	})
	return v, err
}
