package runs

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// TestAwait waits for runs that appear, or never do, with answers of a launcher.
func TestAwait(t *testing.T) {
	active := launcher.JobState{IsKnown: true, Words: "squeue: PENDING"}
	over := launcher.JobState{IsKnown: true, IsOver: true, Words: "squeue: FAILED"}
	for _, tc := range []struct {
		name     string
		appears  time.Duration // when the run does; 0: never
		over     time.Duration // when the launcher begins to say that the job is over; 0: never
		unknown  bool          // the launcher does not know the job
		waiter   Waiter
		want     string // the path, ended or limit, and when
		messages int
	}{
		{name: "it appears at once", appears: 1, want: "run after 0s"},
		{name: "it appears after days", appears: 48 * time.Hour, want: "run after 48h0m0s", messages: 2},
		{name: "its job ended before", over: 1, want: "ended after 10s", messages: 1},
		{name: "its job ends in the queue", over: 20 * time.Hour, want: "ended after 20h0m40s", messages: 2},
		{name: "it appears as its job ends", appears: 7 * time.Second, over: 4 * time.Second,
			want: "run after 7s", messages: 1},
		{name: "nothing is known", unknown: true, want: "limit after 1h0m0s", messages: 2},
		{name: "nothing is known, and it appears", unknown: true, appears: 59 * time.Minute,
			want: "run after 59m0s", messages: 2},
		{name: "nothing is known, and the user waits", unknown: true, appears: 48 * time.Hour,
			waiter: Waiter{Unlimited: true}, want: "run after 48h0m0s", messages: 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, messages := time.Now(), 0
				w := tc.waiter
				w.Say = func(string, ...any) { messages++ }
				w.Ask = func(_ context.Context, job string) launcher.JobState {
					switch waited := time.Since(began); {
					case job != "53" || tc.unknown:
						return launcher.JobState{}
					case tc.over > 0 && waited >= tc.over:
						return over
					}
					return active
				}
				path, err := w.Await(t.Context(), func(context.Context) (string, error) {
					if tc.appears > 0 && time.Since(began) >= tc.appears-1 {
						return "run", nil
					}
					return "", &NoRunError{Name: "53", LogDir: "/logs"}
				})
				if none, is := errors.AsType[*NoRunError](err); is && none.JobState == over.Words {
					path = "ended"
				} else if errors.Is(err, ErrUnknownLimit) {
					path = "limit"
				}
				got := fmt.Sprint(path, " after ", time.Since(began).Round(time.Second))
				if got != tc.want || messages != tc.messages {
					t.Errorf("it is %s with %d messages, want %s with %d: %v", got, messages, tc.want, tc.messages, err)
				}
			})
		})
	}
}
