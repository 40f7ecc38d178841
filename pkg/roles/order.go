package roles

import (
	"slices"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
)

// FindCycle returns the names of the roles of a circle of references, in their order, or nil if
// there is none. next returns the roles to which a role refers.
func FindCycle(defs []Definition, next func(Definition) []string) []string {
	references := resolveReferences(defs, next)
	isDone := make([]bool, len(defs))
	var path []int
	var visit func(at int) bool // reports a circle, which is then the path
	visit = func(at int) bool {
		if first := slices.Index(path, at); first >= 0 {
			path = path[first:]
			return true
		}
		if isDone[at] {
			return false
		}
		path = append(path, at)
		if slices.ContainsFunc(references[at], visit) {
			return true
		}
		isDone[at] = true
		path = path[:len(path)-1]
		return false
	}
	for at := range defs {
		if visit(at) {
			break
		}
	}
	return textutil.MapSlice(path, func(at int) string { return defs[at].Name })
}

// resolveReferences returns the indexes of the roles to which each role refers, without names that
// no role has.
func resolveReferences(defs []Definition, next func(Definition) []string) [][]int {
	indexes := indexByName(defs)
	references := make([][]int, len(defs))
	for at, def := range defs {
		for _, name := range next(def) {
			if other, exists := indexes[name]; exists {
				references[at] = append(references[at], other)
			}
		}
	}
	return references
}

func namesAfter(def Definition) []string { return def.After }

// indexByName returns the index of the first role of each name.
func indexByName(defs []Definition) map[string]int {
	indexes := make(map[string]int)
	for at, def := range slices.Backward(defs) {
		indexes[def.Name] = at
	}
	return indexes
}

// StartLevels returns the names of the roles in the order in which they start: each role is in the
// first level after those of all roles in its After. Names in After that no role has are ignored,
// and so are the references that close a circle.
func StartLevels(defs []Definition) [][]string {
	before := resolveReferences(defs, namesAfter)
	return groupByLevel(defs, levelsOf(before, func(int) int { return 1 }))
}

// EndLevels returns the names of the roles in the order in which they are stopped at an orderly
// end: the primary ones, then each role after all roles that have it in their After. Built-in services
// end with all other processes of their nodes.
func EndLevels(defs []Definition) [][]string {
	defs = without(defs, func(d Definition) bool { return d.BuiltIn.IsService() })
	dependants := make([][]int, len(defs))
	for at, references := range resolveReferences(defs, namesAfter) {
		for _, other := range references {
			dependants[other] = append(dependants[other], at)
		}
	}
	// Primaries are stopped first, and take no level among the others.
	levels := levelsOf(dependants, func(other int) int {
		if defs[other].Primary {
			return 0
		}
		return 1
	})
	for at, def := range defs {
		levels[at]++
		if def.Primary {
			levels[at] = 0
		}
	}
	return groupByLevel(defs, levels)
}

// EndGrace returns how long the roles may take to end in their order, or 0 without roles.
func EndGrace(defs []Definition) (sum time.Duration) {
	for _, level := range EndLevels(defs) {
		var longest time.Duration
		for _, d := range defs {
			if slices.Contains(level, d.Name) {
				longest = max(longest, d.Stop.Grace)
			}
		}
		sum += longest
	}
	return sum
}

// levelsOf returns the level of each role: 0, or that of a role before it and its steps, whichever
// of these is the highest.
func levelsOf(before [][]int, steps func(other int) int) []int {
	levels, visited := make([]int, len(before)), make([]bool, len(before))
	var visit func(at int) int
	visit = func(at int) int {
		if !visited[at] {
			visited[at] = true
			for _, other := range before[at] {
				levels[at] = max(levels[at], visit(other)+steps(other))
			}
		}
		return levels[at]
	}
	for at := range before {
		visit(at)
	}
	return levels
}

// groupByLevel returns the names of the roles of each level that has any, in their order.
func groupByLevel(defs []Definition, levels []int) (grouped [][]string) {
	for level := range len(defs) + 1 {
		var names []string
		for at, def := range defs {
			if levels[at] == level {
				names = append(names, def.Name)
			}
		}
		if names != nil {
			grouped = append(grouped, names)
		}
	}
	return grouped
}

// EndMember is a daemon that starts processes of roles: of a further step, or of the run's own.
type EndMember struct {
	Place int
	Step  string
}

// EndOrder determines in which order the instances of roles are stopped.
type EndOrder struct {
	Defs           []Definition
	Plan           *Plan
	AfterPrimaries bool // the primary roles have ended
}

// membersOf returns the daemons with instances of a level.
func (o EndOrder) membersOf(level int) (members []EndMember) {
	for _, name := range EndLevels(o.Defs)[level] {
		role := o.Plan.FindRole(name)
		for _, place := range role.Nodes {
			members = append(members, EndMember{place, role.Program.Step})
		}
	}
	return members
}

// Awaiting returns the daemons that stop a level only by an order: other daemons have instances of the
// levels before.
func (o EndOrder) Awaiting(level int) []EndMember {
	var before []EndMember
	for i, names := range EndLevels(o.Defs)[:level] {
		if !o.AfterPrimaries || !o.Plan.FindRole(names[0]).Primary {
			before = append(before, o.membersOf(i)...)
		}
	}
	return slices.DeleteFunc(o.membersOf(level), func(m EndMember) bool {
		return !slices.ContainsFunc(before, func(other EndMember) bool { return other != m })
	})
}
