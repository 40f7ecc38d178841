// Package eventlog writes the event log of a daemon, one JSON object per line, and the daemon's own
// log. It defines the schema of events for writers and readers, and the run's position in a
// distributed trace.
package eventlog
