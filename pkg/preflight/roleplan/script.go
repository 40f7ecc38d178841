package roleplan

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/rolefile"
)

// Batch describes the job of a script for Slurm.
type Batch struct {
	Path   string // of the file of roles
	Counts []int  // nodes of each component; nil: those that the roles claim
	GPUs   []int  // GPUs of each node of a component; nil: left to the user
}

// FormatScript returns a job script for the roles of a file: the requests of each component, and an
// srun for the daemons and for those of each step.
func FormatScript(file rolefile.File, batch Batch) (string, error) {
	if batch.Counts == nil {
		var err error
		if batch.Counts, err = countClaimed(file); err != nil {
			return "", err
		}
	}
	var preview *Preview
	if batch.GPUs != nil {
		var err error
		if preview, err = NewPreview(file, AssumeNodes(batch.Counts, batch.GPUs)); err != nil {
			return "", err
		}
	}
	s := &script{File: file, Batch: batch, preview: preview, steps: roles.StepNames(file.Roles)}
	s.writeHeader()
	s.writeSite()
	s.writeSteps()
	return s.String(), nil
}

// countClaimed returns the number of nodes of each component if the roles determine it.
func countClaimed(file rolefile.File) ([]int, error) {
	counts := []int{0}
	for _, def := range file.Roles {
		group := def.Placement.Group
		for len(counts) <= group {
			counts = append(counts, 0)
		}
		switch {
		case def.Placement.ClaimsNodes() && def.Placement.Nodes == roles.NodesRest:
			return nil, fmt.Errorf("cannot determine the number of nodes: role %s (line %d) has the rest; give it, for example --nodes=8", def.Name, def.Line)
		case def.Placement.ClaimsNodes():
			counts[group] += def.Placement.Nodes
		}
	}
	if counts[0] == 0 && slices.ContainsFunc(file.Roles, func(d roles.Definition) bool { return d.Placement.Nodes == roles.NodesHead }) {
		counts[0] = 1
	}
	for group := range counts {
		if counts[group] == 0 {
			return nil, fmt.Errorf("cannot determine the number of nodes: no role of group %d claims a number of them; give it, for example --nodes=8", group)
		}
		counts[group] += file.Spares[group]
	}
	return counts, nil
}

// script is a job script that is being written.
type script struct {
	rolefile.File
	Batch
	preview *Preview // nil if the GPUs of the nodes are unknown
	steps   []string
	strings.Builder
}

func (s *script) addf(format string, args ...any) { fmt.Fprintf(&s.Builder, format, args...) }

// writeHeader writes the requests of each component.
func (s *script) writeHeader() {
	base := filepath.Base(s.Path)
	s.addf("#!/bin/bash\n#SBATCH --job-name=%s\n#SBATCH --output=%%x-%%j.out\n#SBATCH --signal=B:TERM@120\n", quoteName(strings.TrimSuffix(base, filepath.Ext(base))))
	if s.Spares.SurvivesNodeLoss(s.Roles) {
		s.addf("#SBATCH --no-kill\n")
	}
	for group, count := range s.Counts {
		if group > 0 {
			s.addf("#SBATCH hetjob\n")
		}
		s.addf("#SBATCH --nodes=%d\n#SBATCH --ntasks-per-node=1\n#SBATCH --exclusive\n", count)
		if s.GPUs == nil {
			continue
		}
		if gpus := s.GPUs[min(group, len(s.GPUs)-1)]; gpus > 0 {
			s.addf("#SBATCH --gpus-per-node=%d\n", gpus)
		}
	}
}

// writeSite writes the lines that a user changes.
func (s *script) writeSite() {
	s.addf("# Your site: change these lines, and remove one # from those that you need.\n##SBATCH --account=ACCOUNT\n##SBATCH --partition=PARTITION\n##SBATCH --time=1:00:00\n")
	if s.GPUs == nil {
		s.addf("##SBATCH --gpus-per-node=8\n")
	}
	s.addf("# source \"$HOME/venv/bin/activate\"\n")
	for _, step := range s.steps {
		s.addf("%s_image=/path/to/%s.sqsh\n", variableOf(step), step)
	}
	s.addf("\nlogs=\"${LOG_DIR:-$SLURM_SUBMIT_DIR/bringupd-logs}\"\nroles=%s\n", textutil.QuoteShellWord(s.Path))
	if s.GPUs == nil && len(s.Counts) == 1 {
		s.addf("# A step has only the GPUs that srun requests: request all of the job.\n" +
			"[ \"${SLURM_GPUS_ON_NODE:-0}\" = 0 ] || export SLURM_GPUS_PER_NODE=\"${SLURM_GPUS_PER_NODE:-$SLURM_GPUS_ON_NODE}\"\n")
	}
	s.addf("# Two minutes before the time limit, Slurm sends TERM to this script only.\n" +
		"trap 'for run in \"$logs/$SLURM_JOB_ID\".*; do bringupd stop \"$run\"; done' TERM\n")
}

// writeSteps writes an srun for each step, and that of the daemons, whose exit code is the job's.
func (s *script) writeSteps() {
	for _, step := range s.steps {
		for group := range s.Counts {
			if nodes := s.stepNodes(step, group); nodes.count > 0 {
				s.addf("\n%s%s \\\n    --container-image=\"$%s_image\" \\\n    bringupd --config=\"$roles\" --log-dir=\"$logs\" --step=%s &\n",
					s.srun(), s.selectNodes(group, nodes), variableOf(step), step)
			}
		}
	}
	components := ""
	if len(s.Counts) > 1 {
		components = fmt.Sprintf(" --het-group=0-%d", len(s.Counts)-1)
	}
	s.addf("\n%s%s \\\n    bringupd --config=\"$roles\" --log-dir=\"$logs\" &\n", s.srun(), components)
	s.addf("while kill -0 $! 2>/dev/null; do wait $!; done # a trap interrupts wait\n" +
		"wait $! # returns srun's exit code\ncode=$?\nwait\nexit $code\n")
}

// srun returns the beginning of the command of a step.
func (s *script) srun() string {
	overlap := ""
	if len(s.steps) > 0 {
		overlap = " --overlap"
	}
	if s.Spares.SurvivesNodeLoss(s.Roles) {
		return "srun" + overlap + " --export=ALL --no-kill --kill-on-bad-exit=0 --wait=0"
	}
	return "srun" + overlap + " --export=ALL --kill-on-bad-exit=1 --wait=0"
}

// nodeRange is a range of the nodes of a component.
type nodeRange struct{ first, count int }

// stepNodes returns the smallest range of a component's nodes that contains those of all roles of a
// step. It is the whole component if a spare node can get such a role, and if the placement is
// unknown.
func (s *script) stepNodes(step string, group int) nodeRange {
	whole := nodeRange{0, s.Counts[group]}
	if s.preview == nil {
		if s.mayUse(step, group) {
			return whole
		}
		return nodeRange{}
	}
	offset := 0 // of the component's first node among those of the team
	for before := range group {
		offset += max(0, s.Counts[before]-s.Spares[before])
	}
	first, last := -1, -1
	for _, role := range s.preview.Plan.Roles {
		for _, place := range role.Nodes {
			if role.Program.Step == step && s.preview.Plan.Nodes[place].Group == group {
				if first < 0 || place < first {
					first = place
				}
				last = max(last, place)
			}
		}
	}
	switch {
	case first < 0:
		return nodeRange{}
	case s.Spares[group] > 0:
		return whole
	default:
		return nodeRange{first - offset, last - first + 1}
	}
}

// mayUse reports whether a role of a step can be in a component.
func (s *script) mayUse(step string, group int) bool {
	return slices.ContainsFunc(s.Roles, func(d roles.Definition) bool {
		return d.Program.Step == step && (len(d.Placement.With) > 0 || d.Placement.Group == group)
	})
}

// selectNodes returns the options of srun that select nodes of a component.
func (s *script) selectNodes(group int, nodes nodeRange) string {
	options := ""
	if len(s.Counts) > 1 {
		options = fmt.Sprintf(" --het-group=%d", group)
	}
	if nodes.count == s.Counts[group] {
		return options
	}
	// Without --relative, srun may choose others than the first nodes.
	return options + fmt.Sprintf(" --relative=%d --nodes=%d --ntasks=%d", nodes.first, nodes.count, nodes.count)
}

// variableOf returns the name of a step as part of the name of a shell variable.
func variableOf(step string) string { return strings.ReplaceAll(step, "-", "_") }

// quoteName returns a text as the name of a job, of which Slurm and file names accept all
// characters.
func quoteName(text string) string {
	text = strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, text)
	if strings.Trim(text, "-.") == "" {
		return "roles"
	}
	return text
}
