package finding

import "bookend/internal/gpu"

// WorthTelling is the shipped thresholds.report, in bytes, for readers of records, which do not have the configuration
// that was in force: less may be the driver's own.
const WorthTelling = 32 << 20

// Left adds up what the findings of an end say that the ended job left on a card, in bytes. What is not known counts nothing.
func Left(found []Finding, card gpu.ID) (bytes uint64) {
	for _, f := range found {
		if f.GPU == card && f.Bytes.Known() && f.Code.Traits().Memory.OfTheEnded() {
			bytes += f.Bytes.Bytes
		}
	}
	return bytes
}
