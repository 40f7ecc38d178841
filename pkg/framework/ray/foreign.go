package ray

import (
	"context"

	"github.com/bringupd/bringupd/pkg/framework"
)

// WarnIfOpen requests the nodes from the GCS without a token, and warns if it answers although the
// run has one.
func (r Cluster) WarnIfOpen(ctx context.Context, head framework.Node, endpoint framework.Endpoint,
	tell func(sentence string)) {
	if findAuthToken(head.Environ) == "" {
		return // the user wants open access
	}
	if _, err := (gcsServer{address: endpoint.Address}).nodeTable(ctx, "none"); err == nil {
		tell("anyone who can connect to Ray at " + endpoint.Address +
			" can run programs as you: this version of Ray does not check tokens (2.52 and later do)")
	}
}
