package ray

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/framework"
)

// TestRayOpen verifies the warning about a cluster that does not require the configured token.
// There is no warning if no token is configured.
func TestRayOpen(t *testing.T) {
	for _, tc := range []struct {
		name         string
		asked, given string // the token that the GCS requires, and the head's token
		open         bool
	}{
		{"it asks for the token", "0123", "0123", false},
		{"it is too old to ask", "", "0123", true},
		{"nobody wants a token", "", "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fake := recordedGCS(t, "alive")
			fake.token = tc.asked
			address := fake.serve(t)
			node := testNode(t, 0)
			if tc.given != "" {
				node.Environ = append(node.Environ, "RAY_AUTH_MODE=token", "RAY_AUTH_TOKEN="+tc.given)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			said := ""
			Cluster{}.WarnIfOpen(ctx, node, framework.Endpoint{Address: address},
				func(sentence string) { said += sentence })
			if open := strings.HasPrefix(said,
				"anyone who can connect to Ray at "+address); open != tc.open || !open && said != "" {
				t.Errorf("it says %q", said)
			}
		})
	}
}
