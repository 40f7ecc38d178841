package setting

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// DriverKey is the only key of the configuration file that is not a setting.
const DriverKey = "driver"

// readConfig offers the values in the file to the settings, and returns the driver in the file.
func readConfig(path string, read func(what, path string) ([]byte, error), all List) (driver []string, err error) {
	data, err := read("the configuration", path)
	if err != nil {
		return nil, err
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var root, more yaml.Node
	err = decoder.Decode(&root)
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err != nil {
		return nil, Usagef("cannot read the configuration %s: %v", path, err)
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, Usagef("cannot read the configuration %s: give one document, without a second one behind ---", path)
	}
	top := root.Content[0]
	if top.Kind != yaml.MappingNode {
		return nil, Usagef("cannot read the configuration %s:%d: give settings by the flags' names, as in \"%s: …\"", path, top.Line, all.Only((*Setting).IsKey)[0].Name)
	}
	return applyConfig(path, top, all)
}

func applyConfig(path string, top *yaml.Node, all List) (driver []string, err error) {
	seen := make(map[string]int)
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], resolved(top.Content[i+1])
		at := fmt.Sprintf("%s:%d", path, key.Line)
		if key.Kind != yaml.ScalarNode {
			return nil, Usagef("cannot use %s: a key is the plain name of a setting", at)
		}
		if line, twice := seen[key.Value]; twice {
			return nil, Usagef("cannot use %s: line %d gives %q, too", at, line, key.Value)
		}
		seen[key.Value] = key.Line
		if key.Value == DriverKey {
			driver, err = scalars(value)
			if value.Kind != yaml.SequenceNode || err != nil {
				return nil, Usagef("cannot use %s: give the driver as a list of its words, as in [python, train.py]", at)
			}
			continue
		}
		s := all.Find(key.Value)
		if s == nil || !s.IsKey() && !s.removed {
			return nil, unknownKey(at, key.Value, all)
		}
		if err := s.read(at, value); err != nil {
			return nil, err
		}
	}
	return driver, nil
}

func unknownKey(at, key string, all List) error {
	if s := all.Find(key); s != nil && !s.Hidden {
		return Usagef("cannot use %s: %s can't be given in the file, but by --%s", at, key, key)
	}
	var known []string
	for _, s := range all.Only((*Setting).IsKey) {
		known = append(known, s.Name)
	}
	return Usagef("cannot use %s: there is no key %q%s", at, key, Suggestion("", key, append(known, DriverKey)))
}

// read offers the value in the file to the setting. A key without a value is ignored.
func (s *Setting) read(at string, value *yaml.Node) error {
	if value.Tag == "!!null" {
		return nil
	}
	values, err := scalars(value)
	if err != nil || value.Kind != yaml.ScalarNode && !s.Repeats {
		accepted := "one value"
		if s.Repeats {
			accepted = "a list of values"
		}
		return Usagef("cannot use %s: %s takes %s", at, s.Name, accepted)
	}
	s.Offer(ByFile, at, values...)
	return nil
}

// scalars returns the values of a list, or the single value.
func scalars(value *yaml.Node) ([]string, error) {
	nodes := []*yaml.Node{value}
	if value.Kind == yaml.SequenceNode {
		nodes = value.Content
	}
	values := make([]string, 0, len(nodes))
	for _, node := range nodes {
		node = resolved(node)
		if node.Kind != yaml.ScalarNode || node.Tag == "!!null" {
			return nil, errors.New("not a value")
		}
		values = append(values, node.Value)
	}
	return values, nil
}

// resolved returns the node to which an alias refers.
func resolved(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}
