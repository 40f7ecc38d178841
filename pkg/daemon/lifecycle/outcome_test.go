package lifecycle

import (
	"slices"
	"testing"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestBearable verifies that a result with very many consequences stays small enough for a record.
func TestBearable(t *testing.T) {
	many := slices.Repeat([]record.Failure{{Header: record.Header{NodeIndex: 7}, Kind: health.ServiceDied}}, 4096)
	for i := range many {
		many[i].Lines = []string{"a line"}
	}
	kept := (&Outcome{Consequences: many}).TruncatedConsequences()
	if len(kept) != maxConsequences || kept[0].Lines != nil || kept[0].NodeIndex != 7 {
		t.Errorf("%d are kept, the first as %+v", len(kept), kept[0])
	}
	if many[0].Lines == nil {
		t.Error("the others have lost their lines")
	}
	if new(Outcome).TruncatedConsequences() != nil {
		t.Error("of nothing there is something")
	}
}
