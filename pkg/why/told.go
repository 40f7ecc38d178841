package why

import (
	"bytes"
	"context"

	"github.com/bringupd/bringupd/pkg/process"
)

// Told returns what this program's own why says of a run, with these flags, until ctx ends. An error is that it said nothing.
func Told(ctx context.Context, run string, flags ...string) (string, error) {
	var said, complaint bytes.Buffer
	err := process.Command{Argv: append(append([]string{process.OwnBinary, "why"}, flags...), run), Stdout: &said, Stderr: &complaint}.Run(ctx)
	if said.Len() > 0 { // also of nodes that have not answered
		err = nil
	}
	return said.String() + complaint.String(), err
}
