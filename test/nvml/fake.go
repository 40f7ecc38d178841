// Package nvml is a libnvidia-ml.so.1 for tests that needs no NVIDIA driver. See lib/fake.c for the
// answers that can be set.
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

// Fake is a library and its answers.
type Fake = standin.Fake

// Build makes a library in dir, which must exist. The library lacks the given symbols, like the
// library of an older driver.
func Build(dir string, without ...string) (Fake, error) {
	header, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}/pkg/nvml",
		"github.com/NVIDIA/go-nvml").Output()
	if err != nil {
		return Fake{}, fmt.Errorf("cannot find nvml.h: go list: %v", err)
	}
	kind := standin.Kind{Name: "libnvidia-ml.so.1", Exports: "nvml", Source: source}
	return kind.Build(dir, []string{"-I" + strings.TrimSpace(string(header))}, without...)
}
