package stackdump

import (
	"bytes"
	"context"

	"github.com/bringupd/bringupd/pkg/process"
)

// RunCommand runs this program's why command for a run, with these flags, and returns its output.
// It stops the command when ctx ends. It returns an error only if the command printed nothing to
// its standard output.
func RunCommand(ctx context.Context, run string, flags ...string) (string, error) {
	var said, complaint bytes.Buffer
	err := process.Command{Argv: append(append([]string{process.OwnBinary, "why"}, flags...), run), Stdout: &said, Stderr: &complaint}.Run(ctx)
	if said.Len() > 0 { // also if some nodes have not answered
		err = nil
	}
	return said.String() + complaint.String(), err
}
