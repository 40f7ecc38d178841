//go:build testbed

package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Most jobs have run for hours when something strikes them, and in half a minute
// without news the pauses between two looks of a worker have grown to four peer
// timeouts. So that nobody has to wait for that, the program under test is built
// with a package signal whose first pause of a calm job is the longest one, where
// the environment says so.
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

// calmFiles writes what replaces files of the package signal, and returns by
// what.
func calmFiles(dir string) (map[string]string, error) {
	original, err := filepath.Abs(filepath.Join(calmPackage, "watch.go"))
	if err != nil {
		return nil, err
	}
	source, err := os.ReadFile(original)
	if err != nil {
		return nil, fmt.Errorf("cannot read how looks are paced: %v", err)
	}
	if strings.Count(string(source), calmConstant) != 1 {
		return nil, fmt.Errorf("cannot make jobs calm: %s has no %q", original, calmConstant)
	}
	replaced := map[string]string{
		original: filepath.Join(dir, "watch.go"),
		filepath.Join(filepath.Dir(original), "chaos_calm.go"): filepath.Join(dir, "chaos_calm.go"),
	}
	if err := os.WriteFile(replaced[original], []byte(strings.Replace(string(source), calmConstant, "", 1)), 0o600); err != nil {
		return nil, err
	}
	return replaced, os.WriteFile(filepath.Join(dir, "chaos_calm.go"), []byte(calmSource), 0o600)
}
