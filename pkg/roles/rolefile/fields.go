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

// fieldReader returns the fields of one mapping. It visits each mapping once, so that neither a
// mapping that merges itself nor one that merges others many times takes long.
type fieldReader struct {
	*errorList
	what    string // for messages
	fields  []field
	visited map[*yaml.Node]bool
}

// readFields returns the keys of a mapping in order, without those that have no value, followed by
// those of the mappings that it merges with "<<" and does not have itself. It returns nil after it
// has refused a node that is not a mapping.
func (l *errorList) readFields(what, example string, node *yaml.Node) []field {
	return slices.DeleteFunc(l.readAllFields(what, example, node), func(f field) bool { return isNull(f.value) })
}

// readAllFields returns the same, with the keys that have no value.
func (l *errorList) readAllFields(what, example string, node *yaml.Node) []field {
	node = resolveAlias(node)
	if node.Kind != yaml.MappingNode {
		l.refuse(node, "%s: a mapping is expected, such as %s", what, example)
		return nil
	}
	reader := &fieldReader{errorList: l, what: what, visited: make(map[*yaml.Node]bool)}
	reader.add(node, make(map[string]bool))
	if len(reader.fields) > maxKeys {
		l.refuse(node, "%s has %d keys: give at most %d", what, len(reader.fields), maxKeys)
		return nil
	}
	return reader.fields
}

// add appends the fields of a mapping whose keys are not set yet.
func (r *fieldReader) add(node *yaml.Node, set map[string]bool) {
	if r.visited[node] {
		return
	}
	r.visited[node] = true
	var merged []*yaml.Node
	own := make(map[string]int)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := resolveAlias(node.Content[i]), resolveAlias(node.Content[i+1])
		line, twice := own[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode:
			r.refuse(node.Content[i], "%s: a key must be a word", r.what)
			continue
		case key.ShortTag() == "!!merge":
			merged = append(merged, value)
			continue
		case twice:
			r.refuse(node.Content[i], "%s: %s is already set in line %d", r.what, key.Value, line)
			continue
		}
		own[key.Value] = node.Content[i].Line
		if !set[key.Value] {
			r.fields = append(r.fields, field{node.Content[i], value})
		}
	}
	for name := range own {
		set[name] = true
	}
	for _, value := range merged {
		r.merge(value, set)
	}
}

// merge adds the fields of the value of "<<": a mapping, or a list of mappings.
func (r *fieldReader) merge(value *yaml.Node, set map[string]bool) {
	mappings := []*yaml.Node{value}
	if value.Kind == yaml.SequenceNode {
		mappings = value.Content
	}
	for _, mapping := range mappings {
		if mapping = resolveAlias(mapping); mapping.Kind != yaml.MappingNode {
			r.refuse(mapping, "%s: << merges a mapping or a list of mappings", r.what)
			continue
		}
		r.add(mapping, set)
	}
}
