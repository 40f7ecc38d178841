package rolefile

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// field is a key of a mapping with its value.
type field struct{ key, value *yaml.Node }

// maxKeys is the number of keys of one mapping.
const maxKeys = 500

func resolveAlias(node *yaml.Node) *yaml.Node {
	for node.Kind == yaml.AliasNode && node.Alias != nil {
		node = node.Alias
	}
	return node
}

// isNull reports whether a value is empty. Such a key has its default.
func isNull(value *yaml.Node) bool {
	return value.Kind == yaml.ScalarNode && value.ShortTag() == "!!null"
}

// readFields returns the keys of a mapping in order, without those that have no value, followed by
// those of the mappings that it merges with "<<" and does not have itself. It returns nil after it
// has refused a node that is not a mapping.
func (l *errorList) readFields(what, example string, node *yaml.Node) []field {
	return slices.DeleteFunc(l.readAllFields(what, example, node), func(f field) bool { return isNull(f.value) })
}

// readAllFields returns the same, with the keys that have no value. It visits each mapping once, so
// that neither a mapping that merges itself nor one that merges others many times takes long.
func (l *errorList) readAllFields(what, example string, node *yaml.Node) (fields []field) {
	node = resolveAlias(node)
	if node.Kind != yaml.MappingNode {
		l.refuse(node, "%s: a mapping is expected, such as %s", what, example)
		return nil
	}
	set, visited := make(map[string]bool), make(map[*yaml.Node]bool)
	for mappings := []*yaml.Node{node}; len(mappings) > 0; {
		next := resolveAlias(mappings[0])
		mappings = mappings[1:]
		switch {
		case next.Kind != yaml.MappingNode:
			l.refuse(next, "%s: << merges a mapping or a list of mappings", what)
		case !visited[next]:
			visited[next] = true
			own, merged := l.readMappingFields(what, next)
			for _, f := range own {
				if !set[f.key.Value] {
					fields = append(fields, f)
				}
			}
			for _, f := range own {
				set[f.key.Value] = true
			}
			mappings = append(merged, mappings...)
		}
	}
	if len(fields) > maxKeys {
		l.refuse(node, "%s has %d keys: give at most %d", what, len(fields), maxKeys)
		return nil
	}
	return fields
}

// readMappingFields returns the keys of one mapping, and the mappings that it merges.
func (l *errorList) readMappingFields(what string, node *yaml.Node) (own []field, merged []*yaml.Node) {
	lines := make(map[string]int)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := resolveAlias(node.Content[i]), resolveAlias(node.Content[i+1])
		line, isTwice := lines[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode:
			l.refuse(node.Content[i], "%s: a key must be a word", what)
		case key.ShortTag() == "!!merge" && value.Kind == yaml.SequenceNode:
			merged = append(merged, value.Content...)
		case key.ShortTag() == "!!merge":
			merged = append(merged, value)
		case isTwice:
			l.refuse(node.Content[i], "%s: %s is already set in line %d", what, key.Value, line)
		default:
			lines[key.Value] = node.Content[i].Line
			own = append(own, field{node.Content[i], value})
		}
	}
	return own, merged
}
