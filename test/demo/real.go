package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The real card of the story, and the configuration it needs: Slurm knows this one GPU only, by its minor.
const (
	realNode   = "/dev/nvidia0"
	realConfig = "nvidia:\n  gpu_order: minor\n"
)

// The jobs' programs on a real GPU.
var (
	//go:embed c/train.c
	trainSource []byte
	//go:embed py/train.py
	torchSource []byte
)

// torchPatience is for the import of PyTorch from a file system that nobody has read it from yet.
const torchPatience = time.Minute

// installTorch puts the jobs' PyTorch program into a folder, where users' python3 has a PyTorch that sees the GPU.
func (d *demo) installTorch(folder string) error {
	python, err := exec.LookPath("python3")
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), torchPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-c", "import torch, sys; sys.exit(not torch.cuda.is_available())")
	uid := d.uid(d.site.Users[0])
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent"} // as bare as a job's
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	if cmd.Run() != nil {
		return nil
	}
	d.card.python = python
	return os.WriteFile(filepath.Join(folder, "train.py"), torchSource, 0o644)
}

// script is what a job runs: on a real GPU PyTorch itself runs out of memory.
func (d *demo) script(k kind) string {
	if k.why == nil || !d.card.real {
		return k.script
	}
	folder, _, _ := strings.Cut(d.path, ":")
	return fmt.Sprintf("%s %s/train.py %s", d.card.python, folder, k.why.real)
}

// leaveOut drops the jobs that cannot be had here.
func (d *demo) leaveOut() {
	needs := func(name string) bool { return kinds[name].why != nil }
	if !d.card.real || d.card.python != "" || !slices.ContainsFunc(d.Observe, needs) {
		return
	}
	d.say("Jobs that run out of memory are left out: no python3 here has a PyTorch that sees the GPU.")
	d.Observe = slices.DeleteFunc(slices.Clone(d.Observe), needs)
}

// buildReal compiles the jobs' program for a real GPU. It needs no CUDA toolkit.
func buildReal(program string) error {
	cmd := exec.Command("gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-x", "c", "-", "-o", program, "-ldl")
	cmd.Stdin = strings.NewReader(string(trainSource))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the jobs' program: %w\n%s", err, out)
	}
	return nil
}

// useReal decides between a real and a fake GPU, and words it.
func useReal(choice string) (yes bool, why string) {
	const fake = "one fake GPU whose memory follows real processes"
	if choice == "fake" {
		return false, fake
	}
	if _, err := os.Stat(realNode); err != nil {
		return false, fake + " (this machine has no " + realNode + ")"
	}
	if !firstIsMinorZero("/proc/driver/nvidia/gpus") {
		return false, fake + " (" + realNode + " is not CUDA's first GPU, which the jobs would take)"
	}
	if root := os.Getenv("BOOKEND_SLURM_ROOT"); root != "" && root != "/" {
		return false, fake + " (Slurm runs in " + root + ", where this machine's NVIDIA libraries are not)"
	}
	if err := tryReal(); err != nil {
		return false, fmt.Sprintf("%s (%s does not answer: %v)", fake, realNode, err)
	}
	return true, "this machine's GPU " + realNode
}

// firstIsMinorZero reports whether the first GPU on the PCI bus has the device node that Slurm is told of: only then
// Slurm's number 0 and CUDA's are the same card.
func firstIsMinorZero(gpus string) bool {
	entries, err := os.ReadDir(gpus) // in order of the PCI address
	if err != nil || len(entries) == 0 {
		return false
	}
	text, err := os.ReadFile(filepath.Join(gpus, entries[0].Name(), "information"))
	if err != nil {
		return false
	}
	_, after, found := strings.Cut(string(text), "Device Minor:")
	return found && len(strings.Fields(after)) > 0 && strings.Fields(after)[0] == "0"
}

// tryReal asks both of NVIDIA's libraries once.
func tryReal() error {
	dir, err := os.MkdirTemp("", "bookend-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "train")
	if err := buildReal(program); err != nil {
		return err
	}
	if out, err := exec.Command(program, "check").CombinedOutput(); err != nil {
		return errors.New(strings.TrimSpace(string(out)))
	}
	return nil
}

// sections are the further sections of the node's configuration.
func (d *demo) sections() string {
	if d.card.real {
		return realConfig
	}
	return ""
}

func (d *demo) uid(name string) uint32 {
	u, err := user.Lookup(name)
	if err != nil {
		return 0 // no process of a job has it
	}
	n, _ := strconv.ParseUint(u.Uid, 10, 32)
	return uint32(n)
}

// processesNaming returns the processes whose environment or program lies in dir.
func processesNaming(dir string) []int {
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	var found []int
	for _, path := range environs {
		proc := filepath.Dir(path)
		environ, _ := os.ReadFile(path)
		program, _ := os.Readlink(filepath.Join(proc, "exe"))
		pid, err := strconv.Atoi(filepath.Base(proc))
		if err == nil && pid != os.Getpid() && strings.Contains(string(environ)+program, dir+"/") {
			found = append(found, pid)
		}
	}
	return found
}
