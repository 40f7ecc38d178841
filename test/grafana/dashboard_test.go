// Package grafana checks the dashboard of deploy/prometheus against Grafana's own schema. It is a
// separate module, so that the product does not depend on that code.
package grafana

import (
	"os"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// TestDashboard verifies that the dashboard, with the options of its panels and their queries, has
// all required fields and no unknown ones.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("../../deploy/prometheus/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	plugins.RegisterDefaultPlugins()
	var read dashboard.Dashboard
	// An empty list of errors is returned as an error, too.
	if err := read.UnmarshalJSONStrict(text); err != nil && err.Error() != "" {
		t.Error(err)
	}
	if err := read.Validate(); err != nil && err.Error() != "" {
		t.Error(err)
	}
	if len(read.Panels) == 0 {
		t.Error("it has no panels")
	}
}
