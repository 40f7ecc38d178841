package launcher

import "testing"

func TestRunNameOfAttempts(t *testing.T) {
	for _, tc := range []struct {
		id   Identity
		want string
	}{
		{Identity{Job: "123", Step: "0", Attempt: 2}, "123.0-a2"},
		{Identity{Job: "123", Step: "0", Restart: 1, Attempt: 2}, "123.0-r1-a2"},
		{Identity{Job: "x", Attempt: 1}, "x-a1"},
		{Identity{Job: "x"}, "x"},
	} {
		if got := tc.id.RunName(); got != tc.want {
			t.Errorf("attempt %d is called %s, not %s", tc.id.Attempt, got, tc.want)
		}
	}
}
