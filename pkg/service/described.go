package service

import (
	"slices"

	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/request"
	"github.com/bringupd/bringupd/pkg/why"
)

// Described returns the variable that tells the children to the program that looks at what they do.
func (c *Children) Described() []string {
	c.mu.Lock()
	all := slices.Clone(c.all)
	c.mu.Unlock()
	var told []why.Child
	for _, child := range all {
		if child.Name() == request.ChildName || Ended(child) && !IsUsers(child.Name()) {
			continue // none of the job's; or one whose end nobody waits for
		}
		told = append(told, described(child))
	}
	return []string{why.Describe(told)}
}

func described(child process.Handle) why.Child {
	told := why.Child{Name: child.Name(), PID: child.Pid()}
	if Ended(child) {
		told.Ended = child.Exit().String()
	}
	bytes, ago := child.Printed()
	told.Output = why.Output{Bytes: bytes, AgoS: ago.Seconds()}
	return told
}
