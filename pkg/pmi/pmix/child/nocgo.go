//go:build !cgo

// Package child is the process that serves PMIx: it loads a libpmix, which the daemon can't, whose life must not hang from another's code.
package child

import (
	"fmt"
	"io"
	"os"
)

// Serve says that it can't.
func Serve(_ string, _, _ *os.File, errs io.Writer) int {
	fmt.Fprintln(errs, "cannot serve PMIx: this bringupd was built without C (make build has it)")
	return 3
}
