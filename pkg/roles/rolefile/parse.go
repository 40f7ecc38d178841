// Package rolefile reads the roles of a run from a configuration file. It refuses mistakes, each with
// its line; whether the roles fit on given nodes is the question of [roles.MakePlan].
package rolefile

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/pkg/roles"
)

// Keys of the file that describe roles. All others are settings.
const (
	RolesKey  = "roles"
	SparesKey = "spares"
)

// File has the roles of a configuration file.
type File struct {
	Roles  []roles.Definition
	Spares roles.Spares
}

// Parse returns the roles in the value of the key roles. Its error is of type [Errors].
func Parse(node *yaml.Node) ([]roles.Definition, error) {
	list := newErrorList()
	readers := list.readRoles(resolveAlias(node))
	list.checkTogether(readers)
	if err := list.err(); err != nil {
		return nil, err
	}
	return definitionsOf(readers), nil
}

func definitionsOf(readers []*roleReader) []roles.Definition {
	defs := make([]roles.Definition, len(readers))
	for at, r := range readers {
		defs[at] = r.def
	}
	return defs
}

func (l *errorList) readRoles(node *yaml.Node) (readers []*roleReader) {
	if node.Kind != yaml.SequenceNode || len(node.Content) == 0 {
		l.refuse(node, "%s is %s: give a list of roles, such as [{name: judge, nodes: 2, command: …}]",
			RolesKey, describe(node))
		return nil
	}
	if len(node.Content) > maxRoles {
		l.refuse(node, "%s has %d roles: give at most %d", RolesKey, len(node.Content), maxRoles)
		return nil
	}
	for _, item := range node.Content {
		if l.isFull() {
			break
		}
		if r := l.readRole("this role", item); r != nil {
			r.complete()
			readers = append(readers, r)
		}
	}
	return readers
}

// describe returns a value for a message. An empty list is not a list of roles.
func describe(node *yaml.Node) string {
	if node.Kind == yaml.SequenceNode && len(node.Content) == 0 {
		return "empty"
	}
	return show(node)
}

// ParseSpares returns the number of spare nodes of each group in the value of the key spares. A
// number alone is that of group 0. Its error is of type [Errors].
func ParseSpares(node *yaml.Node) (roles.Spares, error) {
	node = resolveAlias(node)
	list, spares := newErrorList(), make(roles.Spares)
	switch {
	case isNull(node):
	case node.Kind != yaml.MappingNode:
		spares[0] = list.number(0, maxNodes)(SparesKey, node)
	default:
		for _, f := range list.readFields(SparesKey, "", node) {
			group := list.number(0, maxGroup)(SparesKey+": group", f.key)
			spares[group] = list.number(0, maxNodes)(fmt.Sprintf("%s: group %d", SparesKey, group), f.value)
		}
	}
	return spares, list.err()
}
