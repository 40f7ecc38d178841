package pmix_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/bringupd/bringupd/pkg/ranks/pmi/pmix"
	"github.com/bringupd/bringupd/pkg/ranks/pmi/pmix/child"
)

// TestMain makes the server's child, or a stranger, of the test binary if that was started as one.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == pmix.ChildCommand {
		os.Exit(child.ServePMIx(os.Args[2][len("--pmix="):], os.Stdin, os.Stdout, os.Stderr))
	}
	if len(os.Args) == 3 && os.Args[1] == strangerCommand {
		os.Exit(greet(os.Args[2]))
	}
	goleak.VerifyTestMain(m)
}
