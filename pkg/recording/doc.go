// Package recording is what "bringupd check --record" leaves for a bug report: what the checks of a node have seen, what
// they expected, and what they made of it. What is nobody else's affair is not in it.
package recording
