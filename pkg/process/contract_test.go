package process_test

import (
	"testing"

	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/test/fakechild/childtest"
)

// TestContract verifies that real children behave like the children of tests in bubbles.
func TestContract(t *testing.T) {
	childtest.Contract(t, func(t *testing.T, test func(*testing.T, process.Starter)) {
		t.Parallel()
		super, err := process.NewSupervisor(nil)
		if err != nil {
			t.Fatal(err)
		}
		test(t, super)
	})
}
