// Package health tells what is well and what is not: probes of a service,
// the liveness of peers, the verdict on the first cause of a failure, and the
// table of exit codes. It knows nothing of frameworks.
package health
