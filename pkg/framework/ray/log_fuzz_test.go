package ray

import (
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/process"
)

func FuzzRaySigns(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string, code int) {
		var signs []string
		took := allocated(func() { signs = findFailureLines([]byte(text)) })
		if most := uint64(64<<10 + 16*len(text)); took > most {
			t.Errorf("%d bytes make %d, and %d is the most", len(text), took, most)
		}
		if len(signs) > 3 {
			t.Errorf("%d signs: %q", len(signs), signs)
		}
		for _, sign := range signs {
			if sign == "" || len(sign) > 2<<10 || strings.ContainsAny(sign, "\n") || !strings.Contains(text, sign) {
				t.Errorf("%q is no sign in %q", sign, text)
			}
		}
		lines := strings.Split(text, "\n")
		if isTransient(process.Exit{Code: code}, lines) && (code == 126 || code == 127 || isTransient(process.Exit{Code: 127}, lines)) {
			t.Errorf("a ray that is not there is tried again after %q", lines)
		}
	})
}
