// Package nvml is a libnvidia-ml.so.1 without a driver, for tests. See
// lib/fake.c for what it can be told.
package nvml

import (
	_ "embed"
	"fmt"
	"os/exec"
	"strings"

	"github.com/bringupd/bringupd/test/standin"
)

//go:embed lib/fake.c
var source string

// Fake is a library, and what it answers.
type Fake = standin.Fake

// Build makes a library in dir, which must be there. It lacks the functions
// whose symbols are given, as that of an older driver does.
func Build(dir string, without ...string) (Fake, error) {
	header, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}/pkg/nvml", "github.com/NVIDIA/go-nvml").Output()
	if err != nil {
		return Fake{}, fmt.Errorf("cannot find nvml.h: go list: %v", err)
	}
	kind := standin.Kind{Name: "libnvidia-ml.so.1", Exports: "nvml", Source: source}
	return kind.Build(dir, []string{"-I" + strings.TrimSpace(string(header))}, without...)
}
