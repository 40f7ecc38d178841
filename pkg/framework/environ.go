package framework

import (
	"maps"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/roles"
)

// ServiceEnviron returns the environment of a service: what the node has, without
// what its launcher tells MPI, for the service's own workers inherit it, and without
// the stale variables, which tell of another cluster. settings are given unless the
// user sets them, and what the head has told its peers wins over all.
func ServiceEnviron(environ []string, settings, told map[string]string, stale []string) []string {
	set := make(map[string]string)
	maps.Copy(set, settings)
	maps.Copy(set, told)
	maps.DeleteFunc(set, func(name, _ string) bool { return slices.Contains(stale, name) })
	var out []string
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if roles.Private(name) || slices.Contains(stale, name) {
			continue
		}
		if _, replaced := told[name]; replaced {
			continue
		}
		delete(set, name)
		out = append(out, entry)
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		out = append(out, name+"="+set[name])
	}
	return out
}

// VersionAfter returns a Traits.Version that finds what follows a prefix at the
// beginning of a line, as in "ray, version 2.9.0", among whatever warnings.
func VersionAfter(prefix string) func(lines []string) string {
	return func(lines []string) string {
		for _, line := range lines {
			if version, ok := strings.CutPrefix(strings.TrimSpace(line), prefix); ok {
				return version
			}
		}
		return ""
	}
}
