// Package report shows a run, which package timeline has read, as one page or as text, for people
// who did not watch it: the first failure, what to do about it, and the timeline of all nodes. Look
// makes a View without any input or output; the writers only format what the View contains.
//
// Everything in a run directory is untrusted: a View contains no control characters, and no very
// long lines.
package report
