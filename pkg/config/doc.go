// Package config has the resolved and validated configuration of a daemon: what it runs and
// verifies, and its timeouts. The digest, which all nodes share, is derived from it. A [Setting] can be
// given by a flag, by an environment variable or by a line of a file; the package has their precedence,
// their validation, and the error messages.
package config
