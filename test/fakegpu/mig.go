package fakegpu

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// instanceKey matches the keys of the MIG instance at index I of a card, gpuN.migI_KEY: mib is its memory and makes
// it exist, reserved_mib and extra_mib are as the card's, gi and ci its GPU and compute instance, pids the processes
// of the card that are on it, list those that it lists without their being there.
var instanceKey = regexp.MustCompile(`^mig[0-6]_(?:uuid|gi|ci|mib|reserved_mib|extra_mib|pids|list)$`)

func migKey(gpu, index int, key string) string {
	return gpuKey(gpu, fmt.Sprintf("mig%d_%s", index, key))
}

// Instance cuts a MIG instance out of a card, with this index in the driver's numbering (0 to 6; holes are usual),
// GPU instance, compute instance and memory. It puts the card into MIG mode.
func Instance(gpu, index, gi, ci, mib int) Option {
	return func(s settings) {
		s[gpuKey(gpu, "mig")] = "1"
		s[migKey(gpu, index, "uuid")] = fmt.Sprintf("MIG-%08x-41d2-5c0b-8a6e-%06x%06x", 0x3a0b1c00+gpu, gi, ci)
		s[migKey(gpu, index, "gi")], s[migKey(gpu, index, "ci")] = strconv.Itoa(gi), strconv.Itoa(ci)
		s[migKey(gpu, index, "mib")] = strconv.Itoa(mib)
	}
}

// InstanceUUID returns the UUID of the MIG instance at an index.
func (w *World) InstanceUUID(gpu, index int) string { return w.Get(migKey(gpu, index, "uuid")) }

// Place puts processes of a card on one of its MIG instances, in place of those put there before.
func (w *World) Place(gpu, index int, pids ...int) error {
	return w.Set(migKey(gpu, index, "pids"), strings.Trim(fmt.Sprint(pids), "[]"))
}

// Destroy removes a MIG instance.
func (w *World) Destroy(gpu, index int) error { return w.Set(migKey(gpu, index, "mib"), "") }
