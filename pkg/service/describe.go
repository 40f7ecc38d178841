package service

import (
	"slices"

	"github.com/bringupd/bringupd/pkg/exec"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/process/stackdump"
)

// DescribeChildren returns an environment variable that describes the children to the program that
// collects stack dumps.
func (c *Children) DescribeChildren() []string {
	c.mu.Lock()
	all := slices.Clone(c.started)
	c.mu.Unlock()
	var told []stackdump.Child
	for _, child := range all {
		if child.Name() == exec.ChildName || HasEnded(child) && !IsUserProgram(child.Name()) {
			continue // not a child of the job, or ended without anything waiting for it
		}
		told = append(told, describeChild(child))
	}
	return []string{stackdump.FormatChildren(told)}
}

// describeChild returns the description of one child.
func describeChild(child process.Handle) stackdump.Child {
	told := stackdump.Child{Name: child.Name(), PID: child.PID()}
	if HasEnded(child) {
		told.Ended = child.Exit().String()
	}
	bytes, ago := child.OutputStats()
	told.Output = stackdump.Output{Bytes: bytes, AgoS: ago.Seconds()}
	return told
}
