package service

import (
	"slices"

	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/request"
	"github.com/bringupd/bringupd/pkg/why"
)

// Described returns an environment variable that describes the children to the program that
// collects stack dumps.
func (c *Children) Described() []string {
	c.mu.Lock()
	all := slices.Clone(c.all)
	c.mu.Unlock()
	var told []why.Child
	for _, child := range all {
		if child.Name() == request.ChildName || Ended(child) && !IsUsers(child.Name()) {
			continue // not a child of the job, or ended without anything waiting for it
		}
		told = append(told, described(child))
	}
	return []string{why.Describe(told)}
}

// described returns the description of one child.
func described(child process.Handle) why.Child {
	told := why.Child{Name: child.Name(), PID: child.Pid()}
	if Ended(child) {
		told.Ended = child.Exit().String()
	}
	bytes, ago := child.Printed()
	told.Output = why.Output{Bytes: bytes, AgoS: ago.Seconds()}
	return told
}
