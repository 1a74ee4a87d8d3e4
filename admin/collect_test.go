package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"bookend/test/fakeamd"
)

// What a site sends has all that the backend reads, and neither its cards' ids nor other programs' files.
func TestCollect(t *testing.T) {
	card := fakeamd.Card{Bus: "0000:26:00.0", Minor: 128, UniqueID: "a1b2c3d4e5f60718", Total: 1 << 30, RAS: "ue: 0"}
	w := fakeamd.New(t.TempDir(), card)
	w.Compute(10, 128, 1<<20)
	w.Queue(10, 128)
	w.Open(10, 5, 0, fakeamd.Info(1, 1<<20))
	w.Open(11, 6, 0, "drm-driver:\tother\n")
	var out bytes.Buffer
	if err := archive(w.Proc, w.Sys, &out); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(out.Bytes(), []byte("a1b2c3d4e5f60718")) || bytes.Contains(out.Bytes(), []byte("11651590505119483672")) {
		t.Error("the id of a card is in it")
	}
	files := map[string]string{}
	for r := tar.NewReader(&out); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		data, err := io.ReadAll(r)
		must(t, err)
		files[h.Name] = string(data)
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
	id := strings.TrimSpace(files["sys/bus/pci/devices/0000:26:00.0/unique_id"])
	if len(id) != 16 || !strings.Contains(files["sys/class/kfd/kfd/topology/nodes/1/properties"], "unique_id ") {
		t.Errorf("id %q, %q", id, files["sys/class/kfd/kfd/topology/nodes/1/properties"])
	}
}
