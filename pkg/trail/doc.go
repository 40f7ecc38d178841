// Package trail is what a daemon leaves behind for people: events, one JSON
// object a line, and its log. It has the one schema of events, for who writes
// them and for who reads them, and the run's place in a distributed trace.
package trail
