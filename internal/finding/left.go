package finding

import (
	"slices"

	"bookend/internal/code"
	"bookend/internal/gpu"
)

// Left adds up what the findings of an end say that the ended job left on a card, in bytes. What is not known counts nothing.
func Left(found []Finding, card gpu.ID) (bytes uint64) {
	for _, f := range found {
		if f.GPU == card && f.Bytes.Known() && slices.Contains([]code.Code{code.Orphan, code.Residue, code.Phantom}, f.Code) {
			bytes += f.Bytes.Bytes
		}
	}
	return bytes
}
