package textutil

import (
	"regexp"
	"sync"
)

// CompileLazily returns a function that compiles a regular expression at its first call. Few
// commands need one; compiling it earlier would cost time at every start of the program, including
// that of each rank. The function panics if the expression is invalid.
func CompileLazily(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
