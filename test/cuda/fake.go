// Package cuda is a libcuda.so.1 without a driver, for tests. See lib/fake.c for
// what it can be told.
package cuda

import (
	_ "embed"

	"github.com/bringupd/bringupd/test/standin"
)

//go:embed lib/fake.c
var source string

// Build makes a library in dir, which must be there. It lacks the functions
// whose symbols are given, as that of an older driver does.
func Build(dir string, without ...string) (standin.Fake, error) {
	return standin.Kind{Name: "libcuda.so.1", Exports: "cu", Source: source}.Build(dir, nil, without...)
}
