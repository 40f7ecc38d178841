package service

import (
	"maps"
	"slices"

	"github.com/bringupd/bringupd/pkg/exec"
	"github.com/bringupd/bringupd/pkg/process/stackdump"
)

// DescribeChildren returns an environment variable that describes the children to the program that
// collects stack dumps.
func (c *Children) DescribeChildren() []string {
	c.mu.Lock()
	all, traits := slices.Clone(c.started), maps.Clone(c.traits)
	c.mu.Unlock()
	var children []stackdump.Child
	for _, child := range all {
		own := traits[child.Name()]
		if child.Name() == exec.ChildName || HasEnded(child) && !IsUserProgram(child.Name()) && !own.isUserProgram {
			continue // not a child of the job, or ended without anything waiting for it
		}
		bytes, ago := child.OutputStats()
		one := stackdump.Child{Name: child.Name(), PID: child.PID(), Socket: own.socket,
			Output: stackdump.Output{Bytes: bytes, AgoS: ago.Seconds()}}
		if HasEnded(child) {
			one.Ended = child.Exit().String()
		}
		if c.cfg.Steps != nil {
			if step, known := c.cfg.Steps.LastStep(child.Name()); known {
				one.Step = &step
			}
		}
		children = append(children, one)
	}
	return []string{stackdump.FormatChildren(children)}
}
