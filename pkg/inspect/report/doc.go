// Package report shows a run that has been read as one page, or as text, for
// people who were not there: what went wrong first, what to do about it, and who
// did what when. View is pure; what writes only writes what it holds.
//
// Everything in a run directory is untrusted: a View holds no control
// characters, and no line longer than a screen.
package report
