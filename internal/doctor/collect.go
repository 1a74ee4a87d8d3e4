package doctor

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/safefile"
)

const maxCollected = 64 << 10 // of one file, bytes; a KFD node's properties take about 1 KiB

// collected are the files that AMD's backend reads, below /sys and /proc. Patterns without a match are skipped.
var collected = map[string][]string{
	"sys": {
		"module/amdgpu/version", "module/amdgpu/srcversion", "module/amdgpu/refcnt", "bus/pci/drivers/amdgpu/*:*",
		"bus/pci/devices/*/mem_info_*", "bus/pci/devices/*/unique_id", "bus/pci/devices/*/product_name",
		"bus/pci/devices/*/gpu_busy_percent", "bus/pci/devices/*/mem_busy_percent",
		"bus/pci/devices/*/ras/umc_err_count", "bus/pci/devices/*/drm/render*",
		"class/kfd/kfd/topology/nodes/*/gpu_id", "class/kfd/kfd/topology/nodes/*/properties",
		"class/kfd/kfd/proc/*/vram_*", "class/kfd/kfd/proc/*/context_*/vram_*", "class/kfd/kfd/proc/*/queues/*/gpuid",
	},
	"proc": {"sys/kernel/osrelease", "[0-9]*/fdinfo/*"},
}

// Collect writes the files that AMD's backend reads to a file, and says so.
func Collect(say Say, paths config.Paths, file string) error {
	var b bytes.Buffer
	err := collect(paths.Proc, paths.Sys, &b)
	if err == nil {
		// Threat: another user's link in the path, to a file for root to overwrite: Create refuses and replaces none.
		err = safefile.Create(file, b.Bytes(), false)
	}
	if err != nil {
		return fmt.Errorf("collect: %w", err)
	}
	say("written: %s", file)
	return nil
}

// collect writes the files that AMD's backend reads as a tar archive, for debugging the backend. The GPUs' unique IDs
// are hashed. About processes it has PIDs, memory and the driver's own fdinfo, but no names.
func collect(proc, sys string, w io.Writer) error {
	t := tar.NewWriter(w)
	for name, root := range map[string]string{"sys": sys, "proc": proc} {
		for _, pattern := range collected[name] {
			files, _ := filepath.Glob(filepath.Join(root, pattern)) // fails only for a malformed pattern
			for _, file := range files {
				rel, _ := filepath.Rel(root, file)
				if err := addFile(t, path.Join(name, rel), file); err != nil {
					return fmt.Errorf("%q: %w", file, err)
				}
			}
		}
	}
	return t.Close()
}

// addFile adds a file, or an empty one for a directory. A file that is gone or that it may not read is skipped.
func addFile(t *tar.Writer, name, file string) error {
	// Threat: none from the path; a failing driver may return endless data.
	data, err := safefile.ReadGiven(file, maxCollected)
	text := string(data)
	if info, statErr := os.Stat(file); statErr == nil && info.IsDir() {
		text, err = "", nil
	}
	ofDriver := strings.Contains(text, "drm-driver:\t"+gpu.AMD.Module+"\n")
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission),
		strings.Contains(name, "/fdinfo/") && !ofDriver: // not a descriptor of the driver
		return nil
	case err != nil:
		text = "" // unreadable, as it is for the backend
	}
	// The backend reads fdinfo of device nodes alone. Threat: other link targets are users' data: none is collected.
	node, _ := os.Readlink(strings.Replace(file, "/fdinfo/", "/fd/", 1))
	_, is := gpu.ParseMinor(path.Base(node), gpu.AMD.Nodes.Card)
	if is && path.Base(path.Dir(node)) == gpu.AMD.Nodes.Folder {
		link := tar.Header{Typeflag: tar.TypeSymlink, Linkname: node, Format: tar.FormatPAX,
			Name: strings.Replace(name, "/fdinfo/", "/fd/", 1)}
		if err := t.WriteHeader(&link); err != nil {
			return err
		}
	}
	text = hashed(text)
	header := tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), Format: tar.FormatPAX}
	if err := t.WriteHeader(&header); err != nil {
		return err
	}
	_, err = io.WriteString(t, text)
	return err
}

// hashed replaces the unique ID of a GPU, which AMD's files have as 16 hexadecimal digits, or as a decimal number.
func hashed(text string) string {
	if regexp.MustCompile(`^[0-9a-f]{16}\s*$`).MatchString(text) {
		return fmt.Sprintf("%016x\n", hash(strings.TrimSpace(text)))
	}
	return regexp.MustCompile(`(?m)^unique_id ([1-9]\d*)$`).ReplaceAllStringFunc(text, func(line string) string {
		id, _ := strconv.ParseUint(strings.TrimPrefix(line, "unique_id "), 10, 64)
		return fmt.Sprintf("unique_id %d", hash(fmt.Sprintf("%016x", id)))
	})
}

func hash(id string) uint64 {
	sum := sha256.Sum256([]byte("bookend " + id))
	return binary.BigEndian.Uint64(sum[:])
}
