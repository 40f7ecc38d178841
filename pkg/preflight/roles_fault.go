package preflight

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
)

// describeFault describes what follows if an instance, such as judge.1, or a node, such as node:3,
// fails after the gate has opened. The functions of package roles decide, as in a run.
func (p *RolePreview) describeFault(fault string) (string, error) {
	if number, isNode := strings.CutPrefix(fault, "node:"); isNode {
		nodes := len(p.Plan.Nodes) + len(p.spare)
		node, err := strconv.Atoi(number)
		if err != nil || node < 0 || node >= nodes {
			return "", fmt.Errorf("cannot use --fail=%s: give a node from node:0 to node:%d", fault, nodes-1)
		}
		return p.describeLoss(node), nil
	}
	name, number, _ := strings.Cut(fault, ".")
	role := p.Plan.FindRole(name)
	if role == nil {
		names := textutil.JoinEach(p.roles, ", ", func(def roles.Definition) string { return def.Name })
		return "", fmt.Errorf("cannot use --fail=%s: give node:INDEX or an instance ROLE.INDEX; the roles are %s",
			fault, names)
	}
	index, err := strconv.Atoi(number)
	if last := len(role.Instances) - 1; err != nil || index < 0 || index > last {
		return "", fmt.Errorf("cannot use --fail=%s: give an instance from %s.0 to %s.%d", fault, name, name, last)
	}
	return p.describeExit(roles.ExitEffect(role, &role.Instances[index])), nil
}

// describeExit describes what follows from the exit of an instance.
func (p *RolePreview) describeExit(e roles.Effect) string {
	instance := e.Instances[0]
	var hosts []string
	for _, place := range instance.Places() {
		hosts = append(hosts, p.Plan.Nodes[place].Host)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s.%d on %s: a process fails.\n", e.Role.Name, instance.Index, strings.Join(hosts, ", "))
	if others := len(instance.Processes) - 1; others > 0 {
		fmt.Fprintf(&b, "Its other processes are stopped: %d.\n", others)
	}
	if e.Action == roles.ActionRestart {
		fmt.Fprintf(&b, "It starts again in its place, at most %d times within %s. After that:\n",
			e.Restarts, e.Role.Restarts.Window)
	}
	code := codeOf(health.ServiceDied)
	if e.Role.Primary {
		code = "the code of the process"
	}
	return b.String() + fmt.Sprintf("It is lost: role %s.\n", describeLeft(e)) + describeRun(e.EndsRun, code)
}

// describeLoss describes what follows from the loss of a node.
func (p *RolePreview) describeLoss(node int) string {
	const head = 0 // without this node, there is no run
	team := len(p.Plan.Nodes)
	if node >= team {
		host := p.spare[node-team].Host
		return fmt.Sprintf("node %d (%s) is lost: it is a spare node.\n", node, host) + describeRun(false, "")
	}
	title := fmt.Sprintf("node %d (%s) is lost:", node, p.Plan.Nodes[node].Host)
	if node == head {
		return title + " it is the node of the head.\n" + describeRun(true, codeOf(health.PeerLost))
	}
	effects := p.Plan.LossEffects(node, len(p.spare) > 0)
	ends := slices.ContainsFunc(effects, func(e roles.Effect) bool { return e.EndsRun })
	var text strings.Builder
	text.WriteString(title + "\n")
	for _, e := range effects {
		fmt.Fprintf(&text, "  %s: %s\n", e.Role.Name, p.describeRoleLoss(e, ends))
	}
	return text.String() + describeRun(ends, codeOf(health.PeerLost))
}

// describeRoleLoss describes what follows for a role from the loss of a node. ends reports that the
// run ends.
func (p *RolePreview) describeRoleLoss(e roles.Effect, ends bool) string {
	if len(e.Instances) == 0 {
		return "not affected"
	}
	indexes := textutil.MapSlice(e.Instances, func(instance *roles.Instance) int { return instance.Index })
	affected := fmt.Sprintf("instances (%s)", textutil.FormatRanges(indexes))
	switch {
	case e.Action == roles.ActionLose:
		return affected + " lost: " + describeLeft(e)
	case ends:
		return affected + " could start again on the spare node " + p.spare[0].Host
	default:
		return affected + " started again on the spare node " + p.spare[0].Host + ", which takes the place"
	}
}

// describeLeft describes how many instances of a role are left after a loss.
func describeLeft(e roles.Effect) string {
	all, need := len(e.Role.Instances), e.Role.Required.Run
	if e.Role.Oneshot {
		need = e.Role.Required.Start
	}
	return fmt.Sprintf("%s has %d of %d instances left, and needs %d", e.Role.Name, e.Left(), all, need.Of(all))
}

// codeOf returns the exit code of a kind of failure as text.
func codeOf(kind health.Kind) string {
	return "the code " + strconv.Itoa(health.OutcomeOfKind(kind).Code)
}

// describeRun describes whether the run ends.
func describeRun(ends bool, code string) string {
	if ends {
		return "The run ends with " + code + ".\n"
	}
	return "The run goes on.\n"
}
