package simulate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/preflight/roleplan"
	"github.com/bringupd/bringupd/pkg/roles"
)

// DescribeFault describes what follows in a job of that many nodes if an instance, such as judge.1,
// or a node, such as node:3, fails after the gate has opened. The functions of package roles decide,
// as in a run.
func (c Config) DescribeFault(nodes int, what string) (string, error) {
	c.Nodes = nodes
	preview, err := c.PlanRoles()
	if err != nil {
		return "", err
	}
	if number, isNode := strings.CutPrefix(what, "node:"); isNode {
		node, err := strconv.Atoi(number)
		if err != nil || node < 0 || node >= nodes {
			return "", fmt.Errorf("cannot use --fail=%s: give a node from node:0 to node:%d", what, nodes-1)
		}
		return describeLoss(preview, node), nil
	}
	name, number, _ := strings.Cut(what, ".")
	role := preview.Plan.FindRole(name)
	if role == nil {
		return "", fmt.Errorf("cannot use --fail=%s: give node:INDEX or an instance ROLE.INDEX; the roles are %s", what, roleNames(preview.Plan))
	}
	index, err := strconv.Atoi(number)
	if err != nil || index < 0 || index >= len(role.Instances) {
		return "", fmt.Errorf("cannot use --fail=%s: give an instance from %s.0 to %s.%d", what, name, name, len(role.Instances)-1)
	}
	return describeExit(preview.Plan, roles.ExitEffect(role, &role.Instances[index])), nil
}

// roleNames lists the roles of a plan.
func roleNames(plan *roles.Plan) string {
	var names []string
	for i := range plan.Roles {
		names = append(names, plan.Roles[i].Name)
	}
	return strings.Join(names, ", ")
}

// describeExit describes what follows from the exit of an instance.
func describeExit(plan *roles.Plan, e roles.Effect) string {
	instance := e.Instances[0]
	name := fmt.Sprintf("%s.%d", e.Role.Name, instance.Index)
	var hosts []string
	for _, place := range instance.Places() {
		hosts = append(hosts, plan.Nodes[place].Host)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s on %s: a process fails.\n", name, strings.Join(hosts, ", "))
	if others := len(instance.Processes) - 1; others > 0 {
		fmt.Fprintf(&b, "Its other %s.\n", countOf(others, "process is stopped", "processes are stopped"))
	}
	if e.Action == roles.ActionRestart {
		fmt.Fprintf(&b, "It starts again in its place after %s, at most %s within %s. After that:\n", e.Pause, countOf(e.Restarts, "time", "times"), e.Role.Restarts.Window)
	}
	code := "the code " + strconv.Itoa(health.OutcomeOfKind(health.ServiceDied).Code)
	if e.Role.Primary {
		code = "the code of the process"
	}
	fmt.Fprintf(&b, "It is lost: role %s.\n", describeLeft(e))
	fmt.Fprintln(&b, describeRun(e.EndsRun, code))
	return b.String()
}

// describeLeft describes how many instances of a role are left after a loss.
func describeLeft(e roles.Effect) string {
	all := len(e.Role.Instances)
	need := e.Role.Required.Run
	if e.Role.Oneshot {
		need = e.Role.Required.Start
	}
	return fmt.Sprintf("%s has %d of %d instances left, and needs %d", e.Role.Name, e.Left(), all, need.Of(all))
}

// describeRun describes whether the run ends.
func describeRun(ends bool, code string) string {
	if ends {
		return "The run ends with " + code + "."
	}
	return "The run goes on."
}

// headNode is the node of the head, without which there is no run.
const headNode = 0

// describeLoss describes what follows from the loss of a node.
func describeLoss(preview *roleplan.Preview, node int) string {
	plan := preview.Plan
	code := "the code " + strconv.Itoa(health.OutcomeOfKind(health.PeerLost).Code)
	if node >= len(plan.Nodes) {
		return fmt.Sprintf("node %d (%s) is lost: it is a spare node.\n%s\n", node, preview.SpareNodes[node-len(plan.Nodes)].Host, describeRun(false, ""))
	}
	if node == headNode {
		return fmt.Sprintf("node %d (%s) is lost: it is the node of the head.\n%s\n", node, plan.Nodes[node].Host, describeRun(true, code))
	}
	hasSpare := len(preview.SpareNodes) > 0
	effects := plan.LossEffects(node, hasSpare)
	ends := slices.ContainsFunc(effects, func(e roles.Effect) bool { return e.EndsRun })
	var b strings.Builder
	fmt.Fprintf(&b, "node %d (%s) is lost:\n", node, plan.Nodes[node].Host)
	for _, e := range effects {
		fmt.Fprintf(&b, "  %s: %s\n", e.Role.Name, describeRoleLoss(preview, e, ends))
	}
	fmt.Fprintln(&b, describeRun(ends, code))
	return b.String()
}

// describeRoleLoss describes what follows for a role from the loss of a node. ends reports that the
// run ends.
func describeRoleLoss(preview *roleplan.Preview, e roles.Effect, ends bool) string {
	if len(e.Instances) == 0 {
		return "not affected"
	}
	var indexes []int
	for _, instance := range e.Instances {
		indexes = append(indexes, instance.Index)
	}
	affected := countOf(len(indexes), "instance", "instances") + " (" + textutil.FormatRanges(indexes) + ")"
	switch {
	case e.Action == roles.ActionLose:
		return affected + " lost: " + describeLeft(e)
	case ends:
		return affected + " could start again on the spare node " + preview.SpareNodes[0].Host
	default:
		return affected + " started again on the spare node " + preview.SpareNodes[0].Host + ", which takes the place"
	}
}

// countOf returns a number with a word in the singular or plural.
func countOf(n int, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return textutil.GroupThousands(n) + " " + several
}
