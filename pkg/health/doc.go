// Package health decides what is healthy and what is not: probes of a service, the verdict on the
// first cause of a failure, and the table of exit codes. It is independent of frameworks.
package health
