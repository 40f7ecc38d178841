//go:build !cgo

// Package child is the process that serves PMIx. It loads libpmix, which the daemon must not do: a
// defect in foreign code could end the daemon.
package child

import (
	"fmt"
	"io"
	"os"
)

// ServePMIx reports that this build cannot serve PMIx.
func ServePMIx(_ string, _, _ *os.File, errs io.Writer) int {
	fmt.Fprintln(errs, "cannot serve PMIx: this bringupd was built without cgo (make build includes it)")
	return 3
}
