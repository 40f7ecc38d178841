// Package cuda is a libcuda.so.1 for tests that needs no NVIDIA driver. See lib/fake.c for the
// answers that can be set.
package cuda

import (
	_ "embed"

	"github.com/bringupd/bringupd/test/standin"
)

//go:embed lib/fake.c
var source string

// Build makes a library in dir, which must exist. The library lacks the given symbols, like the
// library of an older driver.
func Build(dir string, without ...string) (standin.Fake, error) {
	return standin.Kind{Name: "libcuda.so.1", Exports: "cu", Source: source}.Build(dir,
		nil, without...)
}
