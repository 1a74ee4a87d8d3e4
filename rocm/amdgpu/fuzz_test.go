package amdgpu

import (
	"testing"

	"bookend/test/fakeamd"
)

func FuzzClient(f *testing.F) {
	f.Add(fakeamd.Info(1, 1<<30))
	f.Add("drm-driver:\tamdgpu\ndrm-pdev:\t0000:03:00.0\ndrm-client-id:\t1\ndrm-memory-vram:\t99999999999999999999 KiB")
	f.Fuzz(func(t *testing.T, text string) {
		if c, ok := parseClient(text); ok && (c.bus == "" || c.id == "" || c.bytes > 1<<60) {
			t.Errorf("%+v", c)
		}
		parseOwner(text)
	})
}
