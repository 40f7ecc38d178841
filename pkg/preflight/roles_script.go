package preflight

import (
	_ "embed"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/rolefile"
)

//go:embed roles_script.tmpl
var jobScriptTemplate string

// FormatScript returns a job script for the roles of the file: the requests of each component, and
// an srun for the daemons and for those of each step. Without Counts, the components have the nodes
// that the roles claim; without GPUs, the user adds them.
func (q PreviewRequest) FormatScript(file rolefile.File) (_ string, err error) {
	if q.Counts == nil {
		if q.Counts, err = countClaimed(file); err != nil {
			return "", err
		}
	}
	s := jobScript{PreviewRequest: q, file: file, Steps: roles.StepNames(file.Roles)}
	for group := range q.Counts {
		s.required = append(s.required, s.findRequiredGPUs(group))
	}
	if q.GPUs != nil {
		if s.preview, err = NewRolePreview(file, AssumeNodes(q.Counts, q.GPUs)); err != nil {
			return "", err
		}
	}
	functions := template.FuncMap{
		"variable": func(step string) string { return strings.ReplaceAll(step, "-", "_") },
		"quote":    textutil.QuoteShellWord,
	}
	var b strings.Builder
	err = template.Must(template.New("").Funcs(functions).Parse(jobScriptTemplate)).Execute(&b, s)
	return b.String(), err
}

// countClaimed returns the number of nodes of each component if the roles determine it.
func countClaimed(file rolefile.File) ([]int, error) {
	const remedy = "give it, for example --nodes=8"
	counts := []int{0}
	for _, def := range file.Roles {
		group := def.Placement.Group
		for len(counts) <= group {
			counts = append(counts, 0)
		}
		switch {
		case def.Placement.ClaimsNodes() && def.Placement.Nodes == roles.NodesRest:
			return nil, fmt.Errorf("cannot determine the number of nodes: role %s (line %d) has the rest; %s",
				def.Name, def.Line, remedy)
		case def.Placement.ClaimsNodes():
			counts[group] += def.Placement.Nodes
		}
	}
	isOfHead := func(d roles.Definition) bool { return d.Placement.Nodes == roles.NodesHead }
	if counts[0] == 0 && slices.ContainsFunc(file.Roles, isOfHead) {
		counts[0] = 1
	}
	for group := range counts {
		if counts[group] == 0 {
			return nil, fmt.Errorf("cannot determine the number of nodes: no role of group %d "+
				"claims a number of them; %s",
				group, remedy)
		}
		counts[group] += file.Spares[group]
	}
	return counts, nil
}

// jobScript has the values of the template.
type jobScript struct {
	PreviewRequest
	Steps    []string
	file     rolefile.File
	preview  *RolePreview // nil if the GPUs of the nodes are unknown
	required []int        // smallest number of GPUs of each node of a component, if they are unknown
}

const (
	maxGPUsTried = 16 // more than any node has
	usualGPUs    = 8
)

// findRequiredGPUs returns the smallest number of GPUs of each node of a component with which the roles can
// be placed, at least usualGPUs if a role has a process for each. It is 0 if they need none or are given.
func (s jobScript) findRequiredGPUs(group int) int {
	if s.GPUs != nil {
		return 0
	}
	hasOneForEach := func(d roles.Definition) bool {
		p := d.Placement
		return (p.InstancesPerNode == roles.PerGPU || p.RanksPerNode == roles.PerGPU) &&
			(p.Group == group || len(p.With) > 0)
	}
	gpus := slices.Repeat([]int{maxGPUsTried}, len(s.Counts))
	for count := range maxGPUsTried + 1 {
		gpus[group] = count
		if _, err := NewRolePreview(s.file, AssumeNodes(s.Counts, gpus)); err != nil {
			continue
		}
		if count > 0 && slices.ContainsFunc(s.file.Roles, hasOneForEach) {
			return max(count, usualGPUs)
		}
		return count
	}
	return 0
}

var notInNames = regexp.MustCompile(`[^-_.0-9a-zA-Z]`)

// JobName returns the name of the file as that of a job, of which Slurm and file names accept all
// characters.
func (s jobScript) JobName() string {
	base := filepath.Base(s.Path)
	name := notInNames.ReplaceAllString(strings.TrimSuffix(base, filepath.Ext(base)), "-")
	if strings.Trim(name, "-.") == "" {
		return "roles"
	}
	return name
}

// SurvivesLoss reports whether the job goes on after the loss of a node.
func (s jobScript) SurvivesLoss() bool { return s.file.Spares.SurvivesNodeLoss(s.file.Roles) }

// GPUsOf returns the GPUs of each node of a component; 0 if there are none, or if they are unknown.
func (s jobScript) GPUsOf(group int) int { return componentGPUs(s.GPUs, group) }

// RequiredGPUs returns the GPUs of each node that a component needs; 0 if it needs none, or they are known.
func (s jobScript) RequiredGPUs(group int) int { return s.required[group] }

// LastGroup returns the number of the last component.
func (s jobScript) LastGroup() int { return len(s.Counts) - 1 }

// stepNodes has the options of srun that select the nodes of a step in one component.
type stepNodes struct{ Step, Options string }

// StepNodes returns the nodes of all steps, for each component in which a step has some.
func (s jobScript) StepNodes() (all []stepNodes) {
	for _, step := range s.Steps {
		for group := range s.Counts {
			first, count := s.nodesOf(step, group)
			if count == 0 {
				continue
			}
			options := ""
			if len(s.Counts) > 1 {
				options = fmt.Sprintf(" --het-group=%d", group)
			}
			if count < s.Counts[group] {
				// Without --relative, srun may choose others than the first nodes.
				options += fmt.Sprintf(" --relative=%d --nodes=%d --ntasks=%d", first, count, count)
			}
			all = append(all, stepNodes{step, options})
		}
	}
	return all
}

// nodesOf returns the smallest range of a component's nodes that contains those of all roles of a
// step. It is the whole component if a spare node can get such a role, and if the placement is
// unknown.
func (s jobScript) nodesOf(step string, group int) (first, count int) {
	if s.preview == nil {
		mayUse := func(d roles.Definition) bool {
			return d.Program.Step == step && (len(d.Placement.With) > 0 || d.Placement.Group == group)
		}
		if !slices.ContainsFunc(s.file.Roles, mayUse) {
			return 0, 0
		}
		return 0, s.Counts[group]
	}
	offset := 0 // of the component's first node among those of the team
	for before := range group {
		offset += max(0, s.Counts[before]-s.file.Spares[before])
	}
	var places []int
	for _, role := range s.preview.Plan.Roles {
		for _, place := range role.Nodes {
			if role.Program.Step == step && s.preview.Plan.Nodes[place].Group == group {
				places = append(places, place)
			}
		}
	}
	switch {
	case len(places) == 0:
		return 0, 0
	case s.file.Spares[group] > 0:
		return 0, s.Counts[group]
	default:
		first = slices.Min(places)
		return first - offset, slices.Max(places) - first + 1
	}
}
