package pmix_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/bringupd/bringupd/pkg/ranks/pmi/pmix"
	"github.com/bringupd/bringupd/pkg/ranks/pmi/pmix/child"
)

// TestMain runs the test binary as the server's child or as another user's client if it was started
// as one.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == pmix.ChildCommand {
		os.Exit(child.ServePMIx(os.Args[2][len("--pmix="):], os.Stdin, os.Stdout, os.Stderr))
	}
	if len(os.Args) == 3 && os.Args[1] == strangerCommand {
		os.Exit(greet(os.Args[2]))
	}
	goleak.VerifyTestMain(m)
}
