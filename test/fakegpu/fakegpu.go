// Package fakegpu builds a world with a fake GPU vendor in it, for tests and demonstrations: vendor libraries to
// be loaded by unmodified programs, device nodes that can be held open, the driver's files in /proc and /sys, and
// a program that plays the user's. Memory in this world belongs to real processes and goes when they really go.
//
//	W/libnvidia-ml.so.1  libcuda.so.1   the vendor's libraries
//	W/fakecuda           the user's CUDA program, see test/gpu/scenarios/c/main.c for its flags
//	W/nvidia-cuda-mps-*  the MPS daemon and its server; on the PATH they stand for NVIDIA's
//	W/fakekeeper         tears released memory down as slowly as a driver does (StartKeeper); without it
//	                     released memory is gone at once
//	W/world.conf         what the cards are and how the driver behaves; read anew by every call (Set)
//	W/alloc/             the driver's bookkeeping, one file per holder of memory
//	W/noted/             the processes that a rule told to note
//	W/dev/               nvidia0…, nvidiactl, nvidia-uvm; kmsg, a file with the kernel's log
//	W/proc-driver/nvidia what /proc/driver/nvidia shows
//	W/sys/module/nvidia  what /sys/module/nvidia shows; the rest of W/sys leads to /sys
//
// Cards are numbered in PCI order, those excluded from the driver included.
package fakegpu

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"bookend/test/rig"
)

// World is one fake node's GPUs.
type World struct {
	dir     string
	keeper  *exec.Cmd
	hangUp  func() error // ends the keeper
	without int          // libraries made by NVMLWithout
}

// Option changes the world New makes.
type Option func(settings)

// GPUs sets the number of cards, 4 unless said otherwise, at most 64.
func GPUs(n int) Option { return func(s settings) { s["gpus"] = strconv.Itoa(n) } }

// Minors gives the cards these device minors in PCI order; otherwise both orders agree.
func Minors(minors ...int) Option {
	return func(s settings) {
		for gpu, minor := range minors {
			s[gpuKey(gpu, "minor")] = strconv.Itoa(minor)
		}
	}
}

// With sets a key of world.conf as World.Set does.
func With(key, value string) Option { return func(s settings) { s[key] = value } }

// New makes a world in dir, which must be empty or not exist, and whose parents other users can pass through if
// other users are to use it. Without the right to make device nodes, or where consoles cannot be opened, the
// nodes are plain files: Slurm gives jobs no GPU for those.
func New(dir string, options ...Option) (w *World, err error) {
	s := maps.Clone(globals)
	for _, o := range options {
		o(s)
	}
	s.complete()
	err = rig.Attempt(func() {
		w = &World{dir: rig.Have(filepath.Abs(dir))}
		w.makeFolders()
		for name, content := range rig.Have(binaries()) {
			rig.Try(rig.Write(filepath.Join(w.dir, name), content, 0o755))
		}
		w.logKernel()
		w.apply(s)
	})
	if err != nil {
		return nil, fmt.Errorf("make a fake GPU world: %w", err)
	}
	return w, nil
}

func (w *World) makeFolders() {
	for name, mode := range map[string]os.FileMode{
		".": 0o755, filepath.Base(w.Dev()): 0o755, "proc-driver": 0o755, "sys": 0o755, "alloc": 0o777 | os.ModeSticky,
		"noted": 0o777 | os.ModeSticky,
	} {
		path := filepath.Join(w.dir, name)
		rig.Try(os.MkdirAll(path, 0o755))
		rig.Try(os.Chmod(path, mode)) // past the umask
	}
	// The programs know their world's dev by this name; /proc shows the folder's own.
	if err := os.Symlink(filepath.Base(w.Dev()), filepath.Join(w.dir, "dev")); !errors.Is(err, fs.ErrExist) {
		rig.Try(err)
	}
	guard := filepath.Join(w.dir, "alloc/.guard")
	rig.Try(os.WriteFile(guard, nil, 0o666))
	rig.Try(os.Chmod(guard, 0o666))
}

// Close ends the keeper, lets frozen processes go and leaves the folder to the caller. Programs are the
// caller's too.
func (w *World) Close() error {
	return errors.Join(w.StopKeeper(), w.Thaw(), w.removeFreezer())
}

// Dir is the world's folder.
func (w *World) Dir() string { return w.dir }

// NVML is the path of libnvidia-ml.so.1.
func (w *World) NVML() string { return filepath.Join(w.dir, nvmlName) }

// NVMLWithout makes a libnvidia-ml that lacks these functions and returns its path.
func (w *World) NVMLWithout(symbols ...string) (string, error) {
	files, err := build(symbols...)
	if err != nil {
		return "", err
	}
	w.without++
	path := filepath.Join(w.dir, fmt.Sprintf("libnvidia-ml-without-%d.so.1", w.without))
	return path, rig.Write(path, files[nvmlName], 0o755)
}

// CUDA is the path of libcuda.so.1.
func (w *World) CUDA() string { return filepath.Join(w.dir, cudaName) }

// FakeCUDA is the path of the user's program.
func (w *World) FakeCUDA() string { return filepath.Join(w.dir, programName) }

// Dev stands for /dev.
//
// Its name is this world's alone: to a search of /proc a process in a mount namespace of its own, as tests make for
// themselves, may be in a container, where any folder of the name counts.
func (w *World) Dev() string {
	return filepath.Join(w.dir, fmt.Sprintf("dev-%08x", crc32.ChecksumIEEE([]byte(w.dir))))
}

// DriverProc stands for /proc/driver/nvidia.
func (w *World) DriverProc() string { return filepath.Join(w.dir, "proc-driver/nvidia") }

// Sys stands for /sys.
func (w *World) Sys() string { return filepath.Join(w.dir, "sys") }
