// Package config is everything that a daemon is told, resolved and checked: what
// it is to run and prove, with which means, and for how long each part may take.
// From that alone follow its digest, which all nodes share, and its plan.
package config
