package roleview

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ReadRun reads the roles of the run in a directory.
func ReadRun(ctx context.Context, path string) (*View, error) {
	run, err := openRun(ctx, path)
	if err != nil {
		return nil, err
	}
	files, err := run.list(ctx)
	if err != nil {
		return nil, err
	}
	view, err := Read(ctx, files)
	if errors.Is(err, ErrNoPlan) {
		err = fmt.Errorf("cannot use the roles of run %s: %w", path, err)
	}
	return view, err
}

// ParseWord splits a word for a role, an instance or a process: judge, judge.1 or judge.1.3. A
// missing number is -1.
func ParseWord(word string) (role string, index, process int, ok bool) {
	parts := strings.Split(word, ".")
	numbers := []int{-1, -1}
	if len(parts) > 1+len(numbers) {
		return "", 0, 0, false
	}
	for i, part := range parts[1:] {
		number, err := strconv.ParseUint(part, 10, 31)
		if err != nil {
			return "", 0, 0, false
		}
		numbers[i] = int(number)
	}
	return parts[0], numbers[0], numbers[1], parts[0] != ""
}

// SelectNodes returns the sorted indices of the nodes of a role or of one of its instances, and the
// variables by which a command there finds it: for an instance all that describe its process 0,
// except the lists of endpoints, which may be long.
func (v *View) SelectNodes(word string) (nodes []int, env []string, err error) {
	name, index, process, ok := ParseWord(word)
	role := v.FindRole(name)
	switch {
	case !ok || process >= 0:
		return nil, nil, fmt.Errorf("cannot use role %q: give a role or an instance, such as judge or judge.1", word)
	case role == nil:
		return nil, nil, v.refuseRole(name)
	case index >= len(role.Instances):
		return nil, nil, fmt.Errorf("cannot use %s: the role has the instances 0 to %d", word, len(role.Instances)-1)
	}
	for i := range role.Instances {
		if index < 0 || i == index {
			nodes = append(nodes, role.Instances[i].Nodes...)
		}
	}
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	if index < 0 {
		return nodes, []string{"BRINGUPD_ROLE=" + name, fmt.Sprintf("BRINGUPD_ROLE_COUNT=%d", len(role.Instances))}, nil
	}
	for name, value := range v.Plan.OwnVariables(name, index, 0) {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return nodes, env, nil
}

// SelectNodes returns the nodes of roles and instances of the run in a directory, and the variables of
// [View.SelectNodes] if there is one word.
func SelectNodes(ctx context.Context, path string, words []string) (nodes, env []string, err error) {
	view, err := ReadRun(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	for _, word := range words {
		own, variables, err := view.SelectNodes(word)
		if err != nil {
			return nil, nil, err
		}
		name, _, _, _ := ParseWord(word)
		of := ""
		if step := view.FindRole(name).Program.Step; step != "" {
			of = step + "/" // its processes run in the container of that step
		}
		for _, node := range own {
			nodes = append(nodes, of+strconv.Itoa(node))
		}
		env = variables
	}
	if len(words) > 1 {
		env = nil
	}
	return nodes, env, nil
}

// LogNodes returns the index of the node of each process, by the beginning of the names of its logs:
// judge-1, or judge-1.3 if the instance has several processes.
func (v *View) LogNodes() map[string]int {
	nodes := make(map[string]int)
	for i := range v.Roles {
		for j := range v.Roles[i].Instances {
			instance := &v.Roles[i].Instances[j]
			for _, process := range instance.Processes {
				name := fmt.Sprintf("%s-%d", v.Roles[i].Name, instance.Index)
				if len(instance.Processes) > 1 {
					name += fmt.Sprintf(".%d", process.Rank)
				}
				nodes[name] = v.members[process.Place]
			}
		}
	}
	return nodes
}
