// Package timeline reads the run directory of a live or a finished run into plain data for people:
// the state of each node, the events with their times, and the outcome. It writes nothing to the
// directory, does not contact the launcher, and trusts no file: it reports what cannot be read as a
// problem, and still returns the rest.
package timeline
