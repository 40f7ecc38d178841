// Package timeline reads a run directory, live or a year old, into plain data
// for people: who was in which state, what happened when, how it ended. It
// writes nothing there, asks no launcher, and believes no file: what can't be
// read is told of, and the rest is still shown.
package timeline
