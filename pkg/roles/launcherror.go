package roles

import "fmt"

// LaunchError is a launch that cannot work, however often it is tried: the caller ends with the code for a
// wrong launch and shows the error as it is.
type LaunchError struct {
	Problem string // what is wrong, beginning with "cannot"
	Mend    string // what to type instead
	// Alone says that nothing has launched this process as one of several: it is
	// in a shell.
	Alone bool
}

// Error returns the problem and its mend as one line.
func (e *LaunchError) Error() string {
	return e.Problem + "; " + e.Mend
}

// srunLine is the command that starts one task a node. The counts are spelled out where they are known: with
// --ntasks=12 inherited from sbatch, srun drops a lone --ntasks-per-node=1 with no more than a warning.
func srunLine(nodes int, more string) string {
	if nodes < 1 {
		return "srun" + more + " --ntasks-per-node=1 bringupd …"
	}
	return fmt.Sprintf("srun%s --nodes=%d --ntasks=%d --ntasks-per-node=1 bringupd …", more, nodes, nodes)
}
