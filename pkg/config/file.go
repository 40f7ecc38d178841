package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/roles/rolefile"
)

// DriverFileKey is the only key of the configuration file that is not a setting.
const DriverFileKey = "driver"

// Block is a key of the configuration file whose value is not that of a setting.
type Block struct {
	Key string
	// Read reads the value, in a file with this path. Its error names the place in the file.
	Read func(path string, value *yaml.Node) error
}

// readConfig offers the values in the file that is this source to the settings, and returns the driver
// in the file.
func readConfig(
	from Source, path string, read FileReader, all List, blocks []Block,
) (driver []string, err error) {
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
		return nil, syntaxError(path, data, err)
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, UsageErrorf(
			"cannot read the configuration %s: give one document, without a second one after ---", path)
	}
	top := root.Content[0]
	if top.Kind != yaml.MappingNode {
		return nil, UsageErrorf(
			"cannot read the configuration %s:%d: use the flags' names as keys, for example \"log-dir: …\"",
			path, top.Line)
	}
	return applyConfig(from, path, top, all, blocks)
}

// maxLocatedLines is how many lines before its occurrence the cause of a syntax error is searched.
const maxLocatedLines = 50

// syntaxError returns an error of the YAML parser with the line after the longest part of the file
// that can be read: the mistake, or what it does not continue. The parser itself names the line in
// which the block with the mistake begins.
func syntaxError(path string, data []byte, err error) error {
	lines := bytes.SplitAfter(data, []byte("\n"))
	parse := func(count int) error {
		var root yaml.Node
		return yaml.Unmarshal(bytes.Join(lines[:count], nil), &root)
	}
	// From this line on the error is the same.
	line := 1 + sort.Search(len(lines)-1, func(i int) bool {
		found := parse(i + 1)
		return found != nil && found.Error() == err.Error()
	})
	for at := line; at > max(0, line-maxLocatedLines); at-- {
		if at == 1 || parse(at-1) == nil {
			line = at
			break
		}
	}
	reason := strings.TrimPrefix(err.Error(), "yaml: ")
	if at, after, found := strings.Cut(reason, ": "); found && strings.HasPrefix(at, "line ") {
		reason = after
	}
	if isTab := bytes.HasPrefix(bytes.TrimLeft(lines[line-1], " "), []byte("\t")); isTab &&
		(strings.Contains(reason, "tab character") || strings.HasPrefix(reason, "found character that cannot")) {
		reason = "a tab is used as indentation; use spaces"
	}
	isOfText := strings.HasPrefix(reason, "mapping values are not allowed") ||
		strings.HasPrefix(reason, "did not find expected")
	if isOfText && bytes.Contains(lines[line-1], []byte(": ")) {
		reason += `; a text that contains ": " or begins with a sign needs quotes, as in 'a: b', or a block: ` +
			`"command: |" and the text in the lines below, indented`
	}
	return UsageErrorf("cannot read the configuration %s:%d: %s", path, line, reason)
}

func applyConfig(
	from Source, path string, top *yaml.Node, all List, blocks []Block,
) (driver []string, err error) {
	seen := make(map[string]int)
	var problems []string // all blocks'
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], resolveAlias(top.Content[i+1])
		at := fmt.Sprintf("%s:%d", path, key.Line)
		if key.Kind != yaml.ScalarNode {
			return nil, UsageErrorf("cannot use %s: a key must be the name of a setting", at)
		}
		if line, twice := seen[key.Value]; twice {
			return nil, UsageErrorf("cannot use %s: %s is already set in line %d", at, key.Value, line)
		}
		seen[key.Value] = key.Line
		if strings.HasPrefix(key.Value, rolefile.ExtensionPrefix) {
			continue
		}
		if from == SourceSite {
			if err := all.offerSiteValue(at, key.Value, value); err != nil {
				return nil, err
			}
			continue
		}
		if key.Value == DriverFileKey {
			driver, err = scalarValues(value)
			if value.Kind != yaml.SequenceNode || err != nil {
				return nil, UsageErrorf("cannot use %s: give the driver as a list, for example [python, train.py]", at)
			}
			continue
		}
		if at := slices.IndexFunc(blocks, func(b Block) bool { return b.Key == key.Value }); at >= 0 {
			if err := blocks[at].Read(path, value); err != nil {
				problems = append(problems, err.Error())
			}
			continue
		}
		s := all.FindSetting(key.Value)
		if value.Kind != yaml.ScalarNode && key.Value == "role" && len(blocks) > 0 {
			return nil, UsageErrorf("cannot use %s: there is no key %q; did you mean %s?", at, key.Value,
				rolefile.RolesKey)
		}
		if s == nil || !s.IsFileKey() && !s.isRemoved {
			return nil, unknownKeyError(at, key.Value, all, blocks)
		}
		values, err := s.fileValues(at, value)
		if err != nil {
			return nil, err
		}
		if values != nil {
			s.OfferValues(SourceFile, at, values...)
		}
	}
	if len(problems) > 0 {
		return nil, UsageErrorf("%s", strings.Join(problems, "\n"))
	}
	return driver, nil
}

func unknownKeyError(at, key string, all List, blocks []Block) error {
	if s := all.FindSetting(key); s != nil && !s.Hidden {
		return UsageErrorf("cannot use %s: %s cannot be set in the file: use --%s", at, key, key)
	}
	known := textutil.MapSlice(blocks, func(b Block) string { return b.Key })
	for _, s := range all {
		if s.IsFileKey() {
			known = append(known, s.Name)
		}
	}
	if slices.Contains(foreignTopKeys, key) && len(blocks) > 0 {
		return UsageErrorf("cannot use %s: there is no key %q; the programs of a job are a list under the key %s: "+
			"bringupd help roles", at, key, rolefile.RolesKey)
	}
	return UsageErrorf(
		"cannot use %s: there is no key %q%s", at, key, SuggestNearest("", key, append(known, DriverFileKey)))
}

// foreignTopKeys are keys of the files of compose, Kubernetes and others, in which users look for roles.
var foreignTopKeys = []string{"services", "apiVersion", "kind", "spec", "jobs", "tasks", "processes", "containers"}

// fileValues returns the values of the setting in the file; nil if the key has no value.
func (s *Setting) fileValues(at string, value *yaml.Node) ([]string, error) {
	if value.Tag == "!!null" {
		return nil, nil
	}
	values, err := scalarValues(value)
	if err != nil || value.Kind != yaml.ScalarNode && !s.IsRepeatable {
		accepted := "one value"
		if s.IsRepeatable {
			accepted = "a list of values"
		}
		return nil, UsageErrorf("cannot use %s: %s takes %s", at, s.Name, accepted)
	}
	return values, nil
}

// scalarValues returns the values of a list, or the single value.
func scalarValues(value *yaml.Node) ([]string, error) {
	nodes := []*yaml.Node{value}
	if value.Kind == yaml.SequenceNode {
		nodes = value.Content
	}
	values := make([]string, 0, len(nodes))
	for _, node := range nodes {
		node = resolveAlias(node)
		if node.Kind != yaml.ScalarNode || node.Tag == "!!null" {
			return nil, errors.New("not a value")
		}
		values = append(values, node.Value)
	}
	return values, nil
}

func resolveAlias(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}
