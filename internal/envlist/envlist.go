// Package envlist reads and changes environments, which are lists of NAME=VALUE entries.
package envlist

import (
	"maps"
	"slices"
	"strings"
)

// With returns environ with the variables of set replaced or added, each once, sorted by name.
// Variables with an empty value are removed.
func With(environ []string, set map[string]string) []string {
	out := slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		_, replaced := set[name]
		return replaced
	})
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if value := set[name]; value != "" {
			out = append(out, name+"="+value)
		}
	}
	return out
}

// Lookup returns the value of name in env. If a name occurs twice, the last entry counts.
func Lookup(env []string, name string) (value string, found bool) {
	for _, entry := range slices.Backward(env) {
		if key, value, ok := strings.Cut(entry, "="); ok && key == name {
			return value, true
		}
	}
	return "", false
}
