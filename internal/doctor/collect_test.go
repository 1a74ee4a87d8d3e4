package doctor

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"bookend/internal/nodefiles"
	"bookend/test/fakeamd"
	"bookend/test/must"
)

// What a site sends has all that the backend reads, which finds the same processes in it, and neither its cards' ids nor
// other programs' files.
func TestCollect(t *testing.T) {
	card := fakeamd.Card{Bus: "0000:26:00.0", Minor: 128, UniqueID: "a1b2c3d4e5f60718", Total: 1 << 30, RAS: "ue: 0"}
	w := fakeamd.New(t.TempDir(), card)
	w.Compute(10, 128, 1<<20)
	w.Queue(10, 128)
	w.Open(10, 5, 0, fakeamd.Info(1, 1<<20))
	w.Open(12, 7, 0, fakeamd.Info(2, 3<<20))
	w.Open(11, 6, 0, "drm-driver:\tother\n")
	var out bytes.Buffer
	if err := collect(w.Proc, w.Sys, &out); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(out.Bytes(), []byte("a1b2c3d4e5f60718")) || bytes.Contains(out.Bytes(), []byte("11651590505119483672")) {
		t.Error("the id of a card is in it")
	}
	files, dir := map[string]string{}, t.TempDir()
	for r := tar.NewReader(&out); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must.Do(t, err)
		data, err := io.ReadAll(r)
		must.Do(t, err)
		files[h.Name] = string(data)
		file := filepath.Join(dir, h.Name)
		must.Do(t, os.MkdirAll(filepath.Dir(file), 0o755))
		if h.Typeflag == tar.TypeSymlink {
			must.Do(t, os.Symlink(h.Linkname, file))
		} else if path.Dir(h.Name) != "sys/bus/pci/drivers/amdgpu" && path.Base(path.Dir(h.Name)) != "drm" {
			must.Do(t, os.WriteFile(file, data, 0o644))
		} else {
			must.Do(t, os.Mkdir(file, 0o755))
		}
	}
	for _, want := range []string{"sys/bus/pci/drivers/amdgpu/0000:26:00.0", "sys/bus/pci/devices/0000:26:00.0/mem_info_vram_used",
		"sys/bus/pci/devices/0000:26:00.0/drm/renderD128", "sys/bus/pci/devices/0000:26:00.0/ras/umc_err_count",
		"sys/class/kfd/kfd/topology/nodes/1/properties", "sys/class/kfd/kfd/proc/10/vram_40128",
		"sys/class/kfd/kfd/proc/10/queues/0/gpuid", "proc/10/fdinfo/5", "proc/sys/kernel/osrelease"} {
		if _, has := files[want]; !has {
			t.Errorf("no %s", want)
		}
	}
	if _, has := files["proc/11/fdinfo/6"]; has || len(files) > 20 {
		t.Errorf("%d files: more than it reads", len(files))
	}
	sent := nodefiles.AMDDriver{Proc: filepath.Join(dir, "proc"), Sys: filepath.Join(dir, "sys")}
	cards, err := nodefiles.AMD(sent.Sys)
	must.Do(t, err)
	on, unknown := sent.Users(cards, func(nodefiles.AMDDevice, uint64) bool { return true })
	if p := on["40128"]; unknown != "" || !sent.Loaded() || len(p) != 2 || p[10].Memory.Bytes != 1<<20 || p[12].Memory.Bytes != 3<<20 {
		t.Errorf("the backend finds %+v in it, unknown %q", p, unknown)
	}
	id := strings.TrimSpace(files["sys/bus/pci/devices/0000:26:00.0/unique_id"])
	if len(id) != 16 || !strings.Contains(files["sys/class/kfd/kfd/topology/nodes/1/properties"], "unique_id ") {
		t.Errorf("id %q, %q", id, files["sys/class/kfd/kfd/topology/nodes/1/properties"])
	}
}
