package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/rolefile"
)

// RoleSet has the roles of a job.
type RoleSet struct {
	Definitions []roles.Definition `digest:"-"`
	Spares      roles.Spares       `digest:"-"`
	Digest      string             // of the text that defines them; empty if there are none
	// Step is the name of the further job step that this daemon belongs to; empty: the run's own.
	Step        string `digest:"-"`
	sparesPlace string `digest:"-"` // file and line of Spares
	// Frameworks are those of which roles are clusters, by name.
	Frameworks map[string]framework.Framework `digest:"-"`
}

// Blocks returns the keys of the configuration file that define roles and spares. Reading the file
// fills the set.
func (s *RoleSet) Blocks() []Block {
	block := func(key string, parse func(value *yaml.Node) error) Block {
		return Block{Key: key, Read: func(path string, value *yaml.Node) error {
			if key == rolefile.SparesKey {
				s.sparesPlace = fmt.Sprintf("%s:%d", path, value.Line)
			}
			err := parse(value)
			if wrong, ok := errors.AsType[rolefile.Errors](err); ok {
				return UsageErrorf("%s", wrong.InFile(path))
			}
			text, failed := yaml.Marshal(value)
			sum := sha256.Sum256(append([]byte(s.Digest), text...))
			s.Digest = hex.EncodeToString(sum[:])
			return cmp.Or(err, failed)
		}}
	}
	return []Block{
		block(rolefile.RolesKey, func(value *yaml.Node) (err error) {
			s.Definitions, err = rolefile.Parse(value)
			return err
		}),
		block(rolefile.SparesKey, func(value *yaml.Node) (err error) {
			s.Spares, err = rolefile.ParseSpares(value)
			return err
		}),
	}
}

// ReadFile reads the roles in a configuration file as a run does, and so refuses a mistake in its
// settings, too. all are the settings of a run, and read reads a file.
func (s *RoleSet) ReadFile(path string, all List, read FileReader) error {
	all.FindSetting("config").OfferValues(SourceFlag, "", path)
	_, err := all.ResolveAll(func(string) (string, bool) { return "", false }, read, s.Blocks()...)
	switch {
	case err != nil:
		return err
	case !s.AreGiven():
		return UsageErrorf("cannot use %s: there is no key %s: give a list of roles", path, rolefile.RolesKey)
	}
	return s.validateSupport()
}

// validateStep returns an error if the daemon belongs to a step that the roles do not have.
func (c *Config) validateStep() error {
	names, step := roles.StepNames(c.Roles.Definitions), c.Roles.Step
	switch {
	case step == "" || slices.Contains(names, step):
		return nil
	case len(names) == 0:
		return fmt.Errorf("cannot use --step=%s: no role has the key step", step)
	}
	return fmt.Errorf(
		"cannot use --step=%s: no role has this step; the steps of the roles are: %s",
		step, strings.Join(names, ", "))
}

// AreGiven reports whether the job has roles.
func (s RoleSet) AreGiven() bool { return len(s.Definitions) > 0 }

// HasPrimary reports whether the job has a driver, a world, or a primary role, whose end ends it.
func (c *Config) HasPrimary() bool {
	isPrimary := func(d roles.Definition) bool { return d.Primary }
	return len(c.Driver) > 0 || slices.ContainsFunc(c.Roles.Definitions, isPrimary)
}

// NodeRange returns how many nodes of a launch of size nodes are needed: given, or, if it has no
// spares, all but the spare nodes of the roles.
func (s RoleSet) NodeRange(given membership.NodeRange, size int) membership.NodeRange {
	needed := size
	for _, count := range s.Spares {
		needed -= count
	}
	if needed == size || given.ForSize(size).Min < size {
		return given
	}
	return membership.NodeRange{Min: max(1, needed), Max: size}
}

// LongestGrace returns the longest grace period of a role, or 0 without roles.
func (s RoleSet) LongestGrace() (longest time.Duration) {
	for _, d := range s.Definitions {
		longest = max(longest, d.Stop.Grace)
	}
	return longest
}

// NeedsFramework reports whether a role is a cluster of the framework with this name.
func (s RoleSet) NeedsFramework(name string) bool {
	return slices.ContainsFunc(s.Definitions, func(d roles.Definition) bool { return d.Program.Framework == name })
}

// validateRoles returns an error for a setting that contradicts the roles, and for a key of a role
// that this version does not support.
func (c *Config) validateRoles() error {
	if err := c.validateStep(); err != nil || !c.Roles.AreGiven() {
		return err
	}
	for _, other := range []struct {
		is           bool
		what, remedy string
	}{
		{len(c.Driver) > 0, "a driver", "make it the command of a primary role"},
		{c.World.IsRequested(), "ranks (--ranks-per-node, --ranks)", "give ranks-per-node to a role"},
		{c.Framework.HasServices(), "services (--framework, --head-cmd, --worker-cmd)", "make each service a role"},
		{c.Sandbox.IsRequested(), "sandboxes (--sandbox-cmd)", "make the sandbox a role"},
		{c.World.Hang > 0, "--hang-timeout", "give hang-timeout to a role"},
		{c.World.GoOn, "--on-rank-failure=continue", "the ranks of an instance fail as one"},
		{c.Setup != "", "--setup-cmd", "make it a role with nodes: all and oneshot: node"},
		{
			c.HasSpares() && c.Team != c.Roles.NodeRange(membership.NodeRange{}, c.Identity.Size),
			"spare nodes (--nnodes)", "give the key spares in the file",
		},
	} {
		if other.is {
			return fmt.Errorf("cannot use roles together with %s: %s", other.what, other.remedy)
		}
	}
	if err := c.Roles.validateSupport(); err != nil {
		return err
	}
	_, err := c.Roles.JudgeCommands(c.Identity.Size, c.Environ)
	return err
}

// validateSupport returns an error for a key of a role that no run obeys yet, and for a probe that
// cannot work on any node.
func (s RoleSet) validateSupport() error {
	if group, known := s.Spares.UnclaimedGroup(s.Definitions); group >= 0 && s.AreGiven() {
		return UsageErrorf("cannot use %s: spares: no role uses group %d; the groups in use are: %s",
			s.sparesPlace, group, textutil.FormatRanges(known))
	}
	for _, d := range s.Definitions {
		for _, probe := range []struct{ key, text string }{
			{"ready", d.Ready.Probe}, {"alive", d.Alive.Probe},
		} {
			if probe.text == "" {
				continue
			}
			text, err := roles.StandInProbe(probe.text)
			if err == nil {
				_, err = health.ParseProbe(text)
			}
			if err != nil {
				return UsageErrorf("cannot use %s of role %s (line %d): %v",
					probe.key, d.Name, d.Line, err)
			}
		}
		if key := d.Unsupported(); key != "" {
			return UsageErrorf("cannot run role %s (line %d): %s is not supported by this version", d.Name, d.Line, key)
		}
	}
	return nil
}

// JudgeCommands returns an error if a role runs a launcher, such as torchrun, that does not fit the nodes
// of its instances, on size nodes, and a sentence for each that may not fit.
func (s RoleSet) JudgeCommands(size int, environ []string) (warnings []string, err error) {
	for _, d := range s.Definitions {
		switch f := s.judgeRole(d, size, environ); {
		case f == nil:
		case f.IsCertain:
			return nil, fmt.Errorf(
				"cannot run role %s (line %d): %s",
				d.Name, d.Line, strings.TrimPrefix(f.Error(), "cannot run "))
		default:
			warnings = append(warnings, fmt.Sprintf("role %s (line %d): %s", d.Name, d.Line, f.Warning()))
		}
	}
	return warnings, nil
}

// judgeRole returns why the launcher that a role runs does not fit the nodes of an instance; nil if it
// may. Other instances, and other roles, may run the same launcher on other nodes.
func (s RoleSet) judgeRole(d roles.Definition, size int, environ []string) *ranks.Finding {
	environ = slices.Clone(environ)
	for name, value := range d.Program.Env {
		environ = append(environ, name+"="+value)
	}
	by := s.RunnersOf(d, size)
	if by == nil {
		return nil
	}
	return ranks.JudgeCommand(d.Program.SimpleCommand(), environ, *by)
}

// RunnersOf returns the processes of an instance of a role, which run its command on size nodes; nil if any
// launcher may fit them.
func (s RoleSet) RunnersOf(d roles.Definition, size int) *ranks.Runners {
	p := d.Placement
	size = s.NodeRange(membership.NodeRange{}, size).ForSize(size).Min
	hasGroups := slices.ContainsFunc(s.Definitions, func(d roles.Definition) bool { return d.Placement.Group > 0 })
	if p.Nodes == roles.NodesHead && len(s.Definitions) == 1 && !p.HasRanks {
		return &ranks.Runners{MinNodes: size, MaxNodes: size, AreOfRole: true, Instances: 1}
	}
	isUnknown := size == 0 && p.Nodes < 0 && p.Nodes != roles.NodesHead // the number of nodes
	if d.Program.FollowerCommand != "" || isUnknown {
		return nil
	}
	by := &ranks.Runners{MinNodes: 1, MaxNodes: size, IsRanked: true, AreOfRole: true,
		AreProcesses: !p.HasRanks}
	switch nodes := p.NodesPerInstance; {
	case nodes > 0:
		by.MinNodes, by.MaxNodes = nodes, nodes
	case p.Nodes > 0:
		by.MinNodes, by.MaxNodes = p.Nodes, p.Nodes
	case p.Nodes == roles.NodesHead:
		by.MaxNodes = 1
	case hasGroups: // those of its own
	case p.Nodes == roles.NodesAll:
		by.MinNodes = size
	case p.Nodes == roles.NodesOthers:
		by.MinNodes, by.MaxNodes = size-1, size-1
	}
	by.MinRanks = by.MinNodes
	switch {
	case p.Ranks > 0:
		by.MinRanks, by.MaxRanks = p.Ranks, p.Ranks
	case p.RanksPerNode > 0:
		by.MinRanks, by.MaxRanks = p.RanksPerNode*by.MinNodes, p.RanksPerNode*by.MaxNodes
	}
	if len(s.Definitions) == 1 && p.InstancesPerNode == 1 && p.NodesPerInstance > 0 { // there are no others
		nodes := p.Nodes
		if nodes < 0 {
			nodes = size
		}
		by.Instances = nodes / p.NodesPerInstance
	}
	return by
}
