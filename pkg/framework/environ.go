package framework

import (
	"maps"
	"slices"
	"strings"
)

// ServiceEnviron returns the environment of a service, before the daemon adds what it knows: the
// node's environment, without stale variables, which refer to another cluster. The user can override
// settings; variables from the head override everything.
func ServiceEnviron(environ []string, settings, fromHead map[string]string, stale []string) []string {
	set := make(map[string]string)
	maps.Copy(set, settings)
	maps.Copy(set, fromHead)
	maps.DeleteFunc(set, func(name, _ string) bool { return slices.Contains(stale, name) })
	var out []string
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if slices.Contains(stale, name) {
			continue
		}
		if _, replaced := fromHead[name]; replaced {
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

// FindVersionAfter returns a Traits.Version that finds the text after a prefix at the beginning of
// a line, such as "ray, version 2.9.0", among any warnings.
func FindVersionAfter(prefix string) func(lines []string) string {
	return func(lines []string) string {
		for _, line := range lines {
			if version, ok := strings.CutPrefix(strings.TrimSpace(line), prefix); ok {
				return version
			}
		}
		return ""
	}
}
