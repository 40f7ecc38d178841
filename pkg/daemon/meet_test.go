package daemon

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/config"
)

// examples is where the client is.
func examples() string {
	path, _ := filepath.Abs("../../examples")
	return path
}

// inMeeting is a line of Python in which each rank has joined its node's meeting.
func inMeeting(line string) string {
	return `PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=` + examples() + ` exec python3 -c '
import bringupd_kv, os
rank = int(os.environ["BRINGUPD_RANK"])
with bringupd_kv.Client() as meeting:
    ` + line + "'"
}

// Ranks meet by lifelines, and by files where there are none.
func TestRanksMeet(t *testing.T) {
	for _, mode := range []config.LifelineMode{config.LifelineAuto, config.LifelineOff} {
		t.Run(string(mode), func(t *testing.T) {
			j := newWorld(t, 3, 2, inMeeting(`meeting.put("card", "of %d" % rank); meeting.fence(); print(meeting.get("card", owner=5 - rank).decode())`))
			j.all(func(c *config.Config) { c.Lifeline = mode }).start().expect(everyone(0, 3)...)
			got := slices.Sorted(strings.Lines(j.contents(j.out)))
			if want := []string{"of 0\n", "of 1\n", "of 2\n", "of 3\n", "of 4\n", "of 5\n"}; !slices.Equal(got, want) {
				t.Errorf("standard output is %q", got)
			}
		})
	}
}

// A Python program is told why it waits in vain.
func TestPythonIsToldWhy(t *testing.T) {
	j := newWorld(t, 2, 1, `[ "$BRINGUPD_RANK" = 1 ] && exit 0; `+inMeeting(`
    try:
        meeting.fence()
    except bringupd_kv.MeetingError as e:
        print(e.late, e.gone, e)
    try:
        meeting.put("a b", "")
    except bringupd_kv.MeetingError as e:
        print(e.late, e.gone)`))
	j.start().expect(everyone(0, 2)...)
	if got := j.contents(j.out); !strings.HasPrefix(got, "False True cannot pass the fence fence: rank 1 on ") || !strings.HasSuffix(got, "\nFalse False\n") {
		t.Errorf("standard output is %q", got)
	}
}

func TestRankAborts(t *testing.T) {
	j := newWorld(t, 2, 2, inMeeting(`meeting.abort(42, "no data") if rank == 2 else meeting.fence()`))
	j.start().expect(everyone(42, 2)...)
	if result := j.result(); result.Cause == nil || !strings.Contains(result.Cause.What, "rank 2") || !strings.Contains(result.Cause.What, "no data") {
		t.Errorf("the result is %+v", result)
	}
}
