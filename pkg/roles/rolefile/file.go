package rolefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/pkg/roles"
)

// File has the roles of a configuration file.
type File struct {
	Roles  []roles.Definition
	Spares roles.Spares
}

// ParseFile returns the roles in the text of a configuration file, which may also contain the
// settings of these names. The errors contain the path of the file.
func ParseFile(path string, text []byte, settings []string) (File, error) {
	top, err := readDocument(path, text)
	if err != nil {
		return File{}, err
	}
	file, err := parseTop(top, settings)
	if wrong, ours := errors.AsType[Errors](err); ours {
		return file, errors.New(wrong.InFile(path))
	}
	return file, err
}

// readDocument returns the only document of a file.
func readDocument(path string, text []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var root, more yaml.Node
	switch err := decoder.Decode(&root); {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("cannot use %s: it is empty; give a list of %s", path, RolesKey)
	case err != nil:
		return nil, fmt.Errorf("cannot read %s: %v", path, err)
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("cannot read %s: give one document, without a second one after ---", path)
	}
	return root.Content[0], nil
}

// parseTop parses the values of the keys at the top of a document.
func parseTop(top *yaml.Node, settings []string) (file File, err error) {
	list := &errorList{}
	hasRoles := false
	for _, f := range list.readFields("the file", "roles: […]", top) {
		switch f.key.Value {
		case RolesKey:
			hasRoles = true
			file.Roles, err = Parse(f.value)
		case SparesKey:
			file.Spares, err = ParseSpares(f.value)
		default:
			if !slices.Contains(settings, f.key.Value) {
				list.refuse(f.key, "there is no key %s%s", show(f.key), suggestNearest(f.key.Value, append([]string{RolesKey, SparesKey}, settings...)))
			}
		}
		if wrong, ours := errors.AsType[Errors](err); ours {
			list.found, err = append(list.found, wrong...), nil
		}
	}
	if !hasRoles && len(list.found) == 0 {
		list.refuse(top, "there is no key %s: give a list of roles", RolesKey)
	}
	return file, list.err()
}
