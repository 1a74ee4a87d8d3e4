package finding

// WorthTelling is the shipped thresholds.report, in bytes, for readers of records, which do not have the configuration
// that was in force: less may be the driver's own.
const WorthTelling = 32 << 20
