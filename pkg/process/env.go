package process

import (
	"maps"
	"slices"
	"strings"
)

// WithEnv returns an environment with variables set, each once, in the order of their
// names; one whose value is empty is not in it.
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
