// Package config has the resolved and validated configuration of a daemon: what it runs and
// verifies, its dependencies, and its timeouts. The digest, which all nodes share, and the plan are
// derived from it.
package config
