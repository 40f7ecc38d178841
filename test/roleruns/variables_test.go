package roleruns

import (
	"fmt"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/rolefile"
	"github.com/bringupd/bringupd/test/jobtest"
)

// TestVariableNames verifies that a process has a value for each variable to which its env may refer: what a
// dry run accepts starts.
func TestVariableNames(t *testing.T) {
	t.Parallel()
	const server = "- {name: server, nodes: all, ports: {http: auto, side-car: {count: 2}}, %s command: sleep 1004}\n"
	const client = "- {name: client, nodes: head, primary: true, %s command: 'true'}\n"
	var list yaml.Node
	if err := yaml.Unmarshal(fmt.Appendf(nil, server+client, "", ""), &list); err != nil {
		t.Fatal(err)
	}
	defs, err := rolefile.Parse(list.Content[0])
	if err != nil {
		t.Fatal(err)
	}
	env := func(at int) string {
		var entries []string
		for i, name := range roles.VariableNames(defs, &defs[at]) {
			entries = append(entries, fmt.Sprintf("V%d: $%s", i, name))
		}
		return "env: {" + strings.Join(entries, ", ") + "},"
	}
	j := newJob(t, schedule{}, "variables")
	j.start("roles:\n"+fmt.Sprintf(server+client, env(0), env(1)), nil, "--nodes=2")
	if code := j.AwaitEnd(jobtest.Ceiling); code != 0 {
		t.Errorf("the run has ended with %d:\n%s", code, &j.Said)
	}
}
