package gpu

// Card is one physical GPU of the node, read without asking the driver's library.
type Card struct {
	Device Device `json:"device"` // ID is empty while the driver has not cached the card's UUID
	// Excluded is true for a card the driver was told to leave alone: no process can use it. It still takes up
	// a minor.
	Excluded bool `json:"excluded,omitempty"`
	// Unknown is why nothing but the bus id is known, when it is so.
	Unknown string `json:"unknown,omitempty"`
}
