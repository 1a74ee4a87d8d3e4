package finding

import (
	"slices"

	"bookend/internal/code"
	"bookend/internal/gpu"
)

// WorthTelling is the shipped thresholds.report, in bytes, for readers of records, which do not have the configuration
// that was in force: less may be the driver's own.
const WorthTelling = 32 << 20

// leftBehind are the findings of what an ended job left on its card.
var leftBehind = []code.Code{code.Orphan, code.Residue, code.Phantom}

// Unrightful reports a finding of something that is on a card by no right, whoever left it there.
func (f Finding) Unrightful() bool {
	return slices.Contains(leftBehind, f.Code) || f.Code == code.Stray || f.Code == code.Dirty
}

// Left adds up what the findings of an end say that the ended job left on a card, in bytes. What is not known counts nothing.
func Left(found []Finding, card gpu.ID) (bytes uint64) {
	for _, f := range found {
		if f.GPU == card && f.Bytes.Known() && slices.Contains(leftBehind, f.Code) {
			bytes += f.Bytes.Bytes
		}
	}
	return bytes
}
