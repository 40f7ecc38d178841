package process

import (
	"maps"
	"slices"
	"strings"
)

// WithEnv returns environ with the variables of set replaced or added, each once, sorted by name.
// Variables with an empty value are removed.
func WithEnv(environ []string, set map[string]string) []string {
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
