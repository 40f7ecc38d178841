// Package readiness looks at one node with all checks there are, those of its GPUs, those of pkg/check and a site's
// own, and waits for what is not ready yet. It is what the daemon does before the gate and what "bringupd check" does
// by hand.
package readiness
