package stackdump

import (
	"bytes"
	"context"
	"slices"

	"github.com/bringupd/bringupd/pkg/process"
)

// RunCommand runs this program's why command for a run, with these flags, and returns its output.
// It stops the command when ctx ends. It returns an error only if the command printed nothing to
// its standard output.
func RunCommand(ctx context.Context, run string, flags ...string) (string, error) {
	var out, complaint bytes.Buffer
	argv := slices.Concat([]string{process.OwnBinary, "why"}, flags, []string{run})
	err := process.Command{Argv: argv, Stdout: &out, Stderr: &complaint}.Run(ctx)
	if out.Len() > 0 { // also if some nodes have not answered
		err = nil
	}
	return out.String() + complaint.String(), err
}
