package runs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/inspect/timeline"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

type openedRun struct {
	reader *signal.Reader
	job    record.Job
}

var errNoJob = errors.New("it has no job record")

func openRun(ctx context.Context, path string) (run openedRun, err error) {
	if run.reader, err = signal.OpenReader(ctx, path); err != nil {
		return run, err
	}
	control, err := run.reader.ListDir(ctx, signal.ControlDir)
	switch {
	case err != nil:
		return run, err
	case !slices.Contains(control.Names, signal.NameJob):
		return run, fmt.Errorf("cannot use run %s: %w", path, errNoJob)
	}
	_, err = control.ReadRecord(ctx, signal.NameJob, "", &run.job)
	return run, err
}

func readRoles(ctx context.Context, path string) (*timeline.PlacedRoles, error) {
	run, err := openRun(ctx, path)
	if err != nil {
		return nil, err
	}
	files := timeline.RoleFiles{Size: run.job.Size, Nonce: run.job.Nonce}
	files.HasChecks = run.job.HasChecks()
	files.Hosts, _ = launcher.ExpandNodeList(run.job.Hosts, run.job.Size)
	if files.Control, err = run.reader.ListDir(ctx, signal.ControlDir); err != nil {
		return nil, err
	}
	if files.Nodes, err = run.reader.ListDir(ctx, signal.NodesDir); err != nil {
		return nil, err
	}
	placed, err := files.ReadRoles(ctx)
	if errors.Is(err, timeline.ErrNoPlan) {
		err = fmt.Errorf("cannot use the roles of run %s: %w", path, err)
	}
	return placed, err
}

// roleWord is a word for a role, an instance or a process: judge, judge.1 or judge.1.3. A missing
// number is -1.
type roleWord struct {
	role           string
	index, process int
}

// parseRoleWord splits a word. ok reports whether it has the form of one.
func parseRoleWord(word string) (parsed roleWord, ok bool) {
	parts := strings.Split(word, ".")
	numbers := []int{-1, -1}
	if len(parts) > 1+len(numbers) {
		return parsed, false
	}
	for i, part := range parts[1:] {
		number, err := strconv.ParseUint(part, 10, 31)
		if err != nil {
			return parsed, false
		}
		numbers[i] = int(number)
	}
	return roleWord{parts[0], numbers[0], numbers[1]}, parts[0] != ""
}

// SelectNodes returns the nodes of roles and instances of the run in a directory, as bringupd exec
// names them. If there is one word, it returns the variables by which a command there finds it: for an
// instance all that describe its process 0, except the lists of endpoints, which may be long.
func SelectNodes(ctx context.Context, path string, words []string) (nodes, env []string, err error) {
	placed, err := readRoles(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	for _, word := range words {
		parsed, ok := parseRoleWord(word)
		if !ok || parsed.process >= 0 {
			return nil, nil, fmt.Errorf(
				"cannot use role %q: give a role or an instance, such as judge or judge.1", word)
		}
		role, err := placed.FindRole(parsed.role)
		if err != nil {
			return nil, nil, err
		}
		if parsed.index >= len(role.Instances) {
			return nil, nil, fmt.Errorf(
				"cannot use %s: the role has the instances 0 to %d", word, len(role.Instances)-1)
		}
		prefix := ""
		if step := role.Program.Step; step != "" {
			prefix = step + "/" // its processes run in the container of that step
		}
		for _, node := range nodesOf(role, parsed.index) {
			nodes = append(nodes, prefix+strconv.Itoa(node))
		}
		env = placedVariables(placed, role, parsed.index)
	}
	if len(words) > 1 {
		env = nil
	}
	return nodes, env, nil
}

func nodesOf(role *timeline.Role, index int) (nodes []int) {
	for i := range role.Instances {
		if index < 0 || i == index {
			nodes = append(nodes, role.Instances[i].Nodes...)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// placedVariables returns the variables of a role, or of process 0 of an instance.
func placedVariables(placed *timeline.PlacedRoles, role *timeline.Role, index int) (env []string) {
	if index < 0 {
		return []string{"BRINGUPD_ROLE=" + role.Name, fmt.Sprintf("BRINGUPD_ROLE_COUNT=%d", len(role.Instances))}
	}
	for name, value := range placed.Plan.OwnVariables(role.Name, index, 0) {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env
}
