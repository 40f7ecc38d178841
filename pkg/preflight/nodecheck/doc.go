// Package nodecheck runs all checks of one node: the checks of its GPUs, the checks of pkg/check
// and the site's own commands. It repeats them until everything is ready or a timeout expires. The
// daemon uses it before the gate opens, and the command "bringupd check" runs the same checks.
package nodecheck
