// Package bundle builds the bug report of "bringupd check --record": the state that the checks
// of a node have read, their expectations and their findings. It leaves out private information.
package bundle
