package lifecycle

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

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

// TestExtendForStart ends the run before a start and while a start is in progress.
func TestExtendForStart(t *testing.T) {
	end := errors.New("the end")
	synctest.Test(t, func(t *testing.T) {
		l := NewLifetime(t.Context())
		ctx, cancel := context.WithCancelCause(l.WorkCtx)
		late, done := l.ExtendForStart(ctx)
		short, over := l.ExtendForStart(ctx)
		over()
		cancel(end)
		time.Sleep(StartExtension - 1)
		synctest.Wait()
		if late.Err() != nil || short.Err() == nil {
			t.Errorf("before the extension is over: %v, and a start that is over: %v", late.Err(), short.Err())
		}
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		if !errors.Is(context.Cause(late), end) {
			t.Errorf("after the extension it has ended by %v", context.Cause(late))
		}
		done()
		if never, _ := l.ExtendForStart(ctx); never.Err() == nil {
			t.Error("a start after the end goes on")
		}
		l.Close()
	})
}
