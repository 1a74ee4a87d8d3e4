package slurm

import (
	"fmt"
	"strings"
	"testing"
)

func TestFirstHost(t *testing.T) {
	for list, want := range map[string]string{
		"n1":                     "n1",
		"n[1-2],x":               "n1",
		"n[001-010,020],m3":      "n001",
		"gpu-a[10-11].hpc":       "gpu-a10.hpc",
		"rack[0-1]n[2-3],x":      "rack0n2",
		"login,n[1-2":            "login",
		"":                       "",
		"n[1-2":                  "",
		"tux[000x444]":           "", // box ranges of machines long gone
		"../x":                   "",
		strings.Repeat("n", 300): "",
	} {
		if got := FirstHost(list); got != want {
			t.Errorf("FirstHost(%q) = %q, want %q", list, got, want)
		}
	}
}

func TestElements(t *testing.T) {
	for list, want := range map[string]string{
		"n[1-2,4],m3": `["n[1-2,4]" "m3"]`, "gpu:a:4(S:0,1),shard:8": `["gpu:a:4(S:0,1)" "shard:8"]`,
		"a],b": `["a]" "b"]`, "": "[]",
	} {
		if got := fmt.Sprintf("%q", Elements(list)); got != want {
			t.Errorf("Elements(%q) = %s, want %s", list, got, want)
		}
	}
}

func TestExpand(t *testing.T) {
	for element, want := range map[string]string{
		"n1": "n1", "n[8-10]": "n8 n9 n10", "n[08-10,7]b": "n08b n09b n10b n7b", "r[0-1]n[2-3]": "r0n2 r0n3 r1n2 r1n3",
		"n[202401010016-202401010017]": "n202401010016 n202401010017",
	} {
		names, ok := Expand(element)
		if got := strings.Join(names, " "); got != want || !ok {
			t.Errorf("Expand(%q) = %s, %v, want %s", element, got, ok, want)
		}
	}
	for _, element := range []string{
		"n[1-", "n[2-1]", "n[]", "n[+1-2]", "n]1", "n[1-2]m[", "n[000x333]", "n[1-99999999999]", "n[0-999999]",
		"a[0-999]b[0-999]", "n[9223372036854775807]", "n[0000000000000000001]",
	} {
		if names, ok := Expand(element); ok || names != nil {
			t.Errorf("Expand(%q) = %d names, %v, want none", element, len(names), ok)
		}
	}
}
