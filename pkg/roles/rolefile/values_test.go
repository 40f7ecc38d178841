package rolefile

import (
	"os"
	"strings"
	"testing"
)

// TestPage verifies that the page for users lists every key.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/roles.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(Keys(), SparesKey) {
		if !strings.Contains(string(page), "\n| `"+name+"` | ") {
			t.Errorf("docs/roles.md does not list the key %s", name)
		}
	}
}
