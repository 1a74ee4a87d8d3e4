package record

import "time"

// SharedMark is what the record of a job's start keeps of its user's shared memory.
type SharedMark struct {
	Wall     time.Time `json:"wall,omitzero"`
	Device   uint64    `json:"device"`          // of the directory: inode numbers mean nothing on another
	Files    []uint64  `json:"files,omitempty"` // inode numbers, sorted
	Segments []uint64  `json:"segments,omitempty"`
	Login    bool      `json:"login,omitempty"` // the user was logged in, or had lingering services
	// Unknown is why something may be missing, empty if it is complete.
	Unknown string       `json:"unknown,omitempty"`
	Others  []SharedMark `json:"others,omitempty"` // of message queues and huge pages
}
