// Package pattern compiles regular expressions when they are first needed.
package pattern

import (
	"regexp"
	"sync"
)

// New compiles a regular expression when it is first asked for, which few commands do: compiled ahead, it would be
// paid for at every start of the program, that of each rank among them. It panics then where it is none.
func New(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
