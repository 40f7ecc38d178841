//go:build testbed

package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// In practice, most jobs have run for hours when a failure happens. After half a minute without
// changes, a worker's polling interval has grown to four peer timeouts. To avoid waiting for that,
// the program under test is built with a variant of package signal that uses the longest interval
// from the start if the environment variable is set.
const (
	calmVariable = "CHAOS_CALM"
	calmPackage  = "../../pkg/signal"

	calmConstant = "const relaxedPauses = 40\n"
	calmSource   = `package signal

import (
	"os"
	"time"
)

var relaxedPauses = func() time.Duration {
	if os.Getenv("` + calmVariable + `") != "" {
		return 1 << 16
	}
	return 40
}()
`
)

// calmFiles writes the replacements for files of package signal, and returns a map from each
// original to its replacement.
func calmFiles(dir string) (map[string]string, error) {
	original, err := filepath.Abs(filepath.Join(calmPackage, "schedule.go"))
	if err != nil {
		return nil, err
	}
	source, err := os.ReadFile(original)
	if err != nil {
		return nil, fmt.Errorf("cannot read how polls are paced: %v", err)
	}
	if strings.Count(string(source), calmConstant) != 1 {
		return nil, fmt.Errorf("cannot make jobs calm: %s has no %q", original, calmConstant)
	}
	replaced := map[string]string{
		original: filepath.Join(dir, "schedule.go"),
		filepath.Join(filepath.Dir(original), "chaos_calm.go"): filepath.Join(dir, "chaos_calm.go"),
	}
	if err := os.WriteFile(replaced[original],
		[]byte(strings.Replace(string(source), calmConstant, "", 1)), 0o600); err != nil {
		return nil, err
	}
	return replaced, os.WriteFile(filepath.Join(dir, "chaos_calm.go"), []byte(calmSource), 0o600)
}
