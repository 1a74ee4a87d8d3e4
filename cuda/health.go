package main

import "time"

// tellHealth reads the condition of the devices that were asked for, if that was asked for and time is left.
func (s *session) tellHealth(end time.Duration) error { return nil }
